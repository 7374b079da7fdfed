"""The audit log: who did what to whose data, through every interface, and never what was said."""

import asyncio
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.errors import InvalidArgument, Unavailable
from kemem.memory import AsyncMemory
from kemem.ports.lines import AUDIT
from kemem.records import Micros
from kemem.records.audit import AuditEvent
from kemem.serve.dashboard.labels import labels
from kemem.serve.http.auth import is_write
from kemem.serve.telemetry.audit import (
    AuditFilter,
    AuditLog,
    exported,
    operation_of,
    operations,
    read_events,
)
from kemem.settings import Settings, load
from tests.command import kemem
from tests.fixtures import EXAMPLES
from tests.pages import browsing, send, text_of
from tests.routes import APP, KEY, ROUTES, SECRET, keyed, token
from tests.server import LocalServer, local_server, refusal, running_server

DAY: Micros = 24 * 3_600_000_000
WORDS = [("我对花生过敏", "花生"), ("I am allergic to peanuts", "peanuts")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app with a key in its settings."""
    data = tmp_path_factory.mktemp("audit") / "data"
    given: dict[str, Any] = {"api_key": KEY, "jwt_secret": SECRET}
    with local_server(data, **given) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: LocalServer) -> Iterator[httpx.Client]:
    with keyed(server) as client:
        yield client


def make(admin: httpx.Client, name: str, role: str, **given: Any) -> Any:
    """A new key, with its text."""
    return admin.post("/v1/keys", json={"name": name, "role": role, **given}).json()


def lines(admin: httpx.Client, **asked: Any) -> list[Any]:
    """Lines of the log, newest first."""
    answer = admin.get("/v1/audit", params=asked)
    assert answer.status_code == 200, answer.text
    items: list[Any] = answer.json()["items"]
    return items


@pytest.mark.parametrize(("words", "query"), WORDS)
def test_a_line_says_who_did_what_to_whose_data(
    server: LocalServer, admin: httpx.Client, user: str, words: str, query: str
) -> None:
    """By name and id of the key, with the ids of what was written; words are nowhere."""
    key = make(admin, f"后端 {user}", "service")
    with server.client(key["key"]) as client:
        body = {"messages": words, "user_id": user, "agent_id": "shop", "infer": False}
        added = client.post("/v1/memories", json=body).json()
        note = added["results"][0]["id"]
        client.post("/v1/memories/search", json={"query": query, "user_id": user})
        path = f"/v1/memories/{note}?user_id={user}"
        assert client.patch(path, json={"content": f"{words}!"}).is_success
        assert client.delete("/v1/memories/n_none", params={"user_id": user}).status_code == 404
        assert client.delete(path).is_success
        client.delete("/v1/memories", params={"user_id": user})
    found = lines(admin, user_id=user)
    assert [(it["operation"], it["result"], it["error"]) for it in found] == [
        ("memory.delete_all", "ok", None),
        ("memory.delete", "ok", None),
        ("memory.delete", "refused", "NOT_FOUND"),
        ("memory.update", "ok", None),
        ("memory.add", "ok", None),
    ]
    add = found[-1]
    assert add["record_ids"] == [note, *added["message_ids"]] and add["count"] == 2
    assert add["agent_id"] == "shop" and add["interface"] == "http" and add["address"]
    for line in found:
        actor = {name: line[f"actor_{name}"] for name in ("type", "id", "name")}
        assert actor == {"type": "key", "id": key["id"], "name": f"后端 {user}"}
    assert found[1]["record_ids"][0] == note
    shown = json.dumps(found, ensure_ascii=False)
    assert words not in shown and query not in shown and key["key"] not in shown


def test_a_replayed_response_is_no_second_line(admin: httpx.Client, user: str) -> None:
    """It wrote nothing."""
    body = {"messages": "茶 tea", "user_id": user, "infer": False}
    for _ in range(2):
        assert admin.post("/v1/memories", json=body, headers={"Idempotency-Key": user}).is_success
    assert len(lines(admin, user_id=user)) == 1


def test_only_operators_read_it(server: LocalServer, admin: httpx.Client, user: str) -> None:
    """A key of a user, of a service and a token are refused, and that is recorded."""
    user_key, service = make(admin, user, "user", user_id=user), make(admin, user, "service")
    for credential in (user_key["key"], service["key"], token(user)):
        with server.client(credential) as client:
            assert refusal(client.get("/v1/audit")) == (403, "PERMISSION_DENIED")
            assert refusal(client.get("/v1/audit", params={"user_id": user}))[0] == 403
    found = lines(admin, operation="audit.read", actor=user)
    assert {(it["actor_type"], it["result"]) for it in found} == {
        ("key", "refused"),
        ("token", "refused"),
    }


def test_erasing_a_user_leaves_its_lines(admin: httpx.Client, user: str) -> None:
    """They prove it; the receipt and the inventory do not count them as the user's data."""
    admin.post("/v1/memories", json={"messages": "茶 tea", "user_id": user, "infer": False})
    assert admin.get(f"/v1/users/{user}/export").is_success
    receipt = admin.delete(f"/v1/users/{user}").json()
    assert receipt["remaining"] == {} and AUDIT not in receipt["erased"]
    assert any(it.startswith("audit log") for it in receipt["elsewhere"])
    found = lines(admin, user_id=user)
    assert [it["operation"] for it in found] == ["user.erase", "user.export", "memory.add"]
    assert found[0]["count"] == 2
    assert admin.get(f"/v1/users/{user}/inventory").json()["journal"] == {}


def test_reads_across_users_and_of_the_sensitive_are_recorded(
    server: LocalServer, admin: httpx.Client, user: str
) -> None:
    """Other reads are not, by default."""
    admin.get("/v1/users"), admin.get("/v1/agents"), admin.get("/v1/keys")
    admin.get("/v1/memories", params={"user_id": user})
    for sensitive in (False, True):
        with server.client(token(user, sensitive=sensitive)) as client:
            assert client.get("/v1/memories").is_success
    found = [it["operation"] for it in lines(admin, limit=4)]
    assert found == ["memory.list", "key.list", "agent.list", "user.list"]
    (read,) = lines(admin, operation="memory.list", user_id=user)
    assert read["actor_type"] == "token" and read["actor_id"] == user


def test_a_wrong_credential_is_recorded(server: LocalServer, admin: httpx.Client) -> None:
    """Without what was sent; a request without any is not."""
    before = len(lines(admin, operation="auth"))
    with server.client("kemem_wrong") as guessing, server.client() as nobody:
        assert guessing.get("/v1/memories").status_code == 401
        assert nobody.get("/v1/memories").status_code == 401
    found = lines(admin, operation="auth")
    assert len(found) == before + 1 and found[0]["error"] == "UNAUTHENTICATED"
    assert found[0]["operation"] == "auth.credential" and found[0]["actor_type"] == "anonymous"
    assert "wrong" not in json.dumps(found)


def test_a_read_only_key_is_refused_by_the_name_of_what_it_wanted(
    server: LocalServer, admin: httpx.Client, user: str
) -> None:
    """Although the request never came to its route."""
    key = make(admin, user, "service", read_only=True)
    with server.client(key["key"]) as client:
        assert client.delete(f"/v1/users/{user}").status_code == 403
    (line,) = lines(admin, actor=key["id"])
    assert (line["operation"], line["result"]) == ("user.erase", "refused")


def test_tools_and_methods_are_recorded(
    server: LocalServer, admin: httpx.Client, user: str
) -> None:
    """Of MCP and JSON-RPC, each by its own name; words are nowhere."""
    headers = {"X-KeMem-User": user, "Accept": "application/json, text/event-stream"}
    calls = [("add_memory", {"content": "我喜欢茶 tea"}), ("forget_memory", {"memory_key": "n_x"})]
    for name, arguments in [*calls, ("search_memories", {"query": "茶"})]:
        call = {"name": name, "arguments": arguments}
        body: Any = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        assert admin.post("/mcp", json=body, headers=headers).is_success
    for method, entry in (("add", {"content": "门店", "summary": "s"}), ("get_status", {})):
        body = {"jsonrpc": "2.0", "id": 1, "method": f"memory_{method}", "params": entry}
        assert admin.post("/rpc", json=body).is_success
    found = lines(admin, user_id=user)
    assert [(it["operation"], it["interface"], it["result"]) for it in found] == [
        ("memory.delete", "mcp", "refused"),
        ("memory.add", "mcp", "ok"),
    ]
    rpc = [it for it in lines(admin, operation="memory") if it["interface"] == "rpc"]
    assert [it["operation"] for it in rpc] == ["memory.add"]
    assert "茶" not in json.dumps(found, ensure_ascii=False)


def test_pages_lose_nothing_and_filters_fit(admin: httpx.Client, user: str) -> None:
    """Small pages together are the large one; a wrong cursor, time or limit is refused."""
    for number in range(5):
        body = {"messages": f"{number}", "user_id": user, "infer": False}
        admin.post("/v1/memories", json=body)
    whole = lines(admin, user_id=user)
    pages, cursor = list[Any](), None
    while True:
        asked: dict[str, Any] = {
            "user_id": user,
            "limit": 2,
            **({"cursor": cursor} if cursor else {}),
        }
        page = admin.get("/v1/audit", params=asked).json()
        pages += page["items"]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
        assert len(page["items"]) == 2
    assert pages == whole and len(whole) == 5
    middle = whole[2]["at"]
    assert lines(admin, user_id=user, since=middle) == whole[:3]
    assert lines(admin, user_id=user, until=middle) == whole[3:]
    assert lines(admin, user_id=user, operation="memory") == whole
    assert lines(admin, user_id=user, operation="key.create") == []
    unknown = admin.get("/v1/audit", params={"operation": "mem"}).json()["error"]["message"]
    assert unknown.startswith("operation must be one of memory.add, ")
    assert unknown.endswith(", or its first part, not 'mem'")
    for field, wrong in (
        *(("cursor", "x"), ("since", "yesterday"), ("limit", "0")),
        ("operation", "memory.a"),
    ):
        answer = admin.get("/v1/audit", params={field: wrong})
        assert refusal(answer) == (400, "INVALID_ARGUMENT")
        assert answer.json()["error"]["details"]["field"] == field


TEXT = st.from_regex(r"[一-龥]{4,8}|[a-z]{9,14}", fullmatch=True)


@settings(max_examples=EXAMPLES)
@given(st.lists(TEXT, min_size=3, max_size=3, unique=True))
def test_no_word_is_ever_in_a_line(admin: httpx.Client, texts: list[str]) -> None:
    """Of messages, queries, metadata, names or feedback, done or refused."""
    first, second, third = texts
    body = {
        "messages": first,
        "user_id": "law",
        "infer": False,
        "metadata": {"id": second, "user_id": third},
    }
    added = admin.post("/v1/memories", json=body).json()
    note = added["results"][0]["id"]
    admin.post("/v1/memories/search", json={"query": second, "user_id": "law"})
    admin.post("/v1/recall", json={"question": third, "user_id": "law", "sensitive": True})
    vote = {"memory_id": note, "vote": "up", "query": second, "user_id": "law"}
    admin.post("/v1/feedback", json=vote)
    admin.patch(
        f"/v1/memories/{note}?user_id=law", json={"content": third, "metadata": {"id": first}}
    )
    admin.patch("/v1/users/law", json={"name": first, "config": {"k": second}})
    admin.post("/v1/memories", json={"messages": third, "user_id": "law", "wrong": second})
    shown = json.dumps(lines(admin, user_id="law", limit=20), ensure_ascii=False)
    assert not [it for it in texts if it in shown]


def test_every_operation_has_a_name_in_both_languages() -> None:
    """And every write of the API is in the table."""
    assert set(operations()) == labels()["operation"].keys()
    described = APP.openapi()["paths"]
    written = [it for it in ROUTES if is_write(*it) and it[1] in described]
    names = {described[path][method.lower()]["operationId"] for method, path in written}
    assert [it for it in names if operation_of(it) == it] == []


# The log itself


class Clock:
    """A time that a test puts forward."""

    now: Micros = 1_767_225_600_000_000

    def __call__(self) -> Micros:
        return self.now


def event(operation: str = "memory.add", **given: Any) -> AuditEvent:
    fixed: dict[str, Any] = {"result": "ok", "interface": "http", "actor_type": "key"}
    return AuditEvent(operation=operation, **fixed | given)


async def test_lines_wait_for_the_next_flush_but_for_those_that_matter(
    either_settings: Settings,
) -> None:
    """On both databases; what is read is what was written."""
    async with AsyncMemory(settings=either_settings) as memory:
        log = AuditLog(memory.journal, either_settings)
        first = event(user_id="李明", record_ids=("n_1",), count=1, actor_id="k", actor_name="后端")
        await log.write(first)
        assert (await read_events(memory.journal, AuditFilter())).items == ()
        await log.write(event("user.erase", user_id="李明", result="failed", error="INTERNAL"))
        newest, oldest = (await read_events(memory.journal, AuditFilter())).items
        assert (newest.operation, newest.result) == ("user.erase", "failed")
        assert newest.error == "INTERNAL"
        written = {**first.to_dict(), "id": oldest.id, "at": oldest.to_dict()["at"]}
        assert oldest.to_dict() == written
        for chosen in (AuditFilter(actor="后端"), AuditFilter(actor="k", operation="memory")):
            assert (await read_events(memory.journal, chosen)).items == (oldest,)
        assert (await read_events(memory.journal, AuditFilter(user_id="李"))).items == ()


async def test_old_lines_go_after_the_days_of_the_settings(tmp_path: Path) -> None:
    """With 0 days they stay forever."""
    for days, left in ((30, 1), (0, 2)):
        clock = Clock()
        chosen = load(data_dir=tmp_path / str(days), embedder="none", audit_days=days)
        async with AsyncMemory(settings=chosen) as memory:
            log = AuditLog(memory.journal, chosen, clock)
            await log.write(event())
            clock.now += 31 * DAY
            await log.write(event())
            await log.flush()
            assert len((await read_events(memory.journal, AuditFilter())).items) == left


async def test_lines_wait_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails because of them; as many as there is room for are written when it is back."""
    chosen = load(data_dir=tmp_path, embedder="none")

    async with AsyncMemory(settings=chosen) as memory:
        journal = memory.journal
        log, note = AuditLog(journal, chosen), journal.note

        async def away(_: object) -> None:
            raise Unavailable("away")

        journal.note = away  # type: ignore[assignment, method-assign]
        await log.write(event("key.create"))
        monkeypatch.setattr("kemem.serve.telemetry.audit._BACKLOG", 2)
        for _ in range(3):
            await log.write(event())
        with pytest.raises(Unavailable):
            await log.flush()
        journal.note = note  # type: ignore[method-assign]
        await log.flush()
        assert len((await read_events(journal, AuditFilter())).items) == 2  # the newest


async def test_few_lines_among_many_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over pages of the store, and over the limit of what one page of the log reads."""
    monkeypatch.setattr("kemem.serve.telemetry.audit._READ", 4)
    monkeypatch.setattr("kemem.serve.telemetry.audit._SCANNED", 8)
    chosen = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=chosen) as memory:
        log = AuditLog(memory.journal, chosen)
        for number in range(30):
            await log.write(event(actor_id="rare" if number % 10 == 0 else "often"))
        await log.flush()
        found, cursor, pages = list[AuditEvent](), None, 0
        while pages == 0 or cursor is not None:
            page = await read_events(memory.journal, AuditFilter(actor="rare"), 2, cursor)
            found, cursor, pages = [*found, *page.items], page.next_cursor, pages + 1
        assert len({it.id for it in found}) == len(found) == 3 and pages > 2
        with pytest.raises(InvalidArgument):
            await read_events(memory.journal, AuditFilter(), 2, "x")


async def test_a_spreadsheet_runs_no_formula(tmp_path: Path) -> None:
    """CSV and JSON lines hold every line; a cell that begins like a formula is a text."""
    chosen = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=chosen) as memory:
        log = AuditLog(memory.journal, chosen)
        await log.write(event(user_id="=1+1", actor_name='后端 "a", b'))
        await log.flush()

        async def text(form: Any) -> str:
            return "".join([it async for it in exported(memory.journal, AuditFilter(), form)])

        (row,) = csv.DictReader(io.StringIO(await text("csv")))
        assert (row["user_id"], row["actor_name"]) == ("'=1+1", '后端 "a", b')
        assert json.loads(await text("jsonl"))["user_id"] == "=1+1"


@pytest.mark.parametrize(("level", "count"), [("none", 0), ("writes", 1), ("all", 2)])
def test_the_level_decides(tmp_path: Path, level: str, count: int) -> None:
    """Of a write and a read of one user; probes are never recorded."""
    with local_server(tmp_path / "data", audit=level) as server, server.client() as client:
        client.post("/v1/memories", json={"messages": "茶", "user_id": "u", "infer": False})
        client.get("/v1/memories", params={"user_id": "u"})
        client.get("/readyz")
        make(client, "flush", "admin")
    chosen = load(data_dir=tmp_path / "data", embedder="none")

    async def read() -> list[str]:
        async with AsyncMemory(settings=chosen) as memory:
            page = await read_events(memory.journal, AuditFilter(operation="memory"))
            return [it.operation for it in page.items]

    assert asyncio.run(read()) == ["memory.list", "memory.add"][2 - count :]


# The dashboard, the command line, a process


async def test_the_dashboard_shows_and_exports_it(tmp_path: Path) -> None:
    """In both languages, with filters; signing in is recorded, also where it fails."""
    async with browsing(tmp_path, api_key=KEY) as (browser, _):
        login = "/dashboard/login"
        for key in ("wrong", KEY):
            answer = await send(browser, login, login, key=key)
        assert answer.status_code == 303
        found = await browser.get("/dashboard/users", params={"query": "花生酱"})
        assert found.status_code == 200
        for language, title, searched in (
            ("en", "Audit log", "search all users"),
            ("zh", "审计日志", "跨用户检索"),
        ):
            page = await browser.get("/dashboard/audit", params={"language": language})
            shown = text_of(page)
            assert title in shown and searched in shown and "KEMEM_API_KEY" in shown
            assert "花生酱" not in shown and "127.0.0.1" in shown
        page = await browser.get("/dashboard/audit", params={"operation": "auth.sign_in"})
        results = re.findall(r"badge-(ok|pending)", page.text)
        assert results == ["ok", "pending"]  # the newest first: the second was right
        nothing = await browser.get("/dashboard/audit", params={"user_id": "nobody"})
        assert "没有符合的记录" in text_of(nothing)
        for form in ("csv", "jsonl"):
            file = await browser.get("/dashboard/audit/export", params={"format": form})
            assert "memory.search_all" in file.text and f"kemem-audit.{form}" in str(file.headers)
        wrong = await browser.get("/dashboard/audit/export", params={"format": "exe"})
        assert wrong.status_code == 400


@pytest.mark.parametrize(("words", "query"), WORDS)
def test_commands_are_recorded_as_the_systems_user(tmp_path: Path, words: str, query: str) -> None:
    """Writes and exports, done or refused, without what was said; other reads are not."""
    for arguments in (
        ["add", words, "--user", "mia"],
        ["search", query, "--user", "mia"],
        ["delete", "n_none", "--user", "mia"],
        ["export", "--user", "mia", "--to", str(tmp_path / "mia.zip")],
        ["erase", "--user", "mia", "--yes"],
        ["keys", "create", "笔记本 laptop", "--role", "admin"],
    ):
        kemem(tmp_path, *arguments)
    ran = kemem(tmp_path, "audit", "--json")
    items = json.loads(ran.stdout)["items"]
    assert [(it["operation"], it["result"], it["user_id"]) for it in items] == [
        ("key.create", "ok", None),
        ("user.erase", "ok", "mia"),
        ("user.export", "ok", "mia"),
        ("memory.delete", "refused", "mia"),
        ("memory.add", "ok", "mia"),
    ]
    assert {(it["actor_type"], it["interface"]) for it in items} == {("command", "command")}
    assert all(it["actor_id"] for it in items)
    assert words not in ran.stdout and query not in ran.stdout
    assert "笔记本" not in ran.stdout
    table = kemem(tmp_path, "audit", "--format", "csv", "--operation", "memory").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [it["operation"] for it in rows] == ["memory.delete", "memory.add"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("keys", "create", "笔记本 laptop", "--role", "admin"),
        ("webhooks", "create", "http://127.0.0.1:9/"),
    ],
)
def test_a_command_that_makes_something_is_recorded_with_its_id(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """The same id that the command prints."""
    made = json.loads(kemem(tmp_path, *arguments, "--json").stdout)
    (line,) = json.loads(kemem(tmp_path, "audit", "--json").stdout)["items"]
    assert (line["record_ids"], line["count"]) == ([made["id"]], 1)


def test_the_command_speaks_both_languages(tmp_path: Path) -> None:
    """And says so where nothing fits."""
    for language, empty, line in (
        ("C.UTF-8", "No audit line fits.", "memory.add  ok  "),
        ("zh_CN.UTF-8", "没有符合的审计记录。", "memory.add  正常  "),
    ):
        assert kemem(tmp_path, "audit", "--user", "x", LC_ALL=language).stdout == f"{empty}\n"
        kemem(tmp_path, "add", "茶", "--user", "mia")
        assert line in kemem(tmp_path, "audit", "--user", "mia", LC_ALL=language).stdout


def test_lines_that_matter_survive_kill_9(tmp_path: Path) -> None:
    """They are in the store as soon as the response has come."""
    with running_server(tmp_path / "data", llm="none") as server, server.client() as client:
        client.post("/v1/memories", json={"messages": "茶 tea", "user_id": "u", "infer": False})
        assert client.delete("/v1/users/u").is_success
        server.process.kill()
        server.process.wait()
    assert "茶" not in server.log.read_text("utf-8")
    with running_server(tmp_path / "data", llm="none") as server, server.client() as client:
        found = client.get("/v1/audit", params={"user_id": "u"}).json()["items"]
    assert [it["operation"] for it in found] == ["user.erase", "memory.add"]
    assert found[0]["actor_type"] == "anonymous" and found[0]["address"] == "127.0.0.1"
