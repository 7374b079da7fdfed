"""API keys: what each role reaches on every route, and how soon a revoked one reaches nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.errors import InvalidArgument, NotFound
from kemem.keys import AsyncKeys
from kemem.memory import AsyncMemory
from kemem.records import Micros
from kemem.records.keys import PREFIX, ApiKey, digest_of
from kemem.records.times import DAY
from kemem.serve.dashboard import live
from kemem.serve.http.auth import READING_POSTS
from kemem.serve.http.key_routes import keys_of
from kemem.settings import Settings
from tests import routes
from tests.cases import each
from tests.command import kemem
from tests.fixtures import EXAMPLES
from tests.pages import browsing, send, text_of
from tests.routes import APP, KEY, OF_A_USER, OF_OPERATORS, call, expected, fields, furnish, keyed
from tests.server import MISSING, LocalServer, local_server, refusal, running_server, wait_for

ANYBODY = (401, "UNAUTHENTICATED")
FORBIDDEN = (403, "PERMISSION_DENIED")
MINUTE: Micros = 60_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app with a key in its settings."""
    with local_server(tmp_path_factory.mktemp("keys") / "data", api_key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def admin(server: LocalServer) -> Iterator[httpx.Client]:
    """A client with the key of the settings."""
    routes.notes_of.clear()
    with keyed(server) as client:
        yield client


def make(client: httpx.Client, role: str = "service", **given: Any) -> Any:
    """A new key as the answer describes it."""
    answer = client.post("/v1/keys", json={"name": "测试 test", "role": role, **given})
    assert answer.status_code == 200, answer.text
    return answer.json()


@asynccontextmanager
async def opened(given: Settings) -> AsyncIterator[AsyncKeys]:
    """The keys of a store."""
    async with AsyncMemory(settings=given) as memory:
        yield keys_of(memory)


# The life of a key


@pytest.mark.parametrize("name", ["后端服务", "the backend"])
def test_a_key_is_shown_once_and_works_until_it_is_revoked(
    server: LocalServer, admin: httpx.Client, name: str
) -> None:
    """By either header; lists show its last four characters."""
    made = make(admin, name=name)
    key = made.pop("key")
    assert key.startswith(PREFIX) and len(key) > 40
    listed = admin.get("/v1/keys")
    assert made in listed.json()["items"]
    assert made["name"] == name and made["last_four"] == key[-4:]
    assert key not in listed.text and digest_of(key) not in listed.text
    with server.client() as client:
        ways = [
            {"X-API-Key": key},
            *({"Authorization": f"{it} {key}"} for it in ("Bearer", "Token")),
        ]
        for headers in ways:
            assert client.get("/v1/memories?user_id=u", headers=headers).status_code == 200
        assert admin.delete(f"/v1/keys/{made['id']}").json()["id"] == made["id"]
        for headers in ways:
            assert refusal(client.get("/v1/memories?user_id=u", headers=headers)) == ANYBODY
    assert refusal(admin.delete(f"/v1/keys/{made['id']}"))[1] == "NOT_FOUND"


@each(
    ("field", "wrong"),
    [
        ("name", {"name": " "}),
        ("name", {"name": "长" * 256}),
        ("role", {"role": "root"}),
        ("user_id", {"role": "user"}),
        ("user_id", {"role": "admin", "user_id": "u"}),
        ("user_id", {"role": "user", "user_id": ""}),
        ("agent_id", {"role": "admin", "agent_id": "a"}),
        ("sensitive", {"sensitive": True}),
        ("read_only", {"read_only": "yes"}),
        ("expires_at", {"expires_at": "2020-01-01T00:00:00Z"}),
        ("expires_at", {"expires_at": "明天 tomorrow"}),
        ("days", {"days": 0}),
        ("days", {"days": 36_501}),
        ("days", {"days": 3, "expires_at": "2100-01-01T00:00:00Z"}),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(
    admin: httpx.Client, field: str, wrong: dict[str, Any]
) -> None:
    """The answer names the field, and nothing is stored."""
    before = admin.get("/v1/keys").json()
    body = {"name": "n", "role": "service", **wrong}
    answer = admin.post("/v1/keys", json=body)
    assert refusal(answer) == (400, "INVALID_ARGUMENT")
    assert answer.json()["error"]["details"]["field"] == field
    assert admin.get("/v1/keys").json() == before


async def test_only_a_digest_is_stored(tmp_path: Path) -> None:
    """No file of the store holds the key."""
    async with opened(Settings(data_dir=tmp_path, embedder="none")) as keys:
        key, text = await keys.create("k", "admin")
    stored = b"".join(it.read_bytes() for it in tmp_path.rglob("*") if it.is_file())
    assert key.digest.encode() in stored
    assert text.encode() not in stored and text.removeprefix(PREFIX).encode() not in stored


async def test_a_key_expires(tmp_path: Path) -> None:
    """It stays listed, and says why it is refused."""
    now: list[Micros] = [1_767_225_600_000_000]
    memory = AsyncMemory(
        settings=Settings(data_dir=tmp_path, embedder="none"), clock=lambda: now[0]
    )
    async with memory:
        keys = keys_of(memory)
        key, text = await keys.create("k", "admin", expires="2026-01-02T00:00:00Z")
        after, _ = await keys.create("k", "admin", days=2)
        assert after.expires == after.created + 2 * DAY
        found = await keys.find(text)
        assert found == key
        assert not key.has_expired(now[0]) and key.has_expired(now[0] + 24 * 60 * MINUTE)


def test_an_expired_key_is_refused_with_the_reason(
    server: LocalServer, admin: httpx.Client
) -> None:
    """Whoever holds it learns that it was right once."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    key = make(admin, expires_at=soon)["key"]
    with server.client(key) as client:

        def has_expired() -> bool:
            answer = client.get("/v1/memories?user_id=u")
            return answer.status_code == 401 and "has expired" in answer.text

        wait_for(has_expired)


async def test_keys_live_on_both_databases(either_settings: Settings) -> None:
    """Made, found, used, listed and revoked; another process of the same store agrees."""
    async with opened(either_settings) as keys, opened(either_settings) as others:
        assert not await keys.exist() and await keys.find(f"{PREFIX}x") is None
        key, text = await keys.create("一 one", "admin")
        second, other = await keys.create("二 two", "user", user_id="李明", agent_id="a")
        assert await keys.list() == [key, second] == await others.list()
        assert await keys.exist() and await keys.find(other) == second
        keys.note_use(key, key.created + 5)
        await keys.flush()
        (first, _) = await others.list()
        assert first.used == key.created + 5
        await keys.revoke(key.key_id)
        assert await keys.find(text) is None and await keys.exist()
        with pytest.raises(NotFound):
            await others.revoke(key.key_id)


async def test_keys_made_at_the_same_time_are_all_counted(either_settings: Settings) -> None:
    """Two processes that add keys at once lose none, and every change is seen."""
    async with opened(either_settings) as keys, opened(either_settings) as others:
        await keys.create("first", "admin")
        made = await asyncio.gather(*(it.create("k", "admin") for it in (keys, others) * 5))
        assert len(await keys.list()) == 11
        for key, text in made:
            assert await others.find(text) == key


@settings(max_examples=EXAMPLES)
@given(st.lists(st.integers(0, 3), max_size=12))
def test_exactly_the_keys_that_were_not_revoked_are_found(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    """Whatever the order of making and revoking; 0 makes one, n revokes the n-th that is left."""

    async def run() -> None:
        directory = tmp_path_factory.mktemp("law")
        async with opened(Settings(data_dir=directory, embedder="none")) as keys:
            left, gone = list[tuple[ApiKey, str]](), list[str]()
            for step in steps:
                if step == 0 or step > len(left):
                    left.append(await keys.create("k", "admin"))
                else:
                    key, text = left.pop(step - 1)
                    await keys.revoke(key.key_id)
                    gone.append(text)
                for key, text in left:
                    assert await keys.find(text) == key == await keys.get(key.key_id)
                assert [await keys.find(text) for text in gone] == [None] * len(gone)
                assert await keys.list() == [key for key, _ in left]
            assert await keys.exist() == bool(steps)

    asyncio.run(run())


async def test_requests_under_load_do_not_read_the_store(tmp_path: Path) -> None:
    """A thousand checks of a key cost a few reads of one number, and one row."""
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        deps = await memory.runtime.deps()
        counting = Counting(deps.store)
        keys = AsyncKeys(counting.deps)
        _, text = await keys.create("k", "admin")
        counting.reads = counting.rows = 0
        started = time.monotonic()
        for _ in range(20):
            found = await asyncio.gather(*(keys.find(text) for _ in range(50)))
            assert all(found)
        assert counting.reads <= 1 + (time.monotonic() - started) / 0.5
        assert counting.rows <= 50  # those that came together before the first answer


class Counting:
    """The keys of a store, counting what is asked of it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.reads = self.rows = self.writes = 0

    async def deps(self) -> Any:
        return SimpleNamespace(store=self, clock=lambda: 1_767_225_600_000_000)

    async def key_generation(self) -> int:
        self.reads += 1
        return int(await self.store.key_generation())

    async def keys(self, **place: Any) -> list[ApiKey]:
        self.rows += 1
        found: list[ApiKey] = await self.store.keys(**place)
        return found

    async def change_keys(self, **changes: Any) -> int:
        self.writes += 1
        return int(await self.store.change_keys(**changes))


async def test_the_use_of_a_key_is_written_once_a_minute(tmp_path: Path) -> None:
    """Requests in between cost nothing, and the last one is not lost."""
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        deps = await memory.runtime.deps()
        counting = Counting(deps.store)
        keys = AsyncKeys(counting.deps)
        key, _ = await keys.create("k", "admin")
        counting.writes = 0
        for second in range(0, 120, 2):
            keys.note_use(key, key.created + second * 1_000_000)
            await keys.flush()
        assert counting.writes == 2
        (listed,) = await keys.list()
        assert listed.used == key.created + MINUTE


async def test_no_backup_holds_keys_and_a_restore_leaves_them(
    either_settings: Settings, tmp_path: Path
) -> None:
    """Who may ask is not part of what is remembered."""
    async with AsyncMemory(settings=either_settings) as memory:
        keys = keys_of(memory)
        before, old = await keys.create("before", "admin")
        made = await memory.backup(tmp_path / "all.kemem")
        after, new = await keys.create("after", "admin")
        await memory.restore(made.path)
        assert await keys.list() == [before, after]
        assert await keys.find(old) and await keys.find(new)
        assert before.digest.encode() not in Path(made.path).read_bytes()


# What each role reaches, on every route


@routes.each(OF_A_USER)
def test_a_service_key_reaches_every_user(server: LocalServer, method: str, path: str) -> None:
    """As the key of the settings does."""
    with keyed(server) as operator:
        made = make(operator)
    with server.client(made["key"]) as client:
        for user in ("alice", "bob"):
            assert call(client, method, path, user).status_code == expected(path)
            furnish(server)
    with keyed(server) as operator:
        operator.delete(f"/v1/keys/{made['id']}")


@pytest.mark.parametrize("role", ["service", "user"])
def test_other_keys_do_nothing_for_operators(
    server: LocalServer, admin: httpx.Client, role: str
) -> None:
    """Neither keys, jobs, figures nor the dashboard."""
    key = make(admin, role, **({"user_id": "alice"} if role == "user" else {}))["key"]
    with server.client(key) as client:
        for method, path in OF_OPERATORS:
            assert refusal(call(client, method, path)) == FORBIDDEN
        assert client.get("/dashboard").status_code == 403


@routes.each(OF_A_USER)
def test_a_users_key_reaches_that_user_only(server: LocalServer, method: str, path: str) -> None:
    """Named or not; another user is not found."""
    with keyed(server) as operator:
        made = make(operator, "user", user_id="alice")
    with server.client(made["key"]) as client:
        assert refusal(call(client, method, path, "bob")) == MISSING
        named = "alice" if "{user_id}" in path else None
        answer = call(client, method, path, named, of="alice")
        assert answer.status_code == expected(path), answer.text
        assert "bob" not in answer.text
    with keyed(server) as operator:
        operator.delete(f"/v1/keys/{made['id']}")


@routes.each(OF_A_USER)
def test_a_key_of_one_agent_knows_no_other(server: LocalServer, method: str, path: str) -> None:
    """Naming another is not found, whether it exists or not; what others know is not seen."""
    with keyed(server) as operator:
        made = make(operator, agent_id="helper")
        before = routes.belongings(operator, "alice")
        asked, taken = fields(method, path)
        with server.client(made["key"]) as client:
            for other in ("default", "nobody") if "agent_id" in asked | taken else ():
                place = "body" if "agent_id" in taken else "params"
                given: dict[str, Any] = {place: {"agent_id": other}}
                if "/v1/import" not in path:
                    assert refusal(call(client, method, path, **given)) == MISSING
            answer = call(client, method, path)
            assert "secret" not in answer.text, answer.text
        assert routes.belongings(operator, "alice") == before
        operator.delete(f"/v1/keys/{made['id']}")


def test_a_key_of_one_agent_serves_all_its_users(server: LocalServer, admin: httpx.Client) -> None:
    """What it stores belongs to its agent, without naming it; members of groups are agents too."""
    with server.client(make(admin, agent_id="cook")["key"]) as client:
        for user, words in (("u_zh", "我不吃辣"), ("u_en", "I do not eat spicy food")):
            body = {"messages": words, "user_id": user, "infer": False}
            assert client.post("/v1/memories", json=body).status_code == 200
            (item,) = client.get("/v1/memories", params={"user_id": user}).json()["results"]
            assert (item["agent_id"], item["memory"]) == ("cook", words)
        turn = {"user_id": "u_zh", "message": "hi", "members": [{"id": "cook"}, {"id": "waiter"}]}
        assert refusal(client.post("/v1/groups/g/turns", json=turn)) == MISSING
        headers = {"X-KeMem-User": "u_zh", "X-KeMem-Agent": "waiter"}
        assert client.get("/memories", headers=headers).status_code == 404
        assert refusal(client.get("/v1/import")) == FORBIDDEN
        assert client.post("/reset").status_code == 403


def test_a_key_of_one_agent_without_a_user_shares_nothing(
    server: LocalServer, admin: httpx.Client
) -> None:
    """Who forgets the user_id is refused: stored for the agent, all its users would see it."""
    with server.client(make(admin, agent_id="cook")["key"]) as client:
        for path, body in (
            ("/v1/memories", {"messages": "I am allergic to nuts / 我对坚果过敏"}),
            ("/v1/memories/search", {"query": "nuts 坚果"}),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["details"]["field"] == "user_id"


def every_route() -> set[tuple[str, str]]:
    """Every method and path that the app has, of whatever protocol."""
    return {
        (method, route.path)
        for route in iter_route_contexts(APP.routes)
        if route.path and not route.path.startswith("/dashboard/static")
        for method in route.methods or ["GET", "POST", "DELETE"]
    }


def test_a_read_only_key_writes_on_no_route(
    server: LocalServer, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every route is one that reads or one that writes: a new one cannot be forgotten."""
    monkeypatch.setattr(live, "LOOKS", 1)  # a page of events ends with the last look
    assert {path for _, path in every_route()} >= READING_POSTS
    with server.client(make(admin, "admin", read_only=True)["key"]) as client:
        for method, path in sorted(every_route()):
            url = path.replace("{rest:path}", "x").replace("{", "").replace("}", "")
            answer = client.request(method, url, json={})
            reads = method in ("GET", "HEAD") or path in READING_POSTS
            is_refused = "read-only" in answer.text and answer.status_code == 403
            assert is_refused != reads, (method, path, answer.status_code, answer.text[:200])


@routes.each([it for it in OF_A_USER if it[0] == "GET" or it[1] in READING_POSTS])
def test_what_a_read_only_key_may_ask_changes_nothing(
    server: LocalServer, method: str, path: str
) -> None:
    """The answers are those of other keys."""
    with keyed(server) as operator:
        made = make(operator, read_only=True)
        before = routes.belongings(operator, "alice")
        with server.client(made["key"]) as client:
            assert call(client, method, path).status_code == expected(path)
        assert routes.belongings(operator, "alice") == before
        operator.delete(f"/v1/keys/{made['id']}")


def test_a_read_only_key_reads_by_tools_and_methods(
    server: LocalServer, admin: httpx.Client
) -> None:
    """MCP and JSON-RPC decide by what is called."""
    key = make(admin, "admin", read_only=True)["key"]
    accept = {"Accept": "application/json, text/event-stream", "X-KeMem-User": "alice"}

    def tool(client: httpx.Client, name: str, **arguments: Any) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body |= {"params": {"name": name, "arguments": arguments}}
        return client.post("/mcp", json=body, headers=accept).text

    def rpc(client: httpx.Client, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return client.post("/rpc", json=body).json()

    with server.client(key) as client:
        assert '"isError":false' in tool(client, "list_memories")
        for name, arguments in (
            ("add_memory", {"content": "我不吃辣"}),
            ("forget_memory", {"memory_key": "n_x"}),
            ("add_knowledge", {"content": "open at nine"}),
        ):
            assert "PERMISSION_DENIED: this key is read-only" in tool(client, name, **arguments)
        assert rpc(client, "memory_get_status")["result"]["status"] == "ok"
        for name, params in (
            ("memory_add", {"content": "x", "summary": "y"}),
            ("memory_backup", {}),
            ("memory_restore", {"backup_path": "x"}),
            ("memory_delete", {"kb_id": "n_x"}),
            ("memory_cleanup", {"task_id": "t"}),
            ("memory_init_workspace", {"task_id": "t"}),
        ):
            assert rpc(client, name, **params)["error"]["data"] == {"code": "PERMISSION_DENIED"}
    with server.client(make(admin, read_only=True)["key"]) as client:
        said = {"user_id": "u", "session_id": "s", "message": "你好 hello"}
        assert refusal(client.post("/v1/chat", json=said)) == FORBIDDEN


# Servers


def test_the_first_key_closes_a_server_without_credentials(tmp_path: Path) -> None:
    """It must be an admin's; the command makes it beside the running server."""
    data = tmp_path / "data"
    with running_server(data) as server, server.client() as anyone:
        assert anyone.get("/v1/users").status_code == 200
        refused = kemem(tmp_path, "keys", "create", "后端 backend")
        assert refused.returncode != 0 and "the first key must be an admin key" in refused.stderr
        assert anyone.get("/v1/users").status_code == 200
        key = kemem(tmp_path, "keys", "create", "me", "--role", "admin").stdout.splitlines()[0]
        wait_for(lambda: anyone.get("/v1/users").status_code == 401)
        with server.client(key) as client:
            assert client.get("/v1/users").status_code == 200
            (listed,) = client.get("/v1/keys").json()["items"]
        shown = kemem(tmp_path, "keys", "list").stdout
        assert listed["id"] in shown and f"{PREFIX}…{key[-4:]}" in shown and key not in shown
        revoked = kemem(tmp_path, "keys", "revoke", listed["id"])
        assert revoked.returncode == 0 and "me is revoked" in revoked.stdout
        headers = {"X-API-Key": key}
        wait_for(lambda: anyone.get("/v1/users", headers=headers).status_code == 401)
        assert anyone.get("/v1/users").status_code == 401  # no key left, and still closed


def test_a_revocation_holds_within_a_second_on_every_server(tmp_path: Path) -> None:
    """Two processes over one store, one of them under load."""
    data = tmp_path / "data"
    with running_server(data) as one, running_server(data) as two:
        keys = kemem(tmp_path, "keys", "create", "a", "--role", "admin").stdout.splitlines()
        with one.client(keys[0]) as first, two.client(keys[0]) as second:
            victim = make(first, "admin")
            with two.client(victim["key"]) as client:
                for _ in range(20):
                    assert client.get("/v1/users").status_code == 200
                revoked = time.monotonic()
                assert first.delete(f"/v1/keys/{victim['id']}").status_code == 200
                while client.get("/v1/users").status_code == 200:
                    assert time.monotonic() - revoked < 1.0
            assert second.get("/v1/users").status_code == 200


async def test_a_store_without_keys_serves_as_before() -> None:
    """Keys that it cannot keep are refused with the reason."""

    async def deps() -> Any:
        return SimpleNamespace(store=object(), clock=lambda: 0)

    keys = AsyncKeys(deps)
    assert not await keys.exist() and await keys.find(f"{PREFIX}x") is None
    with pytest.raises(InvalidArgument, match="keeps no API keys"):
        await keys.create("k", "admin")


# The dashboard


@pytest.mark.parametrize(
    ("language", "title", "once", "gone"),
    [
        ("zh", "API 密钥", "它不会再次显示", "密钥 网页 web 已撤销"),
        ("en", "API keys", "it is not shown again", "The key 网页 web is revoked"),
    ],
)
async def test_keys_are_managed_on_the_dashboard(
    tmp_path: Path, language: str, title: str, once: str, gone: str
) -> None:
    """Made in a form, shown once, revoked by a button."""
    async with browsing(tmp_path, api_key="the key") as (browser, app):
        browser.headers["Accept-Language"] = language
        await send(browser, "/dashboard/login", key="the key", at="/dashboard/login")
        assert title in text_of(await browser.get("/dashboard/keys"))
        form = {
            "name": "网页 web",
            "role": "user",
            "user_id": "李明",
            "days": "30",
            "read_only": "true",
        }
        made = text_of(await send(browser, "/dashboard/keys", **form))
        (key,) = await app.state.keys.list()
        assert once in made and f"{PREFIX}…{key.last_four}" in made and "网页 web" in made
        assert (key.user_id, key.read_only, key.expires is not None) == ("李明", True, True)
        listed = text_of(await browser.get("/dashboard/keys"))
        assert "李明" in listed and once not in listed
        answer = await send(browser, f"/dashboard/keys/{key.key_id}/revoke")
        assert gone in text_of(await browser.get(answer.headers["location"]))
        assert await app.state.keys.list() == []
        text_of(await send(browser, "/dashboard/keys", name="n", role="user"), 400)


async def test_an_admin_key_signs_in_to_the_dashboard_until_it_is_revoked(tmp_path: Path) -> None:
    """Other keys do not; one that is read-only looks and changes nothing."""
    async with browsing(tmp_path) as (browser, app):
        keys: AsyncKeys = app.state.keys
        admin, text = await keys.create("a", "admin")
        _, service = await keys.create("s", "service")
        _, looking = await keys.create("r", "admin", read_only=True)
        login = "/dashboard/login"
        for wrong in (service, "kemem_wrong", ""):
            assert (await send(browser, login, key=wrong, at=login)).status_code == 401
        assert (await send(browser, login, key=text, at=login)).status_code == 303
        assert (await browser.get("/dashboard/keys")).status_code == 200
        assert (await send(browser, "/dashboard/jobs/retry")).status_code == 303
        await keys.revoke(admin.key_id)
        assert (await browser.get("/dashboard/keys")).status_code == 303  # to sign in
        assert (await send(browser, login, key=looking, at=login)).status_code == 303
        assert (await browser.get("/dashboard/keys")).status_code == 200
        answer = await send(browser, "/dashboard/jobs/retry")
        assert "read-only" in text_of(answer, 403)
        assert (await send(browser, "/dashboard/logout")).status_code == 303
