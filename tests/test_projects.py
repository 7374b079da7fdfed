"""Projects: several memories behind one server, none of which can be reached from another."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem import admin
from kemem.errors import InvalidArgument, Unavailable
from kemem.memory import AsyncMemory
from kemem.serve.http.projects import COOKIE, HEADER
from kemem.settings import Settings, load
from kemem.store.migrate import STEPS
from kemem.sync import Memory
from kemem.testing import HashingEmbedder
from tests import routes
from tests.cases import each
from tests.command import kemem
from tests.fixtures import EXAMPLES
from tests.pages import browsing, page_routes, send, text_of
from tests.routes import APP, GUARDED, MEM0, SECRET, belongings, call, token
from tests.server import (
    MISSING,
    LocalServer,
    Server,
    add,
    check_all,
    local_server,
    note_of,
    refusal,
    running_server,
    said,
    wait_for,
)

KEY = "the key of the server"
DECLARED: dict[str, dict[str, Any]] = {
    "acme": {"privacy_card_number": "refuse"},
    "beta": {},
    "c-1_x": {"privacy_card_number": "mask"},
}
PROJECTS = json.dumps(DECLARED)
CIPHER = "暗号 swordfish"  # what acme knows of alice
ANYBODY = (401, "UNAUTHENTICATED")
CARD = "4111 1111 1111 1111"
USERS = ("ann", "李明")
LOGIN = "/dashboard/login"
MCP = {"Accept": "application/json, text/event-stream", "X-KeMem-User": "alice"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server process with three projects beside its default memory."""
    home = tmp_path_factory.mktemp("projects") / "data"
    given = {"api_key": KEY, "jwt_secret": SECRET, "projects": PROJECTS}
    with running_server(home, **given) as running:
        yield running


@pytest.fixture(scope="module")
def operator(server: Server) -> Iterator[httpx.Client]:
    """The operator of the server."""
    with server.client(KEY) as client:
        yield client


@pytest.fixture(scope="module")
def key_of(operator: httpx.Client) -> Callable[..., str]:
    """Makes keys of projects."""

    def make(project: str | None, role: str = "admin", **given: Any) -> str:
        body = {"name": "测试 test", "role": role, "project": project, **given}
        answer = operator.post("/v1/keys", json=body)
        assert answer.status_code == 200 and answer.json()["project"] == project, answer.text
        return str(answer.json()["key"])

    return make


@pytest.fixture(scope="module")
def acme(server: Server, key_of: Callable[..., str]) -> Iterator[httpx.Client]:
    """An operator of acme, where alice has a message, a note and a session with a secret."""
    with server.client(key_of("acme")) as client:
        message = said(CIPHER, "m_alice", session_id="s_alice")
        sent = client.post("/v1/users/alice/messages", json={"messages": [message]})
        assert sent.status_code == 200
        routes.notes_of.clear()
        routes.notes_of["alice"] = note_of(client, "alice", CIPHER, session_id="s_alice")
        body = {"user_id": "alice", "memory_id": routes.notes_of["alice"]}
        voted = client.post("/v1/feedback", json={**body, "vote": "up", "query": CIPHER})
        assert voted.status_code == 200, voted.text
        yield client


@pytest.fixture(scope="module")
def beta(server: Server, key_of: Callable[..., str]) -> Iterator[httpx.Client]:
    """An operator of beta."""
    with server.client(key_of("beta")) as client:
        yield client


# No way from one to the other


def test_no_route_leads_to_another_project(acme: httpx.Client, beta: httpx.Client) -> None:
    """The same user, message, session and note, on every route of the API: beta knows none."""
    before, note = belongings(acme, "alice"), routes.notes_of["alice"]

    def check(route: tuple[str, str]) -> None:
        routes.notes_of["alice"] = note
        answer = call(beta, *route)
        assert "swordfish" not in answer.text and answer.status_code != 500, answer.text
        assert belongings(acme, "alice") == before

    check_all(check, GUARDED)
    routes.notes_of["alice"] = note


def test_no_page_and_no_route_of_mem0_leads_there(acme: httpx.Client, beta: httpx.Client) -> None:
    """Whatever can be read without changing anything."""
    note, before = routes.notes_of["alice"], belongings(acme, "alice")
    pages = [path for method, path in page_routes(APP) if method == "GET"]
    paths = [re.sub(r"\{[^}]+\}", note, path) for path in (*filter(None, MEM0), *pages)]

    def check(path: str) -> None:
        asked = {"user_id": "alice", "query": "暗号", "id": note}
        assert "swordfish" not in beta.get(path, params=asked).text

    check_all(check, [path for path in paths if path != "/dashboard/events"])
    assert belongings(acme, "alice") == before


def test_mcp_and_json_rpc_stay_within_a_project(acme: httpx.Client, beta: httpx.Client) -> None:
    """With the key alone: clients need no change."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": "search_memories", "arguments": {"query": "swordfish"}}
    assert CIPHER in acme.post("/mcp", json=body, headers=MCP).text
    assert CIPHER not in beta.post("/mcp", json=body, headers=MCP).text
    learned = {"content": "开门 open at nine", "summary": "opening hours"}
    body |= {"method": "memory_add", "params": learned}
    assert "result" in acme.post("/rpc", json=body).json()
    body |= {"method": "memory_search", "params": {"query": "opening hours"}}
    assert "open at nine" in acme.post("/rpc", json=body).text
    assert "open at nine" not in beta.post("/rpc", json=body).text


def test_figures_are_of_one_project(acme: httpx.Client, server: Server) -> None:
    """Messages and requests of /metrics; a fresh project has none."""
    assert "kemem_messages 2.0" in acme.get("/metrics").text
    with server.client(KEY) as client:
        counted = client.get("/metrics", headers={HEADER: "c-1_x"}).text
    assert "kemem_messages 0.0" in counted and 'route="/v1/feedback"' not in counted


@settings(max_examples=EXAMPLES)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", *DECLARED]),
            st.sampled_from(USERS),
            st.sampled_from(["茶", "tea", None]),
        ),
        max_size=8,
    )
)
def test_each_project_holds_exactly_what_was_said_there(
    local: LocalServer, steps: list[tuple[str, str, str | None]]
) -> None:
    """Whatever the order of adding and erasing, by one who serves all; None erases a user."""
    mark, expected = token_hex(4), dict[tuple[str, str], set[str]]()
    with local.client(KEY) as client:
        for project, user, words in steps:
            client.headers[HEADER] = project
            if words is None:
                client.delete("/v1/memories", params={"user_id": user + mark})
                expected.pop((project, user), None)
            else:
                add(client, words, user_id=user + mark, infer=False)
                expected.setdefault((project, user), set()).add(words)
        for project, user in product(["", *DECLARED], USERS):
            client.headers[HEADER] = project
            found = client.get("/v1/memories", params={"user_id": user + mark}).json()["results"]
            assert {it["memory"] for it in found} == expected.get((project, user), set())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app of this process with the same projects."""
    home = tmp_path_factory.mktemp("local") / "data"
    with local_server(home, api_key=KEY, projects=DECLARED) as running:
        yield running


# Who reaches what


@each("project", [*DECLARED, "nowhere", "ACME", "a/b", "../beta"])
def test_a_key_of_a_project_can_name_no_other(acme: httpx.Client, project: str) -> None:
    """One that exists is not found as one that does not; its own may be named."""
    answer = acme.get("/v1/memories?user_id=alice", headers={HEADER: project})
    assert answer.status_code == 200 if project == "acme" else refusal(answer) == MISSING
    assert "beta" not in answer.text


@pytest.mark.parametrize("role", ["service", "user"])
def test_other_keys_of_the_default_memory_choose_no_project(
    server: Server, key_of: Callable[..., str], role: str
) -> None:
    """Only operators of the server do."""
    key = key_of(None, role, **({"user_id": "alice"} if role == "user" else {}))
    with server.client(key) as client:
        assert client.get("/v1/memories?user_id=alice").json() == {"results": []}
        answer = client.get("/v1/memories?user_id=alice", headers={HEADER: "acme"})
        assert refusal(answer) == MISSING


def test_the_operator_of_the_server_chooses(acme: httpx.Client, operator: httpx.Client) -> None:
    """By the header; one that is not declared is refused with the names of those that are."""
    path = "/v1/memories?user_id=alice"
    assert "swordfish" not in operator.get(path).text
    assert operator.get(path, headers={HEADER: "acme"}).json() == acme.get(path).json()
    answer = operator.get(path, headers={HEADER: "nowhere"})
    assert refusal(answer) == MISSING
    assert "there is no project 'nowhere'" in answer.text and "acme, beta, c-1_x" in answer.text


def test_a_token_names_its_project(acme: httpx.Client, server: Server) -> None:
    """By the claim `project`; without one it is for the default memory."""
    path = "/v1/memories"
    for claims, status, knows in (
        ({"project": "acme"}, 200, True),
        ({"project": "beta"}, 200, False),
        ({}, 200, False),
        ({"project": "nowhere"}, 401, False),
        ({"project": ["acme"]}, 401, False),
        ({"project": ""}, 401, False),
    ):
        with server.client(token("alice", **claims)) as client:
            answer = client.get(path)
            assert (answer.status_code, "swordfish" in answer.text) == (status, knows), claims
            assert refusal(client.get(path, headers={HEADER: "c-1_x"}))[0] in (401, 404)


def test_an_operator_of_a_project_manages_its_keys_only(
    acme: httpx.Client, beta: httpx.Client, server: Server
) -> None:
    """Lists, makes and revokes those of the project; a revoked one is refused at once."""
    made = acme.post("/v1/keys", json={"name": "后端 backend", "role": "service"}).json()
    assert made["project"] == "acme"
    assert {it["project"] for it in acme.get("/v1/keys").json()["items"]} == {"acme"}
    body = {"name": "x", "role": "admin", "project": "beta"}
    assert refusal(acme.post("/v1/keys", json=body)) == MISSING
    assert refusal(beta.delete(f"/v1/keys/{made['id']}")) == MISSING
    with server.client(made["key"]) as client:
        assert "swordfish" in client.get("/v1/memories?user_id=alice").text
        assert client.get("/v1/keys").status_code == 403
        assert acme.delete(f"/v1/keys/{made['id']}").status_code == 200
        assert refusal(client.get("/v1/memories?user_id=alice")) == ANYBODY


def test_without_credentials_the_header_chooses(tmp_path: Path) -> None:
    """On this machine; probes do not look at it."""
    with (
        local_server(tmp_path / "data", projects=DECLARED) as open_to_all,
        open_to_all.client() as anyone,
    ):
        add(anyone, "我不吃辣", user_id="u", infer=False)
        anyone.headers[HEADER] = "acme"
        assert anyone.get("/v1/memories?user_id=u").json() == {"results": []}
        anyone.headers[HEADER] = "nowhere"
        assert refusal(anyone.get("/v1/memories?user_id=u")) == MISSING
        assert anyone.get("/readyz").status_code == 200


def test_the_first_key_is_of_the_server(tmp_path: Path) -> None:
    """One of a project would leave nobody to manage the server."""
    with local_server(tmp_path, projects=DECLARED) as open_to_all, open_to_all.client() as anyone:
        body = {"name": "k", "role": "admin", "project": "acme"}
        answer = anyone.post("/v1/keys", json=body)
        assert answer.json()["error"]["details"]["field"] == "role"
        body |= {"project": "nowhere"}
        answer = anyone.post("/v1/keys", json=body)
        assert answer.json()["error"]["details"]["field"] == "project"
        assert anyone.get("/v1/keys").json() == {"items": []}


# Settings of their own


@each(
    ("project", "stored"),
    [("", CARD), ("acme", None), ("beta", CARD), ("c-1_x", "[card number]")],
)
def test_each_project_has_its_policy(
    operator: httpx.Client, project: str, stored: str | None
) -> None:
    """What acme refuses, beta marks and another masks."""
    body = {"messages": f"My card is {CARD}.", "user_id": "payer"}
    answer = operator.post("/v1/memories", json=body, headers={HEADER: project})
    if stored is None:
        assert answer.json()["error"]["details"]["kind"] == "card_number"
        return
    read = operator.get("/v1/users/payer/messages", headers={HEADER: project}).json()
    assert stored in read["items"][0]["content"]


@each(
    ("projects", "reason"),
    [
        ({"Acme": {}}, "projects (KEMEM_PROJECTS) must have names of 1-40 of a-z, 0-9"),
        ({"a/b": {}}, "not 'a/b'"),
        ({"x" * 41: {}}, "must have names"),
        ({"": {}}, "must have names"),
        ({"acme": {"port": 1}}, "must not have acme.port: all projects share it"),
        ({"acme": {"api_key": "k"}}, "must not have acme.api_key: all projects share it"),
        ({"acme": {"projects": {}}}, "must not have acme.projects: all projects share it"),
        ({"acme": {"colour": 1}}, "must not have acme.colour: there is no such setting"),
        ({"acme": {"privacy_email": "burn"}}, "projects.acme.privacy_email (KEMEM_PROJECTS) must"),
        ({"acme": {"data_dir": "d"}}, "projects.acme.data_dir is the same as that of the default"),
        ({"a": {"backup_dir": "b"}, "z": {"backup_dir": "b"}}, "projects.z.backup_dir is the same"),
        ({"a": {"neo4j_url": "neo4j://h"}, "z": {"neo4j_url": "neo4j://h"}}, "z.neo4j_url is the"),
        ({"acme": 1}, "projects.acme (KEMEM_PROJECTS) must be an object"),
    ],
)
def test_a_wrong_declaration_is_named(projects: Any, reason: str) -> None:
    """By project and setting, before anything is opened."""
    with pytest.raises(InvalidArgument, match=re.escape(reason)):
        load(data_dir="d", projects=projects)


def test_a_store_without_schemas_needs_one_for_each_project() -> None:
    """Otherwise all would share its rows."""
    with pytest.raises(InvalidArgument, match="only PostgreSQL has schemas"):
        load(database_url="toy://host", projects={"acme": {}})
    own = {"acme": {"database_url": "toy://other"}}
    chosen = load(database_url="toy://host", projects=own, project="acme")
    assert chosen.database_url == "toy://other"


def test_nothing_of_a_project_is_in_the_place_of_another() -> None:
    """Directories, databases, a replica and a graph database; what it overrides wins."""
    given = {"backup_dir": "/b", "workspace_dir": "/w", "neo4j_url": "neo4j://h"}
    urls = {"database_url": "postgresql://u:p%3F@h/d", "database_replica_url": "postgresql://r/d"}
    declared = {"acme": {"forget_limit": 7}, "own": {"data_dir": "/own"}}
    acme = load(data_dir="/d", **given, **urls, projects=declared, project="acme")
    assert acme.database_url == "postgresql://u:p%3F@h/d?schema=kemem_acme"
    assert acme.database_replica_url == "postgresql://r/d?schema=kemem_acme"
    places = [str(it) for it in (acme.data_dir, acme.backup_dir, acme.workspace_dir)]
    assert places == [f"{it}/projects/acme" for it in ("/d", "/b", "/w")]
    assert (acme.neo4j_url, acme.forget_limit, acme.projects) == (None, 7, {})
    assert acme.of_process.project is None and acme.of_process.projects == declared
    own = load(**urls, projects=declared, project="own")
    assert (str(own.data_dir), own.database_url, own.database_replica_url) == ("/own", None, None)


def test_no_secret_of_a_project_is_shown() -> None:
    """A setting that is overridden is as secret as any."""
    chosen = load(data_dir="d", projects={"acme": {"llm_api_key": "sk-hidden"}})
    assert "sk-hidden" not in repr(chosen)
    key = chosen.of_project("acme").llm_api_key
    assert key is not None and key.get_secret_value() == "sk-hidden"


# Its life


def test_jobs_of_all_projects_run_without_a_request(tmp_path: Path) -> None:
    """After a restart the workers go on where they were."""
    chosen = load(data_dir=tmp_path / "data", embedder="none", projects=DECLARED, project="beta")
    with Memory(settings=chosen) as memory:
        memory.add("I moved to Porto.", user_id="u", wait=False)
        assert memory.health().pending_jobs
    with (
        running_server(tmp_path / "data", projects=PROJECTS),
        Memory(settings=chosen) as memory,
    ):
        wait_for(lambda: not memory.health().pending_jobs)
        assert [it.memory for it in memory.get_all(user_id="u")] == ["User lives in Porto"]


def test_a_project_that_is_not_declared_any_more_is_out_of_reach(tmp_path: Path) -> None:
    """Its keys are refused, the log says why, and its data stays."""

    def run(*arguments: str) -> str:
        ran = kemem(tmp_path, *arguments, KEMEM_PROJECTS=PROJECTS)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()[0]

    run("keys", "create", "root", "--role", "admin")
    key = run("keys", "create", "后端", "--project", "beta")
    run("add", "我不吃辣", "--user", "u", "--project", "beta")
    with (
        running_server(tmp_path / "data", projects='{"acme": {}}') as server,
        server.client(key) as client,
    ):
        assert refusal(client.get("/v1/memories?user_id=u")) == ANYBODY
        written = server.log.read_text("utf-8")
        assert "names a project that the settings do not have" in written and "beta" in written
    assert "吃辣" in run("list", "--user", "u", "--project", "beta")


async def test_a_store_that_is_away_makes_the_server_not_ready(tmp_path: Path) -> None:
    """Whichever project it is of."""
    away = {"acme": {"database_url": "postgresql://kemem@127.0.0.1:1/kemem"}}
    with local_server(tmp_path / "data", projects=away) as broken, broken.client() as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/v1/memories?user_id=u").status_code == 200
        answer = client.get("/v1/memories?user_id=u", headers={HEADER: "acme"})
        assert answer.status_code == 503


# The dashboard


async def test_a_form_of_one_project_does_nothing_in_another(tmp_path: Path) -> None:
    """Where another tab has switched meanwhile; what is chosen stays chosen."""
    async with browsing(tmp_path, api_key=KEY, projects=DECLARED) as (browser, _):
        await send(browser, LOGIN, LOGIN, key=KEY)
        await browser.get("/dashboard?project=acme")
        assert browser.cookies[COOKIE] == "acme"
        old = await browser.get("/dashboard/keys")
        made = await send(browser, "/dashboard/keys", name="后端 backend", role="service")
        assert "in project acme" in text_of(made)
        await browser.get("/dashboard?project=beta")
        token = re.search(r'"X-Form-Token": "([^"]+)"', old.text)
        assert token
        fields = {"form_token": token[1], "name": "x", "role": "service"}
        assert (await browser.post("/dashboard/keys", data=fields)).status_code == 403
        assert "后端" not in text_of(await browser.get("/dashboard/keys"))
        await browser.get("/dashboard?project=")
        listed = await browser.get("/dashboard/keys")
        assert "后端 backend" in text_of(listed) and 'name="project"' in listed.text
        assert (await browser.get("/dashboard?project=nowhere")).status_code == 404


@pytest.mark.parametrize(("language", "shown"), [("en", "Project acme"), ("zh", "项目 acme")])
async def test_who_signs_in_with_a_key_of_a_project_sees_that_alone(
    tmp_path: Path, language: str, shown: str
) -> None:
    """No name of another, on no page; what somebody else chose in this browser is void."""
    async with browsing(tmp_path, api_key=KEY, projects=DECLARED) as (browser, _):
        body = {"name": "k", "role": "admin", "project": "acme"}
        keyed = {"Authorization": f"Bearer {KEY}"}
        key = (await browser.post("/v1/keys", json=body, headers=keyed)).json()["key"]
        await send(browser, LOGIN, LOGIN, key=key)
        browser.cookies.set(COOKIE, "beta", path="/dashboard")
        for path in ("", "/keys", "/system", "/users", "/jobs"):
            page = await browser.get(f"/dashboard{path}?language={language}")
            assert shown in text_of(page)
            assert "beta" not in page.text and "c-1_x" not in page.text
        assert (await browser.get("/dashboard?project=beta")).status_code == 404


# The command line


@pytest.mark.parametrize(
    ("language", "unknown", "counts"),
    [
        ("en", "there is no project 'nope'; declared in the settings: acme, beta", "notes: 1"),
        ("zh", "没有项目 'nope'；配置中有：acme, beta", "笔记: 1"),
    ],
)
def test_every_command_takes_a_project(
    tmp_path: Path, language: str, unknown: str, counts: str
) -> None:
    """By the option or the variable; one that is not declared is refused."""

    def run(*arguments: str, code: int = 0, **more: str) -> str:
        given = {"KEMEM_PROJECTS": PROJECTS, "KEMEM_LANGUAGE": language, **more}
        ran = kemem(tmp_path, *arguments, **given)
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    run("add", "I moved to Porto", "--user", "mia", "--project", "acme")
    assert "Porto" in run("search", "Porto", "--user", "mia", KEMEM_PROJECT="acme")
    assert "Porto" not in run("search", "Porto", "--user", "mia", "--project", "beta")
    assert "Porto" not in run("search", "Porto", "--user", "mia")
    assert unknown in run("search", "Porto", "--user", "mia", "--project", "nope", code=2)
    first, second, *_ = run("projects").splitlines()
    assert first.startswith("- ") and counts not in first
    assert second.startswith("acme") and counts in second and "projects/acme" in second
    listed = json.loads(run("projects", "--json"))["items"]
    assert [(it["name"], it["notes"]) for it in listed][:3] == [(None, 0), ("acme", 1), ("beta", 0)]
    assert "beta" not in run("doctor", "--verbose", "--project", "acme")
    assert '"--project"' in run("mcp", "install", "--client", "cursor", "--project", "acme")
    assert "KEMEM_PROJECT" in run("serve", code=2, KEMEM_PROJECT="acme")


def test_a_worker_does_the_jobs_of_all_projects(tmp_path: Path) -> None:
    """Or of the one that it is for."""

    def pending() -> list[int]:
        ran = (kemem(tmp_path, *it, KEMEM_PROJECTS=PROJECTS) for it in asked)
        return [len(json.loads(it.stdout)["items"]) for it in ran]

    asked = [("jobs", "--json"), *(("jobs", "--json", "--project", it) for it in ("acme", "beta"))]
    for place in ((), ("--project", "acme"), ("--project", "beta")):
        said = ("add", "I moved to Porto", "--user", "u", "--no-wait", *place)
        assert kemem(tmp_path, *said, KEMEM_PROJECTS=PROJECTS).returncode == 0
    assert all(pending())
    assert kemem(tmp_path, "work", "--once", KEMEM_PROJECTS=PROJECTS, KEMEM_PROJECT="acme")
    assert [bool(it) for it in pending()] == [True, False, True]
    assert kemem(tmp_path, "work", "--once", KEMEM_PROJECTS=PROJECTS).returncode == 0
    assert not any(pending())


def test_a_memory_is_opened_by_the_name_of_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the file declares it."""
    monkeypatch.chdir(tmp_path)
    file = '[projects.acme]\nprivacy_email = "refuse"\n[projects.beta]\n'
    (tmp_path / "kemem.toml").write_text(f'data_dir = "d"\nembedder = "none"\n{file}')
    with Memory(project="acme") as acme, Memory(project="beta") as beta:
        with pytest.raises(InvalidArgument, match="e-mail"):
            acme.add("Write to ann@example.com", user_id="ann")
        beta.add("写信给 ann@example.com", user_id="ann")
    assert (tmp_path / "d" / "projects" / "beta" / "kemem.db").exists()
    with pytest.raises(InvalidArgument, match="there is no project 'nope'"):
        Memory(project="nope")
    with pytest.raises(InvalidArgument, match="not both"):
        Memory(project="acme", settings=load())


# PostgreSQL


def on_postgres(url: str, project: str | None) -> Settings:
    """Settings of a project, or of the default memory, with a replica that is the database."""
    given = {"database_url": url, "database_replica_url": url, "llm": "none"}
    return load(**given, projects=DECLARED, project=project)


async def test_a_project_is_a_schema_of_its_own(fresh_database: Callable[[], str]) -> None:
    """Opened all at once in an empty database: the same user, vectors too, and a restore."""
    url, cities = fresh_database(), {None: "罗马", "acme": "柏林", "beta": "波尔图"}
    memories = {
        name: AsyncMemory(settings=on_postgres(url, name), embedder=HashingEmbedder())
        for name in cities
    }
    added = (it.add(f"我住在{cities[name]}。", user_id="u") for name, it in memories.items())
    await asyncio.gather(*added)
    backup = await memories["acme"].backup()
    await memories["beta"].restore(backup.path)
    cities["beta"] = cities["acme"]
    for name, memory in memories.items():
        hits = await memory.search("住在哪里", user_id="u")
        assert hits and all(cities[name] in hit.memory for hit in hits), name
        assert (await memory.health()).vectors == 2
        await memory.close()
    with psycopg.connect(url) as connection:
        count = "SELECT count(*) FROM {}.message"
        schemas = ("public", "kemem_acme", "kemem_beta")
        assert [connection.execute(count.format(it)).fetchone() for it in schemas] == [(1,)] * 3


async def test_a_schema_that_is_gone_leads_to_no_other(fresh_database: Callable[[], str]) -> None:
    """Neither reads nor writes fall through to the default memory."""
    url = fresh_database()
    async with (
        AsyncMemory(settings=on_postgres(url, None), embedder=HashingEmbedder()) as default,
        AsyncMemory(settings=on_postgres(url, "c-1_x"), embedder=HashingEmbedder()) as memory,
    ):
        await default.add("我住在罗马。", user_id="u")
        await memory.add("I live in Berlin.", user_id="u")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute('DROP SCHEMA "kemem_c-1_x" CASCADE')
        for work in (memory.search("Rome", user_id="u"), memory.add("Paris", user_id="u")):
            with pytest.raises(Unavailable):
                await work
        assert (await default.health()).messages == 1


async def test_projects_are_migrated_at_once(fresh_database: Callable[[], str]) -> None:
    """From the version before keys had projects; none waits for ever, none is skipped."""
    url, names = fresh_database(), (None, "acme", "beta")

    async def version(name: str | None) -> int:
        async with AsyncMemory(settings=on_postgres(url, name), embedder=HashingEmbedder()) as it:
            return (await it.health()).schema_version

    newest = 1 + len(STEPS)
    assert await asyncio.gather(*map(version, names)) == [newest] * 3
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in ("public", "kemem_acme", "kemem_beta"):
            connection.execute(f"ALTER TABLE {schema}.api_key DROP COLUMN project")
            back = f"UPDATE {schema}.meta SET value = '14' WHERE key = 'schema_version'"
            connection.execute(back)
    assert await asyncio.gather(*map(version, names)) == [newest] * 3


def test_a_store_is_moved_into_a_project(tmp_path: Path, fresh_database: Callable[[], str]) -> None:
    """To the schema of the project; what stays behind says where it is."""
    url = fresh_database()
    alone: dict[str, Any] = {"data_dir": tmp_path, "embedder": "none"}
    with Memory(settings=load(**alone)) as memory:
        memory.add("我住在柏林。", user_id="u", infer=False)
    place = f"{url}?schema=kemem_acme"
    moved = admin.move(str(tmp_path), place, lambda _: None, lambda: None)
    assert moved.place.endswith("?schema=kemem_acme")
    with Memory(settings=on_postgres(url, "acme")) as memory:
        assert [it.memory for it in memory.get_all(user_id="u")] == ["我住在柏林。"]
    with pytest.raises(Unavailable, match="schema=kemem_acme"):
        Memory(settings=load(**alone)).health()


def test_a_schema_is_no_place_for_sql() -> None:
    """It stands in statements and in the options of a connection."""
    with pytest.raises(InvalidArgument, match="schema in database_url"):
        Memory(database_url='postgresql://h/d?schema=a"; DROP TABLE meta').health()
