"""Every route of the server, and a right request to each, by an operator or in a user's name."""

import inspect
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import jwt
from fastapi.routing import iter_route_contexts

from kemem.memory import AsyncMemory
from kemem.serve.http.app import create_app
from kemem.serve.http.auth import OPEN_PATHS
from kemem.serve.http.mcp_route import MCP_PATH as MCP
from kemem.serve.http.mem0_routes import router as mem0
from tests.server import LocalServer, Server, check_all, said

KEY = "钥匙-key-0123456789"
SECRET = "the application signs with these 32 bytes"
APP = create_app(AsyncMemory(data_dir="unused"))
MEM0 = {route.path for route in iter_route_contexts(mem0.routes)}


def all_routes() -> list[tuple[str, str]]:
    """Every method and path the app has, hidden ones too, so that none can be forgotten."""
    return sorted(
        (method, route.path or "")
        for route in iter_route_contexts(APP.routes)
        if route.path != MCP  # another protocol: tests/test_mcp.py
        and route.path not in MEM0  # another API: tests/test_mem0.py
        and not is_page(route.path or "")  # tests/test_dashboard.py
        for method in route.methods or ["GET"]
    )


def is_page(path: str) -> bool:
    """Whether a path is one of the dashboard's."""
    return path == "/" or path.startswith("/dashboard")


def fields(method: str, path: str) -> tuple[set[str], set[str]]:
    """The names of a route's parameters and of its body's fields."""
    described = APP.openapi()
    operation = described["paths"][path][method.lower()]
    parameters = {it["name"] for it in operation.get("parameters", [])}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if not content:
        return parameters, set()
    schema = content["schema"].get("oneOf", [content["schema"]])[0]
    if "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return parameters, set(schema["properties"])


ROUTES = all_routes()
GUARDED = [(method, path) for method, path in ROUTES if path not in OPEN_PATHS]
CONFIGURED = {("PATCH", f"/v1/{kind}s/{{{kind}_id}}") for kind in ("agent", "user", "session")}
NAMING = {"/v1/keys", "/v1/webhooks", "/v1/audit"}  # where operators name the user of something
OF_A_USER = [
    it
    for it in GUARDED
    if it not in CONFIGURED and it[1] not in NAMING
    if set.union(*fields(*it)) & {"user_id", "user"}
]
OF_EVERYBODY = [("GET", "/v1/models")]  # the models are the same for all
OF_OPERATORS = [it for it in GUARDED if it not in (*OF_A_USER, *OF_EVERYBODY)]
PROXY = "/v1/chat/completions"  # of OpenAI's API, where a token need not name its user
CHATS = {"/v1/chat", "/v1/groups/{group_id}/turns", PROXY}
UNNAMED = [it for it in OF_A_USER if "{user_id}" not in it[1] and it[1] != PROXY]

notes_of: dict[str, str] = {}  # the newest note of each user that has something of each kind


def each(routes: list[tuple[str, str]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes one test of a check: of every route, each time with all that alice and bob have."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(check).parameters
        fixtures = [it for it in parameters.values() if it.name not in ("method", "path")]
        if "server" not in parameters:
            fixtures.append(inspect.Parameter("server", inspect.Parameter.KEYWORD_ONLY))

        def run(**given: Any) -> None:
            server = given["server"] if "server" in parameters else given.pop("server")

            def check_route(route: tuple[str, str]) -> None:
                furnish(server)
                check(method=route[0], path=route[1], **given)

            check_all(check_route, routes)

        run.__name__, run.__doc__ = check.__name__, check.__doc__
        run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def token(user_id: str = "alice", secret: str = SECRET, **claims: Any) -> str:
    """A token that binds its bearer to a user."""
    return jwt.encode({"sub": user_id, **claims}, secret, algorithm="HS256")


def keyed(server: LocalServer | Server) -> httpx.Client:
    """A client with the key, whose bytes are those of its UTF-8."""
    client = server.client()
    client.headers = httpx.Headers([(b"authorization", b"Bearer " + KEY.encode())])
    return client


def message_of(user_id: str | None) -> Any:
    """What a user said."""
    text = f"我不吃辣 no spicy food, {user_id}'s secret"
    return said(text, f"m_{user_id}", session_id=f"s_{user_id}")


def furnish(server: LocalServer) -> None:
    """Let alice and bob have a message, a note and a session with a checkpoint."""
    with keyed(server) as client:
        for user in {"alice", "bob"} - notes_of.keys():
            body = {"messages": [message_of(user)]}
            assert client.post(f"/v1/users/{user}/messages", json=body).is_success
            ids = {"user_id": user, "session_id": f"s_{user}"}
            told = {**ids, "messages": message_of(user)["content"], "infer": False}
            added = client.post("/v1/memories", json=told).json()
            saved = client.post(f"/v1/sessions/s_{user}/checkpoint", json={"user_id": user})
            assert saved.is_success
            notes_of[user] = added["results"][0]["id"]


def call(
    client: httpx.Client,
    method: str,
    path: str,
    user_id: str | None = "alice",
    *,
    of: str | None = None,
    params: dict[str, Any] | None = None,
    body: dict[str, Any] | None = None,
    **more: Any,
) -> httpx.Response:
    """A request that is right in everything, in the name of a user, about what they have.

    `of` another it asks for what that one has, `params` and `body` are sent besides.
    """
    owner = of or user_id or "alice"
    ids = {"user_id": user_id or "", "message_id": f"m_{owner}", "session_id": f"s_{owner}"}
    ids |= {"memory_id": notes_of.get(owner, "n_unknown"), "job_id": "j_unknown"}
    ids |= {"group_id": f"g_{owner}", "agent_id": "default", "key_id": "key_unknown"}
    ids["webhook_id"] = "wh_unknown"
    url = re.sub(r"\{(\w+)\}", lambda name: quote(ids[name[1]], safe=""), path)
    right: dict[str, Any] = {
        "query_text": "辣 spicy",
        "query": "辣 spicy",
        "question": "辣 spicy",
        "content": "变了 changed",
        **{"memory_id": ids["memory_id"], "vote": "up"},
        "config": {},
    }
    right |= {"messages": [message_of(user_id)]}
    right |= {"jsonrpc": "2.0", "method": "memory_get_status", "id": 1}
    right |= {"name": "测试 test", "role": "user"} if path == "/v1/keys" else {}
    right |= {"url": "http://127.0.0.1:9/hook"} if path == "/v1/webhooks" else {}
    named = {} if user_id is None else {"user_id": user_id, "user": user_id}
    asked, taken = fields(method, path)
    if "message" in taken:
        right |= {"message": "辣 spicy", "session_id": ids["session_id"], "members": [{"id": "a"}]}
    in_query = named and "user_id" in asked and "{user_id}" not in path
    query = {"user_id": user_id} if in_query else {}
    sent = {name: it for name, it in (right | named).items() if name in taken}
    if (method, path) == ("POST", "/v1/import"):
        query |= {"name": "talk.jsonl"}
        headers = httpx.Headers(more.get("headers"))
        headers["Content-Type"] = "application/octet-stream"
        more = {"content": b'{"content": "hi"}', **more, "headers": headers}
    answer = client.request(
        method,
        url,
        params={**query, **(params or {})},
        json={**sent, **(body or {})} if taken else None,
        **more,
    )
    if answer.is_success and (method in ("DELETE", "PATCH") or path.endswith("/end")):
        notes_of.pop(owner, None)
    return answer


def expected(path: str) -> int:
    """The status of an answer to a right request, by a server without models and jobs."""
    if path in {*CHATS, "/v1/models", "/v1/messages/semantic_search"}:
        return 501
    unknown = ("{job_id}", "{key_id}", "{webhook_id}")
    return 404 if any(it in path for it in unknown) else 200


def belongings(client: httpx.Client, user: str) -> Any:
    """All messages and notes that a user has."""
    kinds = ["message", "user_info", "short_term", "experience"]
    asked: dict[str, Any] = {"user_id": user, "kinds": kinds, "limit": 1000}
    return client.get("/v1/memories", params=asked).json()
