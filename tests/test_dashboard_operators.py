"""Overview, jobs and system in the dashboard: real figures, and what operators can do."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import jwt
import pytest
from fastapi import FastAPI

from kemem.memory import AsyncMemory
from kemem.records import Scope
from kemem.records.batch import Batch, Job
from kemem.serve.cli.language import in_language
from kemem.serve.dashboard import backups, operators
from kemem.serve.dashboard.labels import label
from kemem.serve.telemetry.metrics import MINUTE, Point
from tests.pages import EVIL, browsing, send, text_of
from tests.routes import SECRET

SYSTEM = "/dashboard/system"
BOTH = pytest.mark.parametrize(
    ("language", "user", "words"),
    [("zh", "用户甲", "我不吃辣"), ("en", "u_en", "I live in Berlin")],
    ids=["zh", "en"],
)


@dataclass(frozen=True, slots=True)
class Desk:
    """A browser, the app that answers it, and its memory."""

    browser: httpx.AsyncClient
    app: FastAPI

    @property
    def memory(self) -> AsyncMemory:
        memory: AsyncMemory = self.app.state.memory
        return memory

    async def page(self, path: str, **params: str) -> str:
        return text_of(await self.browser.get(path, params=params))

    async def leave(self, *jobs: Job) -> None:
        """Jobs as earlier work has left them."""
        parts = await self.memory.runtime.deps()
        await parts.store.apply(Batch(jobs=jobs))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A server without a key."""
    async with browsing(tmp_path / "data") as (browser, app):
        yield Desk(browser, app)


def failed(job_id: str, user_id: str = "u", error: str = "the model failed 失败") -> Job:
    """A job that was given up."""
    scope = Scope("default", user_id, "s")
    return Job(job_id, "extract", scope, due=1, attempts=5, state="failed", error=error)


def card(answer: httpx.Response, label: str) -> str:
    """The figure of a card."""
    found = re.search(rf'label">{label}</span><strong>([^<]*)<', answer.text)
    assert found, answer.text
    return found[1]


# Overview


@BOTH
async def test_an_empty_memory_says_how_to_fill_it(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """And shows no figure that is not there."""
    assert "kemem demo" in await desk.page("/dashboard", language=language)
    await desk.memory.add(words, user_id=user)
    assert "kemem demo" not in await desk.page("/dashboard")


@BOTH
async def test_the_overview_counts_what_is_there_and_what_was_done(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """Messages, memories by kind, users, and every operation with its times."""
    await desk.memory.learn("共享 shared", agent_id="a")
    for body in ({"messages": words, "user_id": user}, {"messages": "hi", "user_id": "other"}):
        assert (await desk.browser.post("/v1/memories", json=body)).status_code == 200
    asked = {"query": words, "user_id": user}
    assert (await desk.browser.post("/v1/memories/search", json=asked)).status_code == 200
    shown = await desk.browser.get("/dashboard", params={"language": language})
    zh = language == "zh"
    health = await desk.memory.health()
    assert card(shown, "消息" if zh else "Messages") == str(health.messages) == "2"
    assert card(shown, "记忆" if zh else "Memories") == str(health.notes)
    assert card(shown, "知识" if zh else "Knowledge") == "1"
    assert card(shown, "用户" if zh else "Users") == "2"
    assert card(shown, "请求" if zh else "Requests") == "3"
    assert card(shown, "失败" if zh else "Failures") == "0"
    rows = re.findall(r"<tr><td [^>]*><code>(\w+)</code></td><td [^>]*>(\d+)</td>", shown.text)
    assert rows[:2] == [("add_memories", "2"), ("search_memories", "1")]
    assert user in text_of(shown) and " ms" in text_of(shown)


@BOTH
async def test_figures_are_of_the_time_that_is_asked_for(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """One part of the page is asked for again and again; another time is refused."""
    await desk.memory.add(words, user_id=user)
    for span in ("1h", "24h", "30d"):
        part = await desk.browser.get("/dashboard/figures", params={"span": span})
        assert part.status_code == 200 and "<html" not in part.text
        page = await desk.browser.get("/dashboard", params={"span": span, "language": language})
        assert f'hx-get="/dashboard/figures?span={span}"' in page.text
        assert 'hx-trigger="every 10s"' in page.text
    for wrong in ("2h", EVIL):
        refused = await desk.browser.get("/dashboard", params={"span": wrong})
        assert "1h, 24h, 30d" in text_of(refused, 400)


async def test_what_the_dashboard_itself_asks_for_is_no_request(desk: Desk) -> None:
    """Nor are probes: to look does not change the overview."""
    for path in ("/dashboard", "/healthz", "/metrics", "/dashboard/jobs", "/nowhere"):
        await desk.browser.get(path)
    shown = await desk.browser.get("/dashboard", params={"language": "en"})
    assert card(shown, "Requests") == "0"


def point(ts: int, **operations: tuple[int, float, int]) -> Point:
    """What was done in a minute: how often, in how many seconds each, how many failed."""
    made = Point(ts)
    for name, (times, taken, errors) in operations.items():
        for which in range(times):
            made.operations[name].add(taken, which < errors)
    return made


def test_charts_say_what_the_points_say() -> None:
    """Rates by minute, also of a step that is not over; times in milliseconds; gaps stay gaps."""
    busy = point(0, add_memories=(20, 0.1, 0), search_memories=(10, 0.01, 5), llm=(9, 1.0, 9))
    points = [busy, point(10 * MINUTE, recall=(4, 0.01, 0))]
    drawn = operators.rates(points, 10 * MINUTE, 12 * MINUTE, ("写入", "Searches", "失败"))
    assert drawn["x"] == [0, 600]
    by_label = {line["label"]: line["values"] for line in drawn["series"]}
    assert by_label == {"写入": [2, 0], "Searches": [1, 2], "失败": [0.5, 0]}
    (times,) = operators.latencies(points, ["add_memories"])["series"]
    assert times["values"][0] == pytest.approx(100, rel=0.1) and times["values"][1] is None
    assert list(operators.asked_for(operators.merged(points))) == [
        *("add_memories", "search_memories", "recall")
    ]


def test_hit_rates_and_growth_need_something_to_count() -> None:
    """Caches that nobody asked have no rate, days that nobody watched no point."""
    made = Point(0)
    made.counts.update({"cache.search.hits": 3, "cache.search.misses": 1, "cache.content.hits": 0})
    assert operators.hit_rates(made.counts) == {"search": 0.75, "content": None}
    watched = Point(5_000_000, gauges={"messages": 7, "notes": 2})
    drawn = operators.growth([Point(0), watched], ("消息", "Notes"))
    assert drawn["x"] == [5]
    assert [line["values"] for line in drawn["series"]] == [[7], [2]]


# Jobs


@BOTH
async def test_failed_jobs_are_shown_and_can_be_tried_again(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """One, or all; what they say is shown as text."""
    waits = {"zh": "没有等待的任务", "en": "No jobs are waiting"}[language]
    assert waits in await desk.page("/dashboard/jobs", language=language)
    evil = failed("j_3", f"{user}<b>"[:64], f"{words} {EVIL}")
    halfway = replace(failed("j_2", user), details={"done": 256, "total": 1000})
    await desk.leave(failed("j_1", user), halfway, evil)
    listed = await desk.browser.get("/dashboard/jobs")
    text = text_of(listed)
    assert (
        user in text
        and f"{words} {EVIL}" in text
        and label("job", "extract", language) in text
        and waits not in text
    )
    assert "<img src=x" not in listed.text and f"{user}<b>" not in listed.text
    assert "256 / 1,000" in text
    assert f">{ {'zh': '重试', 'en': 'Retry'}[language] }</button>" in listed.text
    scheduled = {"zh": "重新执行的任务数：", "en": "Jobs scheduled to run again: "}[language]
    assert (await send(desk.browser, "/dashboard/jobs/j_2/retry")).status_code == 303
    assert scheduled + "1" in await desk.page("/dashboard/jobs")
    assert scheduled not in await desk.page("/dashboard/jobs")
    assert [job.state for job in await desk.memory.jobs()].count("failed") == 2
    all_again = await send(desk.browser, "/dashboard/jobs/retry")
    assert all_again.headers["location"] == "/dashboard/jobs"
    assert scheduled + "2" in await desk.page("/dashboard/jobs")
    assert all(job.state == "pending" for job in await desk.memory.jobs())


async def test_a_job_that_is_not_there_cannot_be_tried_again(desk: Desk) -> None:
    """The page says so, and that nothing was scheduled."""
    for job_id in ("j_unknown", "没有", "%00"):
        answer = await send(desk.browser, f"/dashboard/jobs/{job_id}/retry")
        assert answer.status_code in (400, 404), job_id
        assert "kemem_flash" not in desk.browser.cookies


async def test_the_page_of_jobs_counts_those_that_it_does_not_list(desk: Desk) -> None:
    """All that failed are tried again at once."""
    await desk.leave(*(failed(f"j_{n}") for n in range(1_003)))
    listed = await desk.browser.get("/dashboard/jobs", params={"language": "en"})
    assert card(listed, "Failed") == "1,003" and "Shown: 200 of 1,003." in text_of(listed)
    last = await desk.browser.get("/dashboard/jobs", params={"cursor": "1001"})
    assert last.text.count('/retry"') == 4  # a button for each of three, and one for all
    assert ["j_999" in last.text, "j_1" in last.text] == [True, False]  # ids in their order
    await send(desk.browser, "/dashboard/jobs/retry")
    assert "run again: 1003" in await desk.page("/dashboard/jobs")


# System


@BOTH
async def test_settings_are_shown_without_secrets(
    tmp_path: Path, language: str, user: str, words: str
) -> None:
    """With where they came from; versions and files beside them."""
    secret = "s3cret-秘密-of-thirty-two-bytes-and-more"
    given = {"jwt_secret": secret, "neo4j_user": EVIL}
    async with browsing(tmp_path / "data", api_key=secret, **given) as (browser, app):
        app.state.flags = frozenset(["data_dir"])
        bearer = httpx.Headers([(b"authorization", b"Bearer " + secret.encode())])
        page = await browser.get(SYSTEM, params={"language": language}, headers=bearer)
        text = text_of(page)
        assert secret not in page.text and "***" in text and EVIL in text
        flag, default = {"zh": ("命令行", "默认"), "en": ("flag", "default")}[language]
        assert re.search(rf"data_dir \S+ {flag}", text)
        assert f"max_body_bytes 1048576 {default}" in text
        assert {"zh": "模式版本", "en": "Schema"}[language] in text and "kemem.db" in text
        assert "KeMem 0." in text


@BOTH
async def test_a_backup_is_restored_only_if_its_name_is_typed(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """Then everything is as it was; no other file can be named."""
    await desk.memory.add(words, user_id=user)
    made = await send(desk.browser, f"{SYSTEM}/backup")
    assert made.headers["location"] == SYSTEM
    (backup,) = backups.backups_in(desk.memory.places.backups, 9)
    listed = await desk.page(SYSTEM, language=language)
    written = {"zh": f"备份 {backup.name} 已完成", "en": f"The backup {backup.name} is written"}
    assert written[language] in listed
    assert {"zh": "立即备份", "en": "Back up now"}[language] in listed
    await desk.memory.delete_all(user_id=user)
    asked = await desk.page(f"{SYSTEM}/restore", name=backup.name)
    assert backup.name in asked
    for typed in ("", "yes", backup.name[:-1], EVIL):
        sent = {"name": backup.name, "typed": typed}
        assert (await send(desk.browser, f"{SYSTEM}/restore", **sent)).status_code == 400
    assert (await desk.memory.health()).messages == 0
    sent = {"name": backup.name, "typed": f" {backup.name} "}
    assert (await send(desk.browser, f"{SYSTEM}/restore", **sent)).status_code == 303
    assert (await desk.memory.health()).messages == 1
    for other in ("nowhere", "../kemem.db", "/etc/passwd", "", "没有.json"):
        assert (await desk.browser.get(f"{SYSTEM}/restore", params={"name": other})).is_client_error
        sent = {"name": other, "typed": other}
        assert (await send(desk.browser, f"{SYSTEM}/restore", **sent)).is_client_error


@BOTH
async def test_a_backup_is_downloaded_and_deleted(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """What is downloaded can be restored; a deletion asks first; no other file can be named."""
    await desk.memory.add(words, user_id=user)
    await send(desk.browser, f"{SYSTEM}/backup")
    (backup,) = backups.backups_in(desk.memory.places.backups, 9)
    named = {"name": backup.name}
    listed = await desk.browser.get(SYSTEM)
    assert f"{SYSTEM}/backup?name={backup.name}" in listed.text
    file = await desk.browser.get(f"{SYSTEM}/backup", params=named)
    assert file.headers["content-disposition"] == f'attachment; filename="{backup.name}"'
    assert file.content == (desk.memory.places.backups / backup.name).read_bytes()
    assert {"zh": "取消", "en": "Cancel"}[language] in await desk.page(
        f"{SYSTEM}/backup/delete", **named, language=language
    )
    (desk.memory.places.backups.parent / "secret").write_text("秘密")
    for other in ("../secret", "..", "/etc/passwd", "", "没有.json", ".", "a/../../secret"):
        for path in ("/backup", "/backup/delete"):
            answer = await desk.browser.get(SYSTEM + path, params={"name": other})
            assert answer.is_client_error and "秘密" not in answer.text, other
        sent = await send(desk.browser, f"{SYSTEM}/backup/delete", name=other)
        assert sent.is_client_error, other
    assert (await desk.browser.post(f"{SYSTEM}/backup/delete", data=named)).status_code == 403
    assert (await send(desk.browser, f"{SYSTEM}/backup/delete", **named)).status_code == 303
    gone = {"zh": f"备份 {backup.name} 已删除", "en": f"The backup {backup.name} is deleted"}
    assert gone[language] in await desk.page(SYSTEM)
    assert backups.backups_in(desk.memory.places.backups, 9) == []


async def test_only_whole_files_are_backups(tmp_path: Path) -> None:
    """No folder, no link, nothing half written; the newest come first, and a few of them."""
    (tmp_path / "文件夹").mkdir()
    (tmp_path / ".memory_backup_x.part").write_text("half")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("a", "b"):
        (tmp_path / name).write_text("备份")
    assert sorted(it.name for it in backups.backups_in(tmp_path, 9)) == ["a", "b"]
    assert len(backups.backups_in(tmp_path, 1)) == 1
    assert backups.backups_in(tmp_path / "nowhere", 9) == []
    (tmp_path / "文件夹" / "big").write_bytes(b"x" * 1000)
    assert (backups.files_in(tmp_path)[0].name, backups.files_in(tmp_path)[0].size) == (
        *("文件夹/", 1000),
    )


@BOTH
async def test_a_token_is_made_for_one_user_and_shown_once(
    tmp_path: Path, language: str, user: str, words: str
) -> None:
    """It reaches that user's data and no page; it ends; the claim is there only if asked for."""
    async with browsing(tmp_path / "data", api_key="the key", jwt_secret=SECRET) as (browser, app):
        await app.state.memory.add(words, user_id=user)
        browser.headers["Authorization"] = "Bearer the key"
        for asked, granted in (({}, None), ({"sensitive": "true"}, True)):
            given = {"user_id": user, "days": "2", **asked}
            page = await send(browser, f"{SYSTEM}/token", **given)
            found = re.search(r"<pre[^>]*>([^<]+)</pre>", page.text)
            assert found, page.text
            claims = jwt.decode(found[1], SECRET, algorithms=["HS256"])
            assert (claims["sub"], claims.get("sensitive")) == (user, granted)
            bound = {"Authorization": f"Bearer {found[1]}"}
            own = await browser.get("/v1/memories", params={"user_id": user}, headers=bound)
            assert own.status_code == 200 and words[-3:] in own.text
            others = {"user_id": "someone"}
            answer = await browser.get("/v1/memories", params=others, headers=bound)
            assert answer.status_code == 404
            assert (await browser.get(SYSTEM, headers=bound)).status_code == 403
            assert found[1] not in (await browser.get(SYSTEM)).text
        for wrong in ({"user_id": ""}, {"days": "0"}, {"days": "367"}, {"days": EVIL}):
            given = {"user_id": user, **wrong}
            answer = await send(browser, f"{SYSTEM}/token", **given)
            assert answer.status_code == 400, wrong


async def test_without_a_secret_there_are_no_tokens(desk: Desk) -> None:
    """The page says what to set."""
    assert "KEMEM_JWT_SECRET" in await desk.page(SYSTEM)
    answer = await send(desk.browser, f"{SYSTEM}/token", user_id="用户 u")
    assert "KEMEM_JWT_SECRET" in text_of(answer, 400)


@BOTH
async def test_knowledge_can_be_downloaded_and_checks_be_run(
    desk: Desk, language: str, user: str, words: str
) -> None:
    """As the command line does both."""
    await desk.memory.learn(words, agent_id="a")
    file = await desk.browser.get(f"{SYSTEM}/dump", params={"agent_id": "a"})
    assert "attachment" in file.headers["content-disposition"]
    assert [entry["content"] for entry in file.json()["kb"].values()] == [words]
    assert (await desk.browser.get(f"{SYSTEM}/dump")).json() == {"kb": {}, "workspace": {}}
    title = {"zh": "检查", "en": "Checks"}[language]
    checks = await desk.page(f"{SYSTEM}/checks", language=language)
    assert title in checks and label("check", "embedder", language) in checks
    assert in_language(language, "none: rules extract notes") in checks
