"""The words of the dashboard: messages after actions, names of stored words, times, empty pages."""

import os
import re
import time
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest

from kemem.facts.language import language as rules_of
from kemem.records import NOTE_KINDS, ROLES, Change
from kemem.records.batch import Job, JobKind
from kemem.serve.dashboard import flash
from kemem.serve.dashboard.display import day, when
from kemem.serve.dashboard.labels import label, labels
from tests.pages import browsing, send, text_of

BOTH = pytest.mark.parametrize("language", ["zh", "en"])


def known_words() -> dict[str, set[str]]:
    """What the code itself stores, by the groups of labels.toml."""
    rules = [rule for code in ("zh", "en") for of in rules_of(code).rules.values() for rule in of]
    roles = [role for code in ("zh", "en") for role in rules_of(code).roles.values()]
    topics = tomllib.loads(files("kemem.search").joinpath("profile.toml").read_text("utf-8"))
    relations = {part.partition(":")[0] for rule in rules for part in rule.relations}
    return {
        "kind": {*NOTE_KINDS, "message"},
        "role": set(ROLES),
        "type": {"general", *(rule.memory_type for rule in rules)},
        "relation": relations | {role.relation.strip("<=") for role in roles} - {"-"},
        "entity": {role.kind for role in roles},
        "job": set(get_args(JobKind)),
        "event": set(get_args(Change.__annotations__["event"])),
        "profile": {it["name"] for it in topics["groups"]},
        "state": set(get_args(Job.__annotations__["state"])),
    }


@pytest.mark.parametrize("group", sorted(known_words()))
def test_every_word_that_is_stored_has_a_name_in_both_languages(group: str) -> None:
    """What a user's own model calls a thing is shown as it is."""
    assert known_words()[group] <= labels()[group].keys()
    assert all(
        any("一" <= char <= "鿿" for char in label(group, it, "zh")) for it in labels()[group]
    )
    assert label("type", "favourite_tea", "en") == "favourite tea"


@pytest.mark.parametrize("message", sorted(flash.MESSAGES))
def test_a_message_survives_its_cookie(message: str) -> None:
    """In both languages, whatever its values are."""
    values = {"id": '王 "quoted"; x=1', "name": "文件.json", "count": 3}
    cookie = flash.encode(message, **values, status=204, error="answered 500")
    for index, language in enumerate(("en", "zh")):
        values |= {"status": 204, "error": ("answered 500", "返回 500")[index]}
        text = flash.MESSAGES[message][index].format(**values)
        assert flash.decode(cookie, language) == (text, message == "webhook_failed")


@pytest.mark.parametrize(
    "cookie", [None, "", "x", "%5B1%5D", "[]", '["unknown", {}]', "7", "[[], {}]"]
)
def test_a_cookie_that_is_not_ours_shows_nothing(cookie: str | None) -> None:
    """Nor does one without the values of its message."""
    assert flash.decode(cookie, "en") is None
    assert flash.decode('["configured", {}]', "zh") is None


@BOTH
async def test_a_change_is_said_once_on_the_next_page(tmp_path: Path, language: str) -> None:
    """A part of a page that htmx loads meanwhile does not use it up."""
    async with browsing(tmp_path) as (browser, app):
        await app.state.memory.add("我喜欢茶 tea", user_id="王", infer=False)
        address = "/dashboard/conversations/configure"
        saved = await send(browser, address, level="user", id="王", name="<b>王芳", disabled="yes")
        assert saved.status_code == 303
        where = saved.headers["location"] + f"&language={language}"
        await browser.get("/dashboard/figures", headers={"HX-Request": "true"})
        shown = await browser.get(where)
        disabled = {"zh": "王 已停用", "en": "王 is disabled"}[language]
        assert disabled in text_of(shown) and "autofocus" in shown.text
        assert disabled not in text_of(await browser.get(where))


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The process in another time zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "shown", "date"),
    [
        ("UTC", "2026-11-17 16:30:00 UTC", "2026-11-17"),
        ("Asia/Shanghai", "2026-11-18 00:30:00 UTC+8", "2026-11-18"),
        ("America/St_Johns", "2026-11-17 13:00:00 UTC-3:30", "2026-11-17"),
    ],
    indirect=["zone"],
)
def test_a_time_is_shown_with_its_zone(zone: None, shown: str, date: str) -> None:
    """That of the server, for a day as well."""
    at = 1_794_933_000_000_000
    assert re.sub("<[^>]*>", "", when(at)) == shown
    assert day(at) == date


@BOTH
@pytest.mark.parametrize("view", ["memories", "conversations", "graph", "traces", "playground"])
async def test_an_unknown_user_is_named_and_similar_ones_are_offered(
    tmp_path: Path, language: str, view: str
) -> None:
    """By a part of their id or by a slip of the pen; a known one is not called unknown."""
    async with browsing(tmp_path) as (browser, app):
        for user_id in ("alice_chen", "王小明", "zoe"):
            await app.state.memory.add("我喜欢茶 tea", user_id=user_id, infer=False)
        path, query = f"/dashboard/{view}", {"language": language, "query": "茶"}
        said = {"zh": "没有用户“{}”", "en": "There is no user “{}”"}[language]
        for asked, meant in (("alise_chen", "alice_chen"), ("小明", "王小明")):
            page = await browser.get(path, params={**query, "user_id": asked})
            assert said.format(asked) in text_of(page) and f">{meant}</a>" in page.text
            assert ">zoe</a>" not in page.text
        known = await browser.get(path, params={**query, "user_id": "zoe"})
        assert said.format("zoe") not in text_of(known)
        if view != "traces":
            query |= {"user_id": "zoe", "agent_id": "nobody's"}
            said = {"zh": "没有智能体", "en": "There is no agent"}[language]
            assert said in text_of(await browser.get(path, params=query))


@BOTH
async def test_the_overview_says_that_no_model_is_configured(tmp_path: Path, language: str) -> None:
    """And what to set."""
    async with browsing(tmp_path) as (browser, _):
        page = text_of(await browser.get("/dashboard", params={"language": language}))
        assert {"zh": "未配置大模型", "en": "No language model is configured"}[language] in page
        assert "KEMEM_LLM_BASE_URL" in page
