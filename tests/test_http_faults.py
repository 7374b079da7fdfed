"""Requests that are broken, hostile or cut off: refused in one form, and the server goes on."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from kemem.memory import AsyncMemory
from kemem.serve.http.app import create_app
from tests.routes import SECRET, token
from tests.server import (
    INVALID,
    LocalServer,
    Server,
    check_all,
    local_server,
    post,
    read,
    refusal,
    running_server,
    said,
    search,
    wait_for,
)

FORBIDDEN = (403, "PERMISSION_DENIED")
TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
LEXICAL = "/v1/messages/lexical_search"
ADD, SEARCH = "/v1/memories", "/v1/memories/search"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app by words only."""
    with local_server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server process, for what concerns its socket, its memory or its log."""
    with running_server(tmp_path_factory.mktemp("process") / "data") as running:
        yield running


def sample(client: httpx.Client, name: str) -> float:
    """One number of the server's metrics."""
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


# Bodies


def test_a_body_that_is_no_request_is_refused(client: httpx.Client) -> None:
    """Not JSON, not UTF-8, not an object, nested without end, or with half characters."""

    def check(path: str, body: bytes) -> None:
        assert refusal(client.post(path, content=body, headers=JSON)) == INVALID

    bodies = [
        *(b"", b"{", b"null", b"[]", b"[1]", b'"text"', b"1", b"{}", b"NaN", b"{]", b"{'a': 1}"),
        *(b"\xff\xfe", b'{"user_id": "\xff"}', "{}".encode("utf-16"), b"\xef\xbb\xbf{}"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b"9" * 5000),
        *(b'{"user_id": "\\ud800", "query_text": "x"}', b'{"\\udfff": 1}', b'{"\xed\xa0\x80": 1}'),
        *(b'{"user_id": "u", "query_text": "x", "n": NaN}', b'{"messages": [{"role": Infinity}]}'),
        *(b'{"messages": {}}', b'{"messages": []}', b'{"messages": [null]}', b'{"messages": 5}'),
    ]
    check_all(check, [LEXICAL, "/v1/users/u/messages"], bodies)


WRONG: dict[str, list[Any]] = {
    "content": [1, [1], [["x"]], "\ud800", True],
    "role": [None, 1, "", "User", "厨师", []],
    "message_id": [1, "", " a", "a\n", "x" * 256, "\0", []],
    "metadata": [1, "x", [], {"a": float("nan")}, {"a": "\0"}],
    "ts": [1, 1.5, [], "now"],
    "content_type": [1, "", "x" * 51],
    "agent_id": [1, "", "a\tb"],
    "user_id": [1, "somebody"],
}


def test_a_message_with_a_wrong_field_is_refused(client: httpx.Client) -> None:
    """Nothing of its batch is stored."""
    for field in WRONG:
        for bad in WRONG[field]:
            batch = [said("好 fine", "m1"), {**said("坏 bad", "m2"), field: bad}]
            raw = json.dumps({"messages": batch})
            answer = client.post("/v1/users/strict/messages", content=raw, headers=JSON)
            assert refusal(answer) == INVALID, (field, bad)
    assert read(client, "strict")["items"] == []


def test_deep_metadata_is_refused(client: httpx.Client) -> None:
    """A depth that JSON readers bear is still no use as metadata."""
    deep = '{"messages": [{"role": "user", "content": "深 deep", "metadata": {"a": %s}}]}'
    for depth in (40, 400, 900):
        body = deep % ("[" * depth + "]" * depth)
        answer = client.post("/v1/users/deep/messages", content=body.encode(), headers=JSON)
        assert refusal(answer) == INVALID


def test_many_messages_are_refused_at_once(client: httpx.Client) -> None:
    """More than a batch may hold is too large, not wrong."""
    batch = [{"role": "user", "content": "x"}] * 5001
    answer = client.post("/v1/users/many/messages", json={"messages": batch})
    assert refusal(answer) == TOO_LARGE


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    """Ten times the limit, declared or not; one byte less than the limit is read."""
    limit = 1_048_576
    body = b'{"user_id": "u", "query_text": "x", "x": "%s"}'
    fitting = body % (b"a" * (limit - len(body) + 2))
    assert len(fitting) == limit
    assert refusal(client.post(LEXICAL, content=fitting, headers=JSON)) == INVALID
    assert refusal(client.post(LEXICAL, content=fitting + b" ", headers=JSON)) == TOO_LARGE
    for content, size in (
        (b"x" * 10 * limit, f"{10 * limit}"),
        (iter([b"x" * 65_536] * 100), r"\d+ or more"),
    ):
        answer = client.post(LEXICAL, content=content, headers=JSON)
        assert refusal(answer) == TOO_LARGE
        reason = f"a request body must be at most {limit} bytes, not {size}"
        assert re.fullmatch(reason, answer.json()["error"]["message"])


def test_a_body_without_end_is_cut_and_costs_no_memory(process: Server) -> None:
    """The server answers or hangs up, and does not grow."""
    with process.client() as client:
        before = sample(client, "process_resident_memory_bytes")
        chunk = b"x" * 262_144
        for _ in range(2):
            try:
                endless = (chunk for _ in range(1024))
                assert refusal(client.post(LEXICAL, content=endless, headers=JSON)) == TOO_LARGE
            except httpx.TransportError:
                pass
        assert client.get("/healthz").status_code == 200
        assert sample(client, "process_resident_memory_bytes") - before < 48 << 20


# Paths and methods


def ask(server: Server, method: str, target: str) -> tuple[int, bytes, list[tuple[str, str]]]:
    """A request whose target goes out exactly as it is written here."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheaders()
    finally:
        connection.close()


def test_strange_user_ids_are_refused(process: Server) -> None:
    """No way up, no control characters, no broken text, and no header of the caller's making."""

    def check(user: str) -> None:
        status, body, headers = ask(process, "GET", f"/v1/users/{user}/messages")
        assert status in (400, 404)
        assert json.loads(body)["error"]["code"] in ("INVALID_ARGUMENT", "NOT_FOUND")
        assert not [name for name, _ in headers if "evil" in name.lower()]

    users = [
        *(
            "%2e%2e",
            "..",
            ".",
            "%2F..%2F",
            "%00",
            "%0a",
            "%0d%0aX-Evil:%201",
            "%7f",
            "%20a",
        ),
        *("%ff", "%85", "%c3%28", "%ed%a0%80", "%E2%80%A8", "x" * 5000, "%F0%9F%98%80" * 256),
    ]
    check_all(check, users)


def test_user_ids_of_any_script_are_served(client: httpx.Client) -> None:
    """Percent-encoded in the path, as they are in the body."""
    for user in ["用户", "a b", "a+b", "ü%", "😀", "a&b=c#d", "Ω'\"<>", "a/b", "/", "//%2F"]:
        path = "".join(f"%{byte:02X}" for byte in user.encode())
        post(client, path, said("辣 spicy", "m/1"))
        (item,) = search(client, "lexical", user, query_text="辣")["items"]
        assert item["user_id"] == user
        near = client.get(f"/v1/users/{path}/messages/m%2f1/neighbors").json()
        assert [it["message_id"] for it in near["items"]] == ["m/1"]
        assert client.get(f"/v1/users/{path}/profile").json()["user_id"] == user


def test_an_encoded_slash_belongs_to_its_id(process: Server) -> None:
    """It leads to no other route, and past no check of who asks."""
    for target in ("/v1%2Fusers/a/messages", "/v1/users%2Fa%2Fmessages", "/healthz%2F", "%2Fv1"):
        status, _, _ = ask(process, "GET", target)
        assert status in (400, 404)
    status, _, _ = ask(process, "GET", "/v1/users/a/b/messages")
    assert status == 404
    with process.client() as client:  # a server of its own, as applications have it
        post(client, "a%2Fb", said("辣 spicy", "m1"))
        assert [it["message_id"] for it in read(client, "a%2fb")["items"]] == ["m1"]
        assert read(client, "a")["items"] == []


def test_a_token_reaches_no_id_that_its_own_begins(tmp_path: Path) -> None:
    with local_server(tmp_path, jwt_secret=SECRET) as server, server.client(token("a/b")) as client:
        assert client.get("/v1/users/a%2Fb/messages").status_code == 200
        for other in ("a", "b", "a%2Fb%2F", "a%252Fb"):
            assert client.get(f"/v1/users/{other}/messages").status_code == 404


def test_what_is_not_there_is_not_found(process: Server) -> None:
    """No file, no redirect, no hint."""

    def check(target: str) -> None:
        status, body, headers = ask(process, "GET", target)
        assert status == 404
        assert json.loads(body)["error"]["code"] == "NOT_FOUND"
        assert "location" not in dict(headers)
        assert b"root:" not in body

    targets = [
        *("//", "//etc/passwd", "/static/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%00"),
        *("/%2e%2e/etc/passwd", "/\\..\\etc", "/v1", "/v2", "/v1/users/u/x", "/v1/messages"),
        *("/v1/users/u/messages/", "/v1//users/u/messages", "/docs/", "/redoc", "/openapi.yaml"),
    ]
    check_all(check, targets)


def test_a_wrong_method_is_told_the_right_ones(process: Server) -> None:
    """And nothing of the request is echoed."""
    for method, target, allowed in [
        ("PUT", "/v1/users/u/messages", "GET, POST"),
        ("DELETE", "/v1/users/u/messages", "GET, POST"),
        ("TRACE", "/v1/users/u/messages", "GET, POST"),
        ("OPTIONS", "/v1/users/u/messages", "GET, POST"),
        ("GET", LEXICAL, "POST"),
        ("TRACE", LEXICAL, "POST"),
        ("POST", "/v1/users/u/messages/m/neighbors", "GET"),
        ("POST", "/metrics", "GET"),
        ("BREW", "/docs", "GET"),
    ]:
        status, body, headers = ask(process, method, target)
        assert status == 405
        assert json.loads(body)["error"]["code"] == "METHOD_NOT_ALLOWED"
        assert {name.lower(): value for name, value in headers}["allow"] == allowed


@pytest.mark.parametrize(
    "method, target, body, message",
    [
        ("POST", SEARCH, b"", "the body is empty; it must be a JSON object"),
        ("POST", SEARCH, b'{"query": "x",}', "the body must be JSON in UTF-8: "),
        ("POST", SEARCH, b"[]", "the body must be a JSON object, not []"),
        ("POST", SEARCH, b"null", "the body must be a JSON object, not null"),
        ("POST", SEARCH, b'[true, "None"]', "the body must be a JSON object, not [true, 'None']"),
        ("POST", SEARCH, b'{"limit": null}', "limit must be an integer, not null"),
        (
            "POST",
            SEARCH,
            b'{"user_id": "u", "query": "\\u200b"}',
            "query must be a text that is not",
        ),
        (
            "POST",
            ADD,
            b'{"user_id": "u", "messages": []}',
            "messages must have at least one message",
        ),
        (
            "POST",
            ADD,
            b'{"user_id": "u", "messages": false}',
            "messages must be a text, a message or a list of messages, not false",
        ),
        (
            "POST",
            SEARCH,
            b'{"user_id": "u", "query": "x", "as_of": "2026-02-30T00:00:00Z"}',
            "as_of must be an RFC 3339 time such as '2026-01-26T10:47:00Z', "
            "not '2026-02-30T00:00:00Z': there is no such day",
        ),
        ("GET", f"{SEARCH}?user_id=u", None, "GET is not allowed here, only POST"),
        ("GET", f"{SEARCH}?query=tea", None, "GET is not allowed here, only POST"),
        (
            "GET",
            f"{ADD}/?user_id=u",
            None,
            "GET is not allowed here, only POST; without the last slash, /v1/memories allows GET",
        ),
        ("DELETE", "/v1/users/nobody", None, "nothing is kept of 'nobody'"),
        ("GET", "/v1/users/nobody/export", None, "nothing is kept of 'nobody'"),
        (
            "POST",
            ADD,
            b'{"user_id": "u", "messages": "x", "timestamp": 1769424420}',
            "timestamp must be an RFC 3339 time such as '2026-01-26T10:47:00Z', not 1769424420: "
            "write '2026-01-26T10:47:00Z'",
        ),
        ("POST", SEARCH, b'{"user_id": "u"}', "query is required"),
        ("POST", SEARCH, b'{"query": "x"}', "user_id is required: the user that the memory"),
        ("POST", SEARCH, b'{"user_id": 5, "query": "x"}', "user_id must be a text, not 5"),
        (
            "POST",
            SEARCH,
            b'{"user_id": "u", "query": "x", "limit": 0}',
            "limit must be 1-1000, not",
        ),
        (
            "POST",
            SEARCH,
            b'{"user_id": "u", "qury": "x"}',
            "query is required; qury is not a field of this request (did you mean 'query'?)",
        ),
        (
            "POST",
            SEARCH,
            b'{"query": "x", "userId": "u", "lmit": 1}',
            "userId is not a field of this request (did you mean 'user_id'?); "
            "lmit is not a field of this request (did you mean 'limit'?)",
        ),
        (
            "PATCH",
            "/v1/memories/n_1?user_id=u",
            b'{"colour": "red"}',
            "colour is not a field of this request (known: content, memory, metadata)",
        ),
        (
            "POST",
            "/v1/messages/lexical_search",
            b'{"user_id": "u", "query": "x", "filter": {"time_range": {"sinse": 1}}}',
            "filter.time_range.sinse is not a field of this request (did you mean 'since'?)",
        ),
        (
            "GET",
            "/v1/memories?user_id=u&limt=3",
            None,
            "limt is not a field of this request (did you mean 'limit'?)",
        ),
        ("GET", "/v1/memories?user_id=u&cursor=abc", None, "cursor 'abc' is not one that this"),
        (
            "GET",
            "/v1/memories?user_id=u&filters=abc",
            None,
            "filters must be JSON (expected value at line 1 column 1), not 'abc'",
        ),
        ("GET", "/v1/memories?user_id=", None, "user_id must be 1-255 characters, not 0: ''"),
        ("POST", f"{SEARCH}?user_id=u", b'{"query": "x"}', "user_id belongs into the JSON body of"),
        ("GET", "/v1/memories?user_id=u&limit=ten", None, "limit must be an integer, not 'ten'"),
        ("GET", "/v1/memory", None, "no such path: /v1/memory; did you mean /v1/memories? /docs"),
        (
            "POST",
            "/v1/search",
            b"{}",
            "no such path: /v1/search; did you mean /v1/memories/search",
        ),
        ("GET", "/v1/%E8%8C%B6", None, "no such path: /v1/%E8%8C%B6; /docs lists the paths"),
        ("GET", "/mcp", None, "GET is not allowed here, only POST: an MCP client sends"),
    ],
)
def test_the_errors_of_the_first_hour_say_what_would_be_right(
    process: Server, method: str, target: str, body: bytes | None, message: str
) -> None:
    """By field and value, at once."""
    with process.client() as client:
        json_type = {"content-type": "application/json"}
        answer = client.request(method, target, content=body, headers=json_type)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["message"].startswith(message)


# Web pages of others, where no credential keeps them out


def operations(client: httpx.Client) -> list[tuple[str, str]]:
    """Every method and path of the server."""
    paths = client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def test_names_of_this_machine_are_answered(client: httpx.Client) -> None:
    """With any port, in any case."""
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:9", "[::1]"]:
        answer = client.get("/v1/users/u/messages", headers={"Host": host})
        assert answer.status_code == 200, host


def test_names_that_only_lead_here_are_not(client: httpx.Client) -> None:
    """A web page whose name was pointed at this machine gets nothing, whatever the route."""

    def check(operation: tuple[str, str], host: str) -> None:
        answer = client.request(*operation, headers=[(b"host", host.encode())])
        assert refusal(answer) == FORBIDDEN

    hosts = [
        *("evil.example", "evil.example:8420", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("evil@localhost", "localhost@evil.example", "10.0.0.1", "0.0.0.0", "[::2]", "本机", ":8"),
    ]
    check_all(check, operations(client), hosts)


def test_pages_of_other_sites_are_refused(client: httpx.Client) -> None:
    """Before anything is stored; and no answer allows them to read."""
    batch = {"messages": [said("假 forged", "m1")]}
    known = operations(client)
    for origin in (
        "https://evil.example",
        "null",
        "http://localhost:1",
        "http://localhost.evil",
        "",
    ):
        headers = {"Origin": origin, "Host": "localhost:8420"}
        answers = [client.request(*operation, headers=headers) for operation in known]
        answers += [client.post("/v1/users/origin/messages", json=batch, headers=headers)]
        answers += [client.options(LEXICAL, headers=headers)]
        for answer in answers:
            assert refusal(answer) == FORBIDDEN
            assert "access-control-allow-origin" not in answer.headers
    assert read(client, "origin")["items"] == []


def test_pages_of_this_server_are_not_refused(client: httpx.Client) -> None:
    """The same origin, as browsers write it."""
    headers = {"Origin": "http://localhost:8420", "Host": "localhost:8420"}
    assert client.get("/v1/users/u/messages", headers=headers).status_code == 200


def test_a_form_cannot_pose_as_json(client: httpx.Client) -> None:
    """What a web page may send without asking first is not taken for a request."""
    body = b'{"messages": [{"role": "user", "content": "x"}]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/v1/users/u/messages", content=body, headers={"Content-Type": kind})
        assert refusal(answer) == INVALID
        assert "application/json" in answer.json()["error"]["message"]


# Connections


def test_clients_that_hang_up_leave_nothing_behind(process: Server) -> None:
    """In the middle of a request or of an answer, 90 times: no connection stays open."""
    with process.client() as client:
        post(client, "large", *[said("长" * 2000, f"m{n}") for n in range(40)])
        before = sample(client, "process_open_fds")
        hang_up(process, 90)
        assert len(read(client, "large")["items"]) == 40
        # The store may have opened some files of its own; a leak of ours would be 30 or more.
        wait_for(lambda: sample(client, "process_open_fds") < before + 20)
        assert "Traceback" not in process.log.read_text("utf-8")


def hang_up(server: Server, times: int) -> None:
    """Send a request, half of its body or half of its head, and be gone."""
    whole = b"GET /v1/users/large/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
    half = b"POST /v1/messages/lexical_search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
    half += b"Content-Type: application/json\r\n\r\n{"
    for number in range(times):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall((whole, half, whole[:20])[number % 3])
            if number % 6 == 0:  # the others do not even wait for the first byte
                connection.recv(100)


# Faults of our own


class BrokenMemory(AsyncMemory):
    """A memory with a fault in it."""

    async def messages(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("INSERT 绝密 secret INTO /var/lib/kemem")


async def test_a_fault_of_ours_is_logged_and_not_explained(tmp_path: Path) -> None:
    """The caller gets INTERNAL, the log the kind and place of the fault, nobody the text."""
    transport = httpx.ASGITransport(create_app(BrokenMemory(data_dir=tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with structlog.testing.capture_logs() as log:
            answer = await client.get("/v1/users/u/messages")
    assert refusal(answer) == (500, "INTERNAL")
    assert answer.headers["cache-control"] == "no-store"
    assert log[0]["kind"] == "RuntimeError"
    assert "test_http_faults.py" in log[0]["at"][-1]
    for text in (answer.text, str(log)):
        assert not any(word in text for word in ("绝密", "secret", "/var/lib"))
