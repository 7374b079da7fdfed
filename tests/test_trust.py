"""Trust: nobody is served who may not be, on any route, and nobody sees another user."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.serve.auth import OPEN_PATHS, Trust
from kemem.serve.http import create_app, serve
from kemem.settings import Settings
from tests.server import MISSING, Server, post, read, refusal, running_server, said, start

KEY = "钥匙-key-0123456789"
SECRET = "the application signs with these 32 bytes"
OTHER_SECRET = "somebody else signs with these 32 bytes"
ANYBODY = (401, "UNAUTHENTICATED")
FORBIDDEN = (403, "PERMISSION_DENIED")


def all_routes() -> list[tuple[str, str]]:
    """Every method and path the app has, hidden ones too, so that none can be forgotten."""
    app = create_app(AsyncMemory(data_dir="unused"))
    return sorted(
        (method, route.path or "")
        for route in iter_route_contexts(app.routes)
        for method in route.methods or ["GET"]
    )


ROUTES = all_routes()
GUARDED = [(method, path) for method, path in ROUTES if path not in OPEN_PATHS]
OF_A_USER = [(method, path) for method, path in GUARDED if path.startswith("/v1/")]
EACH_GUARDED = pytest.mark.parametrize(("method", "path"), GUARDED)
EACH_OF_A_USER = pytest.mark.parametrize(("method", "path"), OF_A_USER)


def token(user_id: str = "alice", secret: str = SECRET, **claims: Any) -> str:
    return jwt.encode({"sub": user_id, **claims}, secret, algorithm="HS256")


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def call(
    client: httpx.Client, method: str, path: str, user_id: str = "alice", **more: Any
) -> httpx.Response:
    """A request to a route that is right in everything, in the name of a user."""
    message = said("我不吃辣 no spicy food", f"m_{user_id}")
    if path.startswith("/v1/users/"):
        body: dict[str, Any] = {"messages": [message]}
    else:
        body = {"user_id": user_id, "query_text": "辣 spicy"}
    url = path.replace("{user_id}", user_id).replace("{message_id}", message["message_id"])
    return client.request(method, url, json=body if method == "POST" else None, **more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with both credentials, on which alice and bob have a message each."""
    data_dir = tmp_path_factory.mktemp("trust") / "data"
    with running_server(data_dir, api_key=KEY, jwt_secret=SECRET) as server:
        with keyed(server) as client:
            for user in ("alice", "bob"):
                post(client, user, said("我不吃辣 no spicy food", f"m_{user}"))
        yield server


def keyed(server: Server) -> httpx.Client:
    """A client with the key, whose bytes are those of its UTF-8."""
    client = server.client()
    client.headers = httpx.Headers([(b"authorization", b"Bearer " + KEY.encode())])
    return client


def test_the_routes_are_those_that_were_decided() -> None:
    """A new route is written down here after thinking about who may use it."""
    assert {path for _, path in GUARDED} == {
        "/docs",
        "/metrics",
        "/openapi.json",
        "/v1/messages/hybrid_search",
        "/v1/messages/lexical_search",
        "/v1/messages/semantic_search",
        "/v1/users/{user_id}/messages",
        "/v1/users/{user_id}/messages/{message_id}/neighbors",
    }
    assert {path for _, path in ROUTES} - {path for _, path in GUARDED} == OPEN_PATHS


# The key


@EACH_GUARDED
def test_no_route_answers_without_the_right_credential(
    client: httpx.Client, method: str, path: str
) -> None:
    """Missing, wrong, cut, longer, of another scheme, or in the query string."""
    right = b"Bearer " + KEY.encode()
    wrong = [b"Bearer wrong", right[:-1], right + b"x", b"Bearer", b"", b"\xff\xfe"]
    wrong += [b"Basic " + base64.b64encode(KEY.encode()), b"Token " + KEY.encode(), KEY.encode()]
    answers = [call(client, method, path)]
    answers += [call(client, method, path, headers=[(b"authorization", it)]) for it in wrong]
    answers += [call(client, method, path, params={"api_key": KEY, "token": KEY})]
    for answer in answers:
        assert refusal(answer) == ANYBODY
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "辣" not in answer.text


@EACH_GUARDED
def test_the_key_opens_every_route(server: Server, method: str, path: str) -> None:
    """For any user; the scheme is not case-sensitive."""
    expected = 400 if "semantic" in path else 200  # this server has no embedder
    with keyed(server) as client:
        for user in ("alice", "bob"):
            assert call(client, method, path, user).status_code == expected
        headers = [(b"authorization", b"bEARER " + KEY.encode())]
        assert call(client, method, path, headers=headers).status_code == expected


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_probes_need_no_credential(client: httpx.Client, path: str) -> None:
    """And tell nothing but the state."""
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.json().keys() == {"status"}
    assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/nowhere", "/healthz/", "/healthz/../metrics", "//docs"])
def test_what_does_not_exist_is_not_told_to_strangers(client: httpx.Client, path: str) -> None:
    """Unknown paths need the credential too; none slips through beside the open ones."""
    assert client.get(path).status_code in (401, 404)
    assert client.post("/healthz").status_code == 405


def test_only_guarded_operations_are_described_as_such(server: Server) -> None:
    """The description says where the credential is needed."""
    with keyed(server) as client:
        described = client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) == (path not in OPEN_PATHS)


# Tokens that bind a user


@EACH_OF_A_USER
def test_a_token_reaches_its_own_user(client: httpx.Client, method: str, path: str) -> None:
    """With or without a time at which it ends."""
    expected = 400 if "semantic" in path else 200
    for right in (token(), token(exp=int(time.time()) + 60)):
        headers = {"Authorization": f"Bearer {right}"}
        assert call(client, method, path, headers=headers).status_code == expected


@EACH_OF_A_USER
@pytest.mark.parametrize("user", ["bob", "nobody", "Alice", "alice ", "ａlice"])
def test_a_token_reaches_no_other_user(
    client: httpx.Client, method: str, path: str, user: str
) -> None:
    """Whether the other exists or not, the answer is that of a page that does not exist."""
    headers = {"Authorization": f"Bearer {token()}"}
    answer = call(client, method, path, user, headers=headers)
    assert refusal(answer) == MISSING
    with_key = {b"authorization": b"Bearer " + KEY.encode()}
    assert answer.content == client.get("/nowhere", headers=with_key).content


@pytest.mark.parametrize("kind", ["lexical", "semantic", "hybrid"])
@pytest.mark.parametrize("named", [{}, {"user_id": None}, {"user_id": ["alice", "bob"]}])
def test_a_token_needs_its_user_to_be_named(
    client: httpx.Client, kind: str, named: dict[str, Any]
) -> None:
    """A body that names nobody, or somebody in a strange way, is not let through."""
    headers = {"Authorization": f"Bearer {token()}"}
    body = {"query_text": "辣 spicy", **named}
    answer = client.post(f"/v1/messages/{kind}_search", json=body, headers=headers)
    assert refusal(answer) in (FORBIDDEN, MISSING)


def test_a_token_cannot_store_for_another_user(server: Server, client: httpx.Client) -> None:
    """Not by the path, and a user_id inside a message is refused."""
    headers = {"Authorization": f"Bearer {token()}"}
    body = {"messages": [said("假 forged", "forged")]}
    assert refusal(client.post("/v1/users/bob/messages", json=body, headers=headers)) == MISSING
    body["messages"][0]["user_id"] = "bob"
    assert client.post("/v1/users/alice/messages", json=body, headers=headers).status_code == 400
    with keyed(server) as operator:
        assert len(read(operator, "bob")["items"]) == 1


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/openapi.json"])
def test_a_token_is_no_key_for_operators(client: httpx.Client, path: str) -> None:
    """What shows more than one user's data is for the key only."""
    headers = {"Authorization": f"Bearer {token()}"}
    assert refusal(client.get(path, headers=headers)) == FORBIDDEN


@pytest.mark.parametrize(
    "bad",
    {
        "signed by another": token(secret=OTHER_SECRET),
        "expired": token(exp=int(time.time()) - 10),
        "not yet valid": token(nbf=int(time.time()) + 600),
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
    }.items(),
    ids=lambda pair: pair[0],
)
def test_a_token_that_is_not_valid_is_no_token(client: httpx.Client, bad: tuple[str, str]) -> None:
    """The algorithm is ours to choose, time and signature are checked."""
    headers = [(b"authorization", b"Bearer " + bad[1].encode())]
    answer = client.get("/v1/users/alice/messages", headers=headers)
    assert refusal(answer) == ANYBODY


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


@pytest.mark.parametrize(
    ("host", "allowed"),
    [(it, True) for it in ("127.0.0.1", "127.9.9.9", "::1", "localhost")]
    + [(it, False) for it in ("0.0.0.0", "::", "192.168.0.1", "memory.example", "")],
)
def test_without_a_credential_only_loopback_is_listened_to(host: str, allowed: bool) -> None:
    """With one, any address is."""
    Trust(Settings(api_key=SecretStr(KEY))).check_host(host)
    unkeyed = Settings(host=host, api_key=None, jwt_secret=None)
    if allowed:
        Trust(unkeyed).check_host(host)
        return
    with pytest.raises(InvalidArgument, match="KEMEM_API_KEY"):
        serve(unkeyed)


def test_a_server_for_strangers_does_not_start_without_a_credential(tmp_path: Path) -> None:
    """The process ends at once and says what to do."""
    server = start(tmp_path / "data", host="0.0.0.0")
    assert server.process.wait(timeout=20) == 1
    log = server.log.read_text("utf-8")
    assert "KEMEM_API_KEY" in log and "127.0.0.1" in log
    assert "Traceback" not in log
