"""Authenticator: nobody is served who may not be, on any route, and nobody sees another user."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.requests import Request

from kemem import Memory
from kemem.errors import InvalidArgument, NotFound, PermissionDenied
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS
from kemem.serve.http.app import create_app, serve
from kemem.serve.http.auth import OPEN_PATHS, SETTINGS_KEY, Authenticator, Caller, is_loopback
from kemem.serve.http.key_routes import keys_of
from kemem.serve.http.routing import memory_of
from kemem.settings import Settings
from kemem.testing import HashingEmbedder, running_openai_server
from tests.routes import (
    CHATS,
    GUARDED,
    KEY,
    OF_A_USER,
    OF_OPERATORS,
    ROUTES,
    SECRET,
    UNNAMED,
    belongings,
    call,
    each,
    expected,
    fields,
    furnish,
    keyed,
    notes_of,
    token,
)
from tests.server import MISSING, LocalServer, check_all, local_server, refusal, said, start

OTHER_SECRET = "somebody else signs with these 32 bytes"
ANYBODY = (401, "UNAUTHENTICATED")
FORBIDDEN = (403, "PERMISSION_DENIED")
AS_ALICE = {"Authorization": f"Bearer {token()}"}


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app with both credentials."""
    data_dir = tmp_path_factory.mktemp("trust") / "data"
    with local_server(data_dir, api_key=KEY, jwt_secret=SECRET) as server:
        yield server


@pytest.fixture(autouse=True)
def furnished(request: pytest.FixtureRequest) -> None:
    """Alice and bob have something of each kind, in every test that asks the server."""
    if {"client", "server"} & set(request.fixturenames):
        furnish(request.getfixturevalue("server"))


def test_the_routes_are_those_that_were_decided() -> None:
    """A new route is written down here after thinking about who may use it."""
    assert {path for _, path in GUARDED} == {
        "/metrics",
        "/rpc",
        "/v1/agents",
        "/v1/agents/{agent_id}",
        "/v1/audit",
        "/v1/chat",
        "/v1/chat/completions",
        "/v1/feedback",
        "/v1/graph",
        "/v1/groups/{group_id}/turns",
        "/v1/import",
        "/v1/import/{job_id}",
        "/v1/jobs",
        "/v1/jobs/run",
        "/v1/jobs/{job_id}/retry",
        "/v1/keys",
        "/v1/keys/{key_id}",
        "/v1/memories",
        "/v1/memories/ended",
        "/v1/memories/extract",
        "/v1/memories/forget",
        "/v1/memories/forgotten",
        "/v1/memories/search",
        "/v1/memories/{memory_id}",
        "/v1/memories/{memory_id}/history",
        "/v1/memories/{memory_id}/reopen",
        "/v1/messages/hybrid_search",
        "/v1/messages/lexical_search",
        "/v1/messages/semantic_search",
        "/v1/models",
        "/v1/ontology",
        "/v1/recall",
        "/v1/sessions",
        "/v1/sessions/{session_id}",
        "/v1/sessions/{session_id}/checkpoint",
        "/v1/sessions/{session_id}/checkpoint/restore",
        "/v1/sessions/{session_id}/context",
        "/v1/sessions/{session_id}/end",
        "/v1/sessions/{session_id}/summarize",
        "/v1/users",
        "/v1/users/{user_id}",
        "/v1/users/{user_id}/messages",
        "/v1/users/{user_id}/messages/{message_id}/neighbors",
        "/v1/users/{user_id}/export",
        "/v1/users/{user_id}/inventory",
        "/v1/users/{user_id}/profile",
        "/v1/webhooks",
        "/v1/webhooks/{webhook_id}",
        "/v1/webhooks/{webhook_id}/test",
    }
    assert {path for _, path in ROUTES} - {path for _, path in GUARDED} == OPEN_PATHS
    assert {path for _, path in OF_OPERATORS} == {
        *("/metrics", "/rpc", "/v1/agents", "/v1/users", "/v1/keys", "/v1/keys/{key_id}"),
        *("/v1/jobs", "/v1/jobs/run", "/v1/jobs/{job_id}/retry", "/v1/audit"),
        *("/v1/agents/{agent_id}", "/v1/users/{user_id}", "/v1/sessions/{session_id}"),
        *("/v1/ontology", "/v1/webhooks", "/v1/webhooks/{webhook_id}"),
        "/v1/webhooks/{webhook_id}/test",
    }


# The key


@each(GUARDED)
def test_no_route_answers_without_the_right_credential(
    client: httpx.Client, method: str, path: str
) -> None:
    """Missing, wrong, cut, longer, of another scheme, or in the query string."""
    right = b"Bearer " + KEY.encode()
    wrong = [b"Bearer wrong", right[:-1], right + b"x", b"Bearer", b"", b"\xff\xfe"]
    wrong += [b"Basic " + base64.b64encode(KEY.encode()), b"Token wrong", KEY.encode()]
    answers = [call(client, method, path)]
    answers += [call(client, method, path, headers=[(b"authorization", it)]) for it in wrong]
    answers += [call(client, method, path, params={"api_key": KEY, "token": KEY})]
    for answer in answers:
        assert refusal(answer) == ANYBODY
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "辣" not in answer.text


@each(GUARDED)
def test_the_key_opens_every_route(server: LocalServer, method: str, path: str) -> None:
    """For any user; the scheme is not case-sensitive."""
    with keyed(server) as client:
        for user in ("alice", "bob"):
            assert call(client, method, path, user).status_code == expected(path)
        furnish(server)
        headers = [(b"authorization", b"bEARER " + KEY.encode())]
        assert call(client, method, path, headers=headers).status_code == expected(path)


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_probes_and_the_description_need_no_credential(client: httpx.Client, path: str) -> None:
    """And tell nothing but the state, or what the API is."""
    answer = client.get(path)
    assert answer.status_code == 200
    assert "alice" not in answer.text and KEY not in answer.text
    assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/nowhere", "/healthz/", "/healthz/../metrics", "//docs"])
def test_what_does_not_exist_is_not_told_to_strangers(client: httpx.Client, path: str) -> None:
    """Unknown paths need the credential too; none slips through beside the open ones."""
    assert client.get(path).status_code in (401, 404)
    assert client.post("/healthz").status_code == 405


def test_only_guarded_operations_are_described_as_such(server: LocalServer) -> None:
    """The description says where the credential is needed."""
    with keyed(server) as client:
        described = client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) == (path not in OPEN_PATHS)


# Tokens that bind a user


@each(OF_A_USER)
def test_a_token_reaches_its_own_user(
    server: LocalServer, client: httpx.Client, method: str, path: str
) -> None:
    """With or without a time at which it ends."""
    for right in (token(), token(exp=int(time.time()) + 60)):
        headers = {"Authorization": f"Bearer {right}"}
        answer = call(client, method, path, headers=headers)
        assert answer.status_code == expected(path), answer.text
        assert "bob" not in answer.text
        furnish(server)


@each(OF_A_USER)
def test_a_token_reaches_no_other_user(client: httpx.Client, method: str, path: str) -> None:
    """Whether the other exists or not, the answer is the same."""
    unknown = call(client, method, path, "nobody", headers=AS_ALICE).content
    for user in ("bob", "Alice", "alice ", "ａlice"):
        answer = call(client, method, path, user, headers=AS_ALICE)
        assert refusal(answer) == MISSING
        assert answer.content == unknown


@each(UNNAMED)
def test_a_token_need_not_name_its_user(client: httpx.Client, method: str, path: str) -> None:
    """Without a user_id, or with null, the token's own user is meant, by whatever else is named."""
    in_body = "user_id" in fields(method, path)[1]
    given: dict[str, Any] = {"body": {"user_id": None}} if in_body else {}
    answer = call(client, method, path, None, of="alice", headers=AS_ALICE, **given)
    assert answer.status_code == expected(path), answer.text
    assert "bob" not in answer.text


@each(UNNAMED)
def test_a_token_that_names_nobody_reaches_nobody_else(
    server: LocalServer, client: httpx.Client, method: str, path: str
) -> None:
    """An agent, a session, a filter or a memory of another leads nowhere; nor does a strange id."""
    asked, taken = fields(method, path)
    place = "body" if "user_id" in taken else "params"
    others: list[dict[str, Any]] = [{}, {"agent_id": "default"}, {"filters": {"user_id": "bob"}}]
    if "{session_id}" not in path:
        others += [{"session_id": "s_bob"}, {"run_id": "s_bob"}]
    with keyed(server) as operator:
        before = belongings(operator, "bob")
        for named in others:
            known = {name: it for name, it in named.items() if name in (asked | taken)}
            given: dict[str, Any] = {place: known, "headers": AS_ALICE}
            answer = call(client, method, path, None, of="bob", **given)
            assert answer.status_code in (200, 400, 404, 409, 501), answer.text
            assert "bob's secret" not in answer.text and '"user_id":"bob"' not in answer.text
        for user in ("bob", ["alice", "bob"], {"sub": "alice"}, 7, ""):
            given = {place: {"user_id": user}, "headers": AS_ALICE}
            assert refusal(call(client, method, path, None, of="bob", **given)) == MISSING
        assert belongings(operator, "bob") == before


@each(OF_A_USER)
def test_a_token_leads_to_no_other_data_under_its_own_name(
    server: LocalServer, client: httpx.Client, method: str, path: str
) -> None:
    """Alice names herself, and bob's ids wherever there is room for them: bob keeps all he has."""
    asked, taken = fields(method, path)
    filters = [{"user_id": "bob"}, {"NOT": [{"user_id": "alice"}]}]
    filters += [{"OR": [{"user_id": "bob"}, {"user_id": "alice"}]}]
    tries: list[dict[str, Any]] = [{"filters": it} for it in filters]
    tries += [{}, {"agent_id": "default", "session_id": "s_bob"}, {"run_id": "s_bob"}]
    with keyed(server) as operator:
        before = belongings(operator, "bob")
        for more in tries:
            body = {name: it for name, it in more.items() if name in taken}
            params = {name: it for name, it in more.items() if name in asked - {"session_id"}}
            params |= {name: json.dumps(it) for name, it in params.items() if name == "filters"}
            given: dict[str, Any] = {"params": params, "body": body, "headers": AS_ALICE}
            answer = call(client, method, path, of="bob", **given)
            assert answer.status_code in (200, 400, 404, 501), answer.text
            assert "bob's secret" not in answer.text and '"user_id":"bob"' not in answer.text
        assert belongings(operator, "bob") == before


async def test_what_serves_a_bound_caller_knows_no_other_user(tmp_path: Path) -> None:
    """Whatever a route forgets to check, its memory is a handle of that user."""
    settings = Settings(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add("我不吃辣 no spicy food", user_id="bob", session_id="s")
        scope = {"type": "http", "app": create_app(memory), "state": {"caller": Caller("alice")}}
        bound = memory_of(Request(scope))
        assert len(await bound.get_all(session_id="s", kinds=["message"])) == 0
        with pytest.raises(NotFound):
            await bound.get_all(user_id="bob")
        with pytest.raises(PermissionDenied):
            await bound.users()


SHOWING = {  # routes whose answers quote a sensitive memory to whoever may see it
    *(
        ("GET", "/v1/memories"),
        ("POST", "/v1/memories/search"),
        ("POST", "/v1/memories/extract"),
        ("GET", "/v1/memories/{memory_id}"),
        ("POST", "/v1/memories/{memory_id}/reopen"),
    ),
    *(("GET", "/v1/memories/{memory_id}/history"), ("GET", "/v1/users/{user_id}/messages")),
    ("GET", "/v1/users/{user_id}/profile"),
    ("GET", "/v1/users/{user_id}/messages/{message_id}/neighbors"),
    *(("POST", f"/v1/messages/{mode}_search") for mode in ("lexical", "semantic", "hybrid")),
    *(("GET", "/v1/sessions/{session_id}/context"), ("GET", "/v1/graph"), ("POST", "/v1/recall")),
    *(
        ("POST", f"/v1/sessions/{{session_id}}/{it}")
        for it in ("checkpoint", "checkpoint/restore", "summarize")
    ),
    *(("POST", path) for path in CHATS),
}


@pytest.mark.parametrize("word", ["铜锣湾", "Wellington"])
@pytest.mark.parametrize("granted", [False, True], ids=["without the claim", "with the claim"])
def test_a_token_needs_the_claim_for_what_is_sensitive_on_every_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, granted: bool
) -> None:
    """Even of its own user; who erases all that a user has erases what is sensitive as well."""
    secret = f"我住在{word}" if word == "铜锣湾" else f"I live in {word}"
    embedder = HashingEmbedder()
    settings = Settings(data_dir=tmp_path, embedder="none", llm="none")
    with Memory(settings=settings, embedder=embedder) as memory:
        ids: dict[str, Any] = {"user_id": "alice", "session_id": "s_alice"}
        (note, *_) = memory.add(said(secret, "m_alice"), **ids, sensitive=True).results
        memory.add(secret, user_id="alice", agent_id="a", infer=False, sensitive=True)
        memory.add(f"{word} short", **ids, infer=False, memory_type="short", sensitive=True)
        memory.checkpoint("s_alice", "alice")
    monkeypatch.setitem(notes_of, "alice", note.id)
    question = f"{secret[:-2]}?"
    words = dict.fromkeys(("query_text", "query", "question", "message"), question)
    bearer = token(sensitive=True) if granted else token()
    erasing = [it for it in OF_A_USER if it[0] in ("DELETE", "PATCH") or it[1].endswith("/end")]
    with (
        running_openai_server(lambda request: str(request["messages"])) as model,
        local_server(
            tmp_path,
            {"embedder": embedder},
            **{"jwt_secret": SECRET, "llm_base_url": model.base_url, "llm_api_key": "any"},
        ) as server,
        server.client(bearer) as client,
    ):
        for method, path in [it for it in OF_A_USER if it not in erasing] + erasing:
            taken = fields(method, path)[1]
            asked: dict[str, Any] = {name: it for name, it in words.items() if name in taken}
            if "messages" in taken:
                asked["messages"] = [{"role": "user", "content": question}]
            elif "sensitive" in taken:
                asked["sensitive"] = granted
            answer = call(client, method, path, body=asked)
            shown = granted and (method, path) in SHOWING
            assert (word in answer.text) == shown, (method, path, answer.text)
            if path == "/v1/memories/search":
                tool = {"name": "list_memories", "arguments": {}}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
                accepted = {"Accept": "application/json, text/event-stream"}
                answer = client.post("/mcp", json=body, headers=accepted)
                assert '"isError":false' in answer.text and (word in answer.text) == granted
    with Memory(settings=settings, embedder=embedder) as memory:
        assert word not in str(memory.get_all("alice", kinds=["message", *NOTE_KINDS]))


@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({}, False),
        ({"sensitive": True}, True),
        *(({"sensitive": it}, False) for it in (False, None, 1, "true", "是", ["true"])),
    ],
)
async def test_only_true_in_a_token_grants_what_is_sensitive(
    tmp_path: Path, claims: dict[str, Any], granted: bool
) -> None:
    """Nothing that merely looks like it, and no key of an operator."""
    settings = Settings(data_dir=tmp_path, api_key=SecretStr(KEY), jwt_secret=SecretStr(SECRET))
    async with AsyncMemory(settings=settings) as memory:
        authenticator = Authenticator(settings, keys_of(memory))
        bearer = Headers({"authorization": f"Bearer {token(**claims)}"})
        caller = await authenticator.authenticate("/v1/memories", "http", bearer)
        assert caller == Caller("alice", sensitive=granted)
        operator = Headers(raw=[(b"authorization", b"Bearer " + KEY.encode())])
        assert await authenticator.authenticate("/v1/memories", "http", operator) == Caller(
            key_id=SETTINGS_KEY
        )


@each(UNNAMED)
def test_of_two_users_in_a_url_none_is_chosen(client: httpx.Client, method: str, path: str) -> None:
    """Not the first and not the last."""
    if "user_id" in fields(method, path)[0]:
        for users in (["alice", "bob"], ["bob", "alice"]):
            given: dict[str, Any] = {"params": {"user_id": users}, "headers": AS_ALICE}
            assert refusal(call(client, method, path, None, of="bob", **given)) == MISSING


def test_a_token_cannot_store_for_another_user(server: LocalServer, client: httpx.Client) -> None:
    """Not by the path, and a user_id inside a message is refused."""
    forged: dict[str, Any] = {**said("假 forged", "forged"), "user_id": "bob"}
    with keyed(server) as operator:
        before = belongings(operator, "bob")
        for path in ("/v1/users/alice/messages", "/v1/memories"):
            named = {"user_id": "alice"} if path == "/v1/memories" else {}
            body = {"messages": [forged], **named}
            assert client.post(path, json=body, headers=AS_ALICE).status_code == 400
        body = {"messages": [said("假 forged", "forged")]}
        answer = client.post("/v1/users/bob/messages", json=body, headers=AS_ALICE)
        assert refusal(answer) == MISSING
        assert belongings(operator, "bob") == before


@each(OF_OPERATORS)
def test_a_token_is_no_key_for_operators(client: httpx.Client, method: str, path: str) -> None:
    """What shows more than one user's data is for the key only, whoever is named."""
    for params in ({}, {"user_id": "alice"}):
        answer = call(client, method, path, params=params, headers=AS_ALICE)
        assert refusal(answer) == FORBIDDEN
        assert "for operators: it needs an admin key" in answer.text


def test_a_wrong_credential_may_be_a_key_or_a_token(client: httpx.Client) -> None:
    """Whoever mistypes the key is not sent to look for a token."""
    answer = client.get("/v1/users/alice/messages", headers={"Authorization": "Bearer wrong"})
    assert "no valid API key or token" in answer.text


def test_a_token_that_is_not_valid_is_refused(client: httpx.Client) -> None:
    """The algorithm is ours to choose, time and signature are checked."""
    bad = {
        "signed by another": token(secret=OTHER_SECRET),
        "expired": token(exp=int(time.time()) - 10),
        "not yet valid": token(nbf=int(time.time()) + 86_400),
        "without a user": jwt.encode({"name": "alice"}, SECRET, algorithm="HS256"),
        "other algorithm": jwt.encode({"sub": "alice"}, SECRET * 2, algorithm="HS512"),
        "no algorithm": forged({"alg": "none", "typ": "JWT"}, {"sub": "alice"}),
        "NONE": forged({"alg": "NONE"}, {"sub": "alice"}),
        "no signature": token().rpartition(".")[0] + ".",
        "cut": token()[:-2],
        "other user, old signature": forged({"alg": "HS256"}, {"sub": "bob"}, b"x" * 32),
        "numeric user": forged({"alg": "HS256"}, {"sub": 1}, b"x" * 32),
        "nested": "W1tb" * 10_000 + ".e30.e30",
        "not base64": "ä.ö.ü",
        "empty parts": "..",
        "the secret itself": SECRET,
    }

    def check(name: str) -> None:
        headers = [(b"authorization", b"Bearer " + bad[name].encode())]
        assert refusal(client.get("/v1/users/alice/messages", headers=headers)) == ANYBODY

    check_all(check, bad)


async def test_a_server_with_tokens_only_asks_for_them(tmp_path: Path) -> None:
    """Under any name, without a key; and nobody is an operator."""
    settings = Settings(data_dir=tmp_path, embedder="none", jwt_secret=SecretStr(SECRET))
    async with AsyncMemory(settings=settings) as memory:
        transport = httpx.ASGITransport(create_app(memory))
        base_url = "http://memory.example.com"
        async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
            for method, path in GUARDED:
                assert refusal(await client.request(method, path)) == ANYBODY
            client.headers["Authorization"] = f"Bearer {token()}"
            assert (await client.get("/v1/users/alice/messages")).status_code == 200
            assert refusal(await client.get("/metrics")) == FORBIDDEN


# Without a credential: this machine only


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "memory.example", ""])
def test_without_a_credential_only_loopback_is_listened_to(tmp_path: Path, host: str) -> None:
    """The error says what to do."""
    unkeyed = Settings(host=host, data_dir=tmp_path, api_key=None, jwt_secret=None)
    with pytest.raises(InvalidArgument, match="KEMEM_API_KEY"):
        serve(unkeyed, frozenset(), print)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_the_names_of_this_machine_are_known(host: str) -> None:
    """By address and by name."""
    assert is_loopback(host)


def test_a_server_for_strangers_does_not_start_without_a_credential(tmp_path: Path) -> None:
    """The process ends at once and says what to do."""
    server = start(tmp_path / "data", host="0.0.0.0")
    assert server.process.wait(timeout=20) == 2
    log = server.log.read_text("utf-8")
    assert "KEMEM_API_KEY" in log and "127.0.0.1" in log
    assert "Traceback" not in log
