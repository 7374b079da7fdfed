"""Figures of the overview: costs by model, time ranges, and the line that warns on every page."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.datastructures import QueryParams

from kemem.errors import InvalidArgument
from kemem.ports import Reply
from kemem.records import Scope
from kemem.records.batch import Batch, Job
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.operators import POINTS, Usage, time_range, usage
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE
from kemem.settings import Settings, load, parse_prices
from tests.cases import each
from tests.pages import browsing, faults_of, send, text_of

BOTH = pytest.mark.parametrize("language", ["zh", "en"])
NOW = 1_794_933_000_000_000  # 2026-11-17T16:30:00Z


def test_costs_are_by_model_and_only_where_a_price_is_known() -> None:
    """The most used first; no price is made up."""
    counts = Counter(
        {
            "model.gpt-4.1.prompt_tokens": 2_000_000,
            "model.gpt-4.1.completion_tokens": 500_000,
            "model.gpt-4.1.replies": 7,
            "model.通义.replies": 1,
            "model.通义.prompt_tokens": 10,
            "llm.prompt_tokens": 2_000_010,
        }
    )
    assert usage(counts, parse_prices("gpt-4.1 = 2/8.5, other=1/1")) == [
        Usage("gpt-4.1", 7, 2_000_000, 500_000, 8.25),
        Usage("通义", 1, 10, 0, None),
    ]


@each("wrong", ["gpt", "gpt=1", "gpt=1/x", "=1/2", "gpt=-1/2", "gpt=1/2;价格=1/2", "a=1/2/3"])
def test_a_wrong_price_is_refused_when_settings_are_loaded(wrong: str) -> None:
    """With what would be right."""
    with pytest.raises(InvalidArgument, match="MODEL=INPUT/OUTPUT"):
        load(llm_prices=wrong)
    assert Settings(llm_prices=" a=1/2 ,").llm_prices == " a=1/2 ,"


@BOTH
async def test_the_overview_shows_what_each_model_cost(tmp_path: Path, language: str) -> None:
    """Without a price it says how to set one."""
    for prices, shown, hint in (("", "–", "KEMEM_LLM_PRICES="), ("m=1/2", "0.0050", "")):
        settings = {"llm_model": "m", "llm_prices": prices}
        async with browsing(tmp_path / (prices or "none")[:1], **settings) as (browser, app):
            app.state.metrics.count_reply(0.5, True, Reply("茶", 1_000, 2_000))
            page = text_of(await browser.get("/dashboard", params={"language": language}))
            title = {"zh": "各模型费用", "en": "Cost by model"}[language]
            assert title in page and f"m 1 1,000 2,000 {shown}" in page and hint in page


@each(
    ("asked", "length", "step"),
    [
        ({"span": "24h"}, DAY, 10 * MINUTE),
        ({"since": "2026-11-17T15:30:00Z"}, HOUR, MINUTE),
        ({"since": "2026-11-10T00:00:00Z", "until": "2026-11-12T00:00:00Z"}, 2 * DAY, 30 * MINUTE),
        ({"since": "2025-11-17T16:30:00Z", "until": "2030-01-01T00:00:00Z"}, 365 * DAY, 7 * DAY),
        ({"until": "2026-11-01T00:00:00Z"}, DAY, 10 * MINUTE),
    ],
)
def test_a_time_range_has_a_step_that_a_chart_can_show(
    asked: dict[str, str], length: int, step: int
) -> None:
    """The future has no figures; without a beginning it is a day."""
    chosen = time_range(Fields(QueryParams(asked)), NOW)
    assert (chosen.until - chosen.since, chosen.step) == (length, step)
    assert length / step <= POINTS and dict(chosen.query) == asked


@each(
    "asked",
    [
        {"since": "2026-11-18T00:00:00Z"},
        {"since": "2026-11-02", "until": "2026-11-01"},
        {"since": "1990-01-01"},
        {"since": "昨天"},
        {"span": "2h"},
    ],
)
def test_a_time_range_that_cannot_be_is_refused(asked: dict[str, str]) -> None:
    """It names the field."""
    with pytest.raises(InvalidArgument, match=r"since|span"):
        time_range(Fields(QueryParams(asked)), NOW)


@BOTH
async def test_charts_show_the_range_that_was_chosen(tmp_path: Path, language: str) -> None:
    """One that has ended is not asked for again."""
    async with browsing(tmp_path) as (browser, _):
        yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="minutes")
        week = (datetime.now(UTC) - timedelta(days=7)).isoformat(timespec="minutes")
        open_end = await browser.get("/dashboard", params={"since": week, "language": language})
        assert 'hx-trigger="every 10s"' in open_end.text and not faults_of(open_end.text)
        over = await browser.get("/dashboard", params={"since": week, "until": yesterday})
        assert 'hx-trigger="none"' in over.text
        assert {"zh": "自定义时间范围", "en": "Another time range"}[language] in text_of(over)
        assert (await browser.get("/dashboard", params={"since": "x"})).status_code == 400


@BOTH
async def test_every_page_warns_of_failed_jobs_and_of_a_silent_model(
    tmp_path: Path, language: str
) -> None:
    """Until they are retried, or the model answers again."""
    jobs = {"zh": "有任务失败", "en": "Jobs have failed"}[language]
    silent = {"zh": "大模型没有响应", "en": "The LLM does not answer"}[language]
    async with browsing(tmp_path) as (browser, app):
        pages = ("", "/users", "/memories", "/system", "/nowhere")

        async def warnings() -> set[str]:
            found = set()
            for path in pages:
                page = await browser.get(f"/dashboard{path}", params={"language": language})
                found |= {it for it in (jobs, silent) if it in text_of(page, page.status_code)}
            return found

        assert await warnings() == set()
        app.state.metrics.count_reply(0.5, False, None)
        assert await warnings() == set()  # once is a hiccup
        app.state.metrics.count_reply(0.5, False, None)
        job = Job("j_1", "forget", Scope("default", "王"), 9, state="failed", error="坏 bad")
        await (await app.state.memory.runtime.deps()).store.apply(Batch(jobs=(job,)))
        for path in pages:
            page = await browser.get(f"/dashboard{path}", params={"language": language})
            text = text_of(page, page.status_code)
            assert jobs in text and silent in text and 'role="alert"' in page.text, path
        await send(browser, "/dashboard/jobs/retry")
        app.state.metrics.count_reply(0.5, True, Reply("好"))
        assert await warnings() == set()
