"""Forms and addresses of the dashboard: what is refused keeps what was typed, what is wrong is a
page in the reader's language, and nothing goes for good without a question.
"""

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI

from tests.pages import browsing, send, text_of

BOTH = pytest.mark.parametrize("language", ["zh", "en"])
SENTENCE = re.compile(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}")  # of English
WRONG = [
    *("?span=abc", "?since=nonsense", "?since=2030-01-01T00:00&until=2029-01-01T00:00"),
    *("/users?cursor=abc", "/user", "/memories?cursor=abc", "/memories?user_id=mia&cursor=abc"),
    *("/memories?user_id=mia&as_of=nonsense", "/memories?user_id=mia&kind=abc", "/memories/none"),
    *("/playground?query=a", "/playground?query=a&user_id=mia&limit=abc"),
    *(f"/playground?query=a&user_id=mia&{it}" for it in ("threshold=7", "filters=%5B1%5D")),
    *(f"/playground?query=a&user_id=mia&{it}" for it in ("filters=%7Bbad", "mode=zz", "kinds=zz")),
    *("/graph?user_id=mia&as_of=nonsense", "/graph?user_id=mia&hops=9", "/graph?cursor=abc"),
    *("/conversations?cursor=abc", "/conversations/session", "/conversations/message"),
    *("/conversations/session?session_id=zz", "/conversations/message?message_id=z&user_id=mia"),
    *("/conversations/message?message_id=z&user_id=mia&beside=abc", "/traces?cursor=abc"),
    *("/traces/zz", "/jobs?cursor=abc", "/jobs?cursor=0", "/audit?since=nonsense"),
    *("/audit?cursor=abc", "/audit?since=2030-01-01T00:00&until=2029-01-01T00:00"),
    *("/audit/export?format=xml", "/privacy/export", "/events?of=zz", "/system/backup"),
    *("/system/restore?name=zz", "/system/backup/delete?name=..", "/ontology/remove?name=zz"),
    *("/ontology/remove?group=zz", "/keys/zz/revoke", "/webhooks/zz/delete", "/nowhere"),
    *("/ontology?name=zz", "/ontology?group=zz&name=zz", "/system/dump?agent_id=nobody"),
    *("?project=unknown", "/users?project=unknown", "/static/none.js"),
]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, FastAPI]]:
    """A browser at a server with a user and a project."""
    async with browsing(tmp_path / "data", projects={"acme": {}}) as (browser, app):
        await app.state.memory.add("我住在杭州 I live in Hangzhou", user_id="mia", session_id="s")
        yield browser, app


@BOTH
async def test_a_wrong_address_is_a_page_in_the_language_of_the_reader(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """It says what is wrong and leads back; a program that asks the same gets no page."""
    browser, _ = desk
    await browser.get("/dashboard/nowhere", params={"language": language})
    for path in WRONG:
        answer = await browser.get(f"/dashboard{path}")
        assert answer.status_code in (400, 404), path
        assert answer.headers["content-type"].startswith("text/html"), path
        reasons = re.findall(r'role="alert"[^>]*>(.*?)</(?:section|small|p)>', answer.text, re.S)
        reason = unescape(re.sub("<[^>]*>", " ", " ".join(reasons)))
        assert reason.strip() and "Traceback" not in answer.text, path
        assert 'href="/dashboard"' in answer.text, path
        assert bool(SENTENCE.search(reason)) <= (language == "en"), (path, reason)


IGNORED = {"zh": "本页没有以下参数，已忽略：", "en": "This page has no such parameter"}


@BOTH
async def test_a_parameter_that_a_page_does_not_have_is_said(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """The page is shown all the same; one that has the parameter says what it must be."""
    browser, _ = desk
    await browser.get("/dashboard/nowhere", params={"language": language})
    for path in ("", "/users", "/memories?user_id=mia", "/conversations", "/traces", "/jobs"):
        page = text_of(await browser.get(f"/dashboard{path}{'&' if '?' in path else '?'}limit=abc"))
        assert IGNORED[language] in page and "limit" in page, path


async def test_no_link_or_form_has_a_parameter_that_its_page_ignores(
    desk: tuple[httpx.AsyncClient, FastAPI],
) -> None:
    """From page to page, and each form with all of its fields."""
    browser, app = desk
    await app.state.memory.backup()
    await app.state.memory.ontology.set({"notes": {"hobby": {"description": "What they like."}}})
    ahead, seen = ["/dashboard?language=en"], set[str]()
    while ahead:
        path = ahead.pop(0)
        form = re.sub("(?<==)[^&]*", "", path)  # one of each kind is enough
        if form in seen:
            continue
        seen.add(form)
        answer = await browser.get(path)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        assert IGNORED["en"] not in answer.text, path
        links = re.findall(r'(?:href|hx-get)="(/dashboard[^"#]*)"', answer.text)
        for tag, inner in re.findall(r"<form([^>]*)>(.*?)</form>", answer.text, re.S):
            action = re.search(r'action="([^"]*)"', tag)
            names = re.findall(r'<(?:input|select)[^>]* name="(\w+)"', inner)
            query = urlencode(dict.fromkeys(names, ""))
            links += [f"{action[1] if action else path.partition('?')[0]}?{query}"]
            links = links[: -1 if "form_token" in names else None]
        ahead += [unescape(it) for it in links if not re.search("static/|language=|theme=", it)]
    assert len(seen) > 40


@BOTH
async def test_a_page_beyond_the_last_leads_to_the_first(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """It does not say that there is nothing at all; nor is nothing downloaded of nobody."""
    browser, _ = desk
    for view in ("jobs", "traces"):
        params = {"cursor": "5000", "language": language}
        page = text_of(await browser.get(f"/dashboard/{view}", params=params))
        assert {"zh": "回到第一页", "en": "To the first page"}[language] in page
    nobody = await browser.get("/dashboard/privacy/export", params={"user_id": "nobody"})
    assert {"zh": "没有用户", "en": "There is no user"}[language] in text_of(nobody, 404)


@BOTH
async def test_an_unknown_project_is_named_and_changes_nothing(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """The next page shows the memory that was chosen before."""
    browser, _ = desk
    await browser.get("/dashboard/users", params={"language": language, "project": "acme"})
    missing = await browser.get("/dashboard", params={"project": "elsewhere"})
    words = {"zh": "没有项目 'elsewhere'", "en": "there is no project 'elsewhere'"}[language]
    assert words in text_of(missing, 404) and "acme" in missing.text
    assert "mia" not in text_of(await browser.get("/dashboard/users"))
    plain = await browser.get("/dashboard?project=elsewhere", headers={"Accept": "*/*"})
    assert plain.json()["error"]["code"] == "NOT_FOUND"


async def test_a_browser_that_asks_too_often_gets_a_page(tmp_path: Path) -> None:
    async with browsing(tmp_path, address_rate_limit=1) as (browser, _):
        pages = [await browser.get("/dashboard/nowhere") for _ in range(4)]
        page = pages[-1]
        assert "Too many requests" in text_of(page, 429) and int(page.headers["retry-after"]) > 0


REFUSED = {  # where a form goes: what is typed, the field that is refused, its English reason
    "keys": ({"name": "机器人 robot", "role": "user"}, "user_id", "needs a user_id"),
    "webhooks": ({"url": "ftp://x", "agent_id": "厨师 cook"}, "url", "url must"),
    "ontology": (
        {"group": "entities", "name": "Not Good", "description": "设备 device"},
        *("name", "have names of"),
    ),
    "imports": ({"user_id": "林 lin"}, "file", "choose a file"),
    "conversations/configure": (
        {"level": "user", "id": "mia", "name": "小美 May", "config": "{bad"},
        *("config", "must be JSON"),
    ),
    "system/token": ({"user_id": "林 lin", "days": "999"}, "days", "an integer from 1 to 366"),
    "privacy": ({"user_id": "mia", "typed": "米娅 maya"}, "typed", "type 'mia' to confirm"),
}


@BOTH
@pytest.mark.parametrize("form", REFUSED)
async def test_a_refused_form_keeps_what_was_typed_and_says_why_beside_the_field(
    tmp_path: Path, language: str, form: str
) -> None:
    """Nothing is changed; who cannot see the colour hears which field it is."""
    typed, field, reason = REFUSED[form]
    async with browsing(tmp_path, jwt_secret="s" * 32, api_key="k" * 20) as (browser, app):
        browser.headers["Authorization"] = "Bearer " + "k" * 20
        await app.state.memory.add("我住在杭州", user_id="mia", session_id="s")
        await browser.get("/dashboard", params={"language": language})
        page = await send(browser, f"/dashboard/{form}", **typed)
        words = text_of(page, 400)
        for name, value in typed.items():
            if name not in ("level", "id"):
                assert value in unescape(page.text), name
        assert f'id="refused-{field}"' in page.text and 'aria-invalid="true"' in page.text
        assert (reason in words) == (language == "en"), words
        assert (await app.state.memory.users()).items[0].name is None


@BOTH
async def test_a_backup_is_restored_only_by_its_name(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """A slip is said beside the field, with what was typed."""
    browser, app = desk
    name = (await app.state.memory.backup()).path.name
    await browser.get("/dashboard/nowhere", params={"language": language})
    page = await send(browser, "/dashboard/system/restore", name=name, typed="其他 other")
    said = {"zh": f"请输入 '{name}' 以确认", "en": f"type '{name}' to confirm"}[language]
    assert said in text_of(page, 400) and 'value="其他 other"' in page.text
    done = await send(browser, "/dashboard/system/restore", name=name, typed=f" {name} ")
    assert done.status_code == 303


@BOTH
async def test_nothing_goes_for_good_without_a_question(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """A type, a webhook, a backup, a memory and a key: the list leads to a page that names it."""
    browser, app = desk
    memory = app.state.memory
    await memory.ontology.set({"notes": {"bug_report": {"description": "故障 a fault"}}})
    webhook = await app.state.webhooks.create("https://example.com/钩", ["memory.added"])
    backup = (await memory.backup()).path.name
    (note,) = [it for it in await memory.get_all("mia") if it.kind != "message"]
    await browser.get("/dashboard/nowhere", params={"language": language})
    lists = {
        "/dashboard/ontology": ("bug_report", "type_removed"),
        "/dashboard/webhooks": (webhook.url, "webhook_deleted"),
        "/dashboard/system": (backup, "backup_deleted"),
        f"/dashboard/memories/{note.id}?user_id=mia": (note.memory, "memory_deleted"),
    }
    verb = {"zh": "删除|移除", "en": "Delete|Remove"}[language]
    for path, (name, message) in lists.items():
        listed = await browser.get(path)
        links = re.findall(rf'href="([^"]+)"[^>]*>(?:{verb}) ?…', listed.text)
        asked = await browser.get(unescape(links[0]))
        assert name in text_of(asked) and 'class="danger"' in asked.text, path
        assert {"zh": "取消", "en": "Cancel"}[language] in text_of(asked)
        main = asked.text[asked.text.index("<main") :]
        action = unescape(re.findall(r'<form class="row" method="post" action="([^"]+)"', main)[0])
        hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', main)
        values = {it: unescape(value) for it, value in hidden}
        gone = await browser.post(action, data=values)
        assert gone.status_code == 303 and message in gone.headers["set-cookie"], path
    key, text = await app.state.keys.create("管理 admin", "admin")
    browser.headers["Authorization"] = f"Bearer {text}"
    listed = await browser.get("/dashboard/keys")
    asked = await browser.get(f"/dashboard/keys/{key.key_id}/revoke")
    assert f'href="/dashboard/keys/{key.key_id}/revoke"' in listed.text
    assert "管理 admin" in text_of(asked) and key.last_four in asked.text
    assert await app.state.keys.list()  # to ask is not to do


@BOTH
async def test_the_system_page_counts_the_keys_that_there_are(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """Without any it says that the machine is open; with one it does not say that none is set."""
    browser, app = desk
    page = await browser.get("/dashboard/system", params={"language": language})
    opened = {"zh": "无 本机可执行一切操作", "en": "none this machine may do everything"}[language]
    assert opened in text_of(page)
    _, text = await app.state.keys.create("first", "admin")
    browser.headers["Authorization"] = f"Bearer {text}"
    page = await browser.get("/dashboard/system")
    known = {"zh": "API 密钥 1 其中管理密钥 1 个", "en": "API keys 1 1 of them admin"}[language]
    assert known in text_of(page) and opened not in text_of(page)


@BOTH
async def test_what_is_kept_of_a_user_has_one_row_for_each_kind(
    desk: tuple[httpx.AsyncClient, FastAPI], language: str
) -> None:
    """A vote is kept twice, for the page of quality and for searches: each is named for its use."""
    browser, app = desk
    (note,) = [it for it in await app.state.memory.get_all("mia") if it.kind != "message"]
    vote = {"query": "住 live", "memory_id": note.id, "user_id": "mia", "vote": "up", "rank": "1"}
    assert (await send(browser, "/dashboard/quality/votes", **vote)).status_code == 303
    page = await browser.get("/dashboard/privacy", params={"user_id": "mia", "language": language})
    rows = re.findall(r"<tr><td[^>]*>([^<]+)</td>", page.text)
    assert len(rows) == len(set(rows)) and "feedback" not in rows
    assert {"zh": "检索所用的评价", "en": "Votes that change searches"}[language] in rows
    nobody = await browser.get("/dashboard/privacy", params={"user_id": "nobody"})
    assert {"zh": "没有用户“nobody”", "en": "There is no user “nobody”"}[language] in text_of(
        nobody
    )


@BOTH
async def test_an_empty_memory_says_how_to_begin(tmp_path: Path, language: str) -> None:
    """With commands that fit this server; they are gone as soon as something is remembered."""
    home = tmp_path / "my data"
    async with browsing(home) as (browser, _):
        page = await browser.get("/dashboard", params={"language": language})
        words = text_of(page)
        assert {"zh": "写入第一条消息", "en": "Add a first message"}[language] in words
        assert "curl http://127.0.0.1:8420/v1/memories" in words and "X-API-Key" not in words
        assert f"kemem demo --data-dir '{home}'" in words and "memory.add(" in words
        for view in ("users", "memories", "conversations", "graph", "playground"):
            assert 'href="/dashboard#start"' in (await browser.get(f"/dashboard/{view}")).text, view
        sent = {
            "user_id": "mia",
            "messages": {"zh": "我搬到上海了", "en": "I moved to Porto"}[language],
        }
        assert (await browser.post("/v1/memories", json=sent)).status_code == 200
        assert 'id="start"' not in (await browser.get("/dashboard?span=24h")).text
