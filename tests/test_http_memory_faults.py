"""Requests for memories that are wrong: refused by name, never a fault; and what is described."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

from kemem.records import Link, Message, Note, Scope
from kemem.records.batch import Job
from kemem.records.serialization import adapter
from kemem.results import Added, Context, Hit, Item, Memories, Outcome
from tests.cases import each
from tests.server import (
    INVALID,
    LocalServer,
    local_server,
    note_of,
    notes,
    refusal,
)

MEMORIES, CHAT = "/v1/memories", "/v1/chat"
TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
JUNK: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**30, "", " ", "\0", "x" * 5000, "..", "' OR 1=1 --", "😀"),
    *([], [1], ["x"], {}, {"a": {"b": [None]}}, "2026-01-01T00:00:00Z", "c_AAAA", "{}", "[]"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app by words only."""
    with local_server(tmp_path_factory.mktemp("data")) as running:
        yield running


def operations(client: httpx.Client) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Every operation of the newer routes: method, path, query parameters, fields of the body."""
    described = client.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        if path.startswith("/v1/") and "/messages" not in path:
            for method, it in methods.items():
                yield method.upper(), path, *fields_of(it, schemas)


def fields_of(operation: dict[str, Any], schemas: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The names of an operation's query parameters and of its body's fields."""
    parameters = [it["name"] for it in operation.get("parameters", []) if it["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if not content:
        return parameters, []
    name = content["schema"]["$ref"].rpartition("/")[2]
    return parameters, list(schemas[name]["properties"])


def test_nothing_that_is_sent_makes_the_server_fail(client: httpx.Client) -> None:
    """Every field of every route with values of every kind: answered or refused, never a fault."""
    with structlog.testing.capture_logs() as log:
        _send_junk(client)
    assert not [line for line in log if line["event"] == "request failed"]


def _send_junk(client: httpx.Client) -> None:
    for method, path, parameters, fields in operations(client):
        url = path.replace("{", "").replace("}", "")
        right = {"user_id": "junk", "query": "x", "question": "x", "messages": "x"}
        body: dict[str, Any] = {name: right[name] for name in fields if name in right}
        query = {"user_id": "junk"} if "user_id" in parameters else {}
        for junk in JUNK:
            tries = [(query | {name: junk}, body) for name in parameters]
            tries += [(query, body | {name: junk}) for name in fields]
            for params, sent in tries:
                sent_body = sent if fields else None
                answer = client.request(method, url, params=params, json=sent_body)
                allowed = (200, 400, 404, 413, *([501] if path == CHAT else []))
                assert answer.status_code in allowed, (method, url, params, sent)
                assert answer.status_code == 200 or refusal(answer)


def test_what_a_request_does_not_know_is_refused(client: httpx.Client) -> None:
    """An unknown parameter or field on any route is named, not ignored.

    A chat says first that there is no model.
    """
    for method, path, parameters, fields in operations(client):
        url = path.replace("{", "").replace("}", "")
        tries: list[dict[str, Any]] = []
        if parameters or fields:
            tries += [{"params": {"颜色": 1}, "json": {} if fields else None}]
        if fields:
            tries += [{"params": {"user_id": "u"} if parameters else {}, "json": {"颜色": 1}}]
        for sent in tries:
            answer = client.request(method, url, **sent)
            if path == CHAT and "颜色" in (sent["json"] or {}):
                assert refusal(answer) == (501, "UNAVAILABLE")
                continue
            assert refusal(answer) == INVALID
            named = answer.json()["error"]["details"]["field"]
            # One that is missing may be named first.
            assert named == "颜色" or named in {*fields, *parameters}


@each(
    ("field", "wrong"),
    [
        ("messages", {"messages": 7}),
        ("messages", {"messages": []}),
        ("messages[1]", {"messages": [{"content": "a"}, 5]}),
        ("messages[0].user_id", {"messages": [{"content": "a", "user_id": "bob"}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
        ("messages[0].role", {"messages": {"role": "老师", "content": "a"}}),
        ("infer", {"infer": "yes"}),
        ("metadata", {"metadata": [1]}),
        ("memory_type", {"memory_type": "medium"}),
        ("expires_at", {"expires_at": "2026"}),
        ("user_id", {"user_id": 7}),
        ("user_id", {"user_id": "a\nb"}),
        ("颜色", {"颜色": "red"}),
    ],
)
def test_a_wrong_addition_is_refused_by_its_field(
    client: httpx.Client, field: str, wrong: dict[str, Any]
) -> None:
    """And nothing of it is stored."""
    body = {"messages": "我喜欢茶 tea", "user_id": "wrong", **wrong}
    answer = client.post(MEMORIES, json=body)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"]["field"] == field
    assert notes(client, user_id="wrong", kinds=["message", "user_info"]) == {}


@each(
    ("field", "wrong"),
    [
        ("query", {"query": 1}),
        ("limit", {"limit": 0}),
        ("limit", {"limit": "5"}),
        ("top_k", {"top_k": 1.5}),
        ("threshold", {"threshold": 2}),
        ("threshold", {"threshold": "high"}),
        ("kinds", {"kinds": []}),
        ("kinds", {"kinds": ["secret"]}),
        ("kinds", {"kinds": "message"}),
        ("as_of", {"as_of": "yesterday"}),
        ("filters", {"filters": [1]}),
        ("filters", {"filters": {"n": {"near": 1}}}),
        ("rerank", {"rerank": 1}),
        ("explain", {"explain": "yes"}),
        ("filter", {"filter": {}}),
    ],
)
def test_a_wrong_question_is_refused_by_its_field(
    client: httpx.Client, field: str, wrong: dict[str, Any]
) -> None:
    """Numbers in quotes, sizes and shares out of range, unknown kinds and operators."""
    body = {"query": "茶 tea", "user_id": "u", **wrong}
    answer = client.post(f"{MEMORIES}/search", json=body)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"]["field"] == field


@each(
    "filters",
    [
        *(
            "",
            "{",
            "null",
            "[]",
            "7",
            '"x"',
            "{'n': 1}",
            '{"n": NaN}',
            '{"n": {"near": 1}}',
            '{"AND": 1}',
        ),
        *(
            '{"n": "\\ud800"}',
            "[" * 5000,
            '{"user_id": 7}',
            '{"user_id": "b"}',
            '{"run_id": "a\\nb"}',
        ),
    ],
)
def test_filters_in_a_url_that_are_none_are_refused(client: httpx.Client, filters: str) -> None:
    """Not JSON, not an object, not a condition, or of another user than the one named."""
    name = note_of(client, "a")
    for call in (client.get, client.delete):
        answer = call(MEMORIES, params={"user_id": "a", "filters": filters})
        assert refusal(answer) == INVALID
        assert answer.json()["error"]["details"]["field"] in ("filters", "user_id", "session_id")
    assert name in notes(client, user_id="a")


WITHOUT_IDS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/memories", {"messages": "茶 tea", "infer": False}),
    ("POST", "/v1/memories/search", {"query": "茶 tea"}),
    ("GET", "/v1/memories", None),
    ("DELETE", "/v1/memories", None),
    ("POST", "/v1/memories/extract", {}),
    ("GET", "/v1/graph", None),
]


@each(("method", "path", "body"), WITHOUT_IDS)
def test_a_session_without_its_user_is_refused(
    client: httpx.Client, method: str, path: str, body: Any
) -> None:
    """Sessions of several users may have one id: none of them is read or erased."""
    names = [note_of(client, user, session_id="同 same") for user in ("a", "b")]
    ids = {"session_id": "同 same"}
    if body is None:
        answer = client.request(method, path, params=ids)
    else:
        answer = client.request(method, path, json={**body, **ids})
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"] == {"field": "user_id"}
    for user, name in zip(("a", "b"), names, strict=True):
        assert name in notes(client, user_id=user)
    assert notes(client, user_id="default") == {}


@each(
    "filters", [{"user_id": "filtered"}, {"AND": [{"user_id": "filtered"}, {"kind": "user_info"}]}]
)
def test_a_filter_can_name_the_user(client: httpx.Client, filters: Any) -> None:
    name = note_of(client, "filtered")
    body = {"query": "茶 tea", "filters": filters}
    found = client.post("/v1/memories/search", json=body)
    assert name in [it["id"] for it in found.json()["results"]]


@each(
    ("method", "path", "body"),
    [
        *WITHOUT_IDS,
        ("POST", "/v1/memories/forget", {}),
        ("GET", "/v1/memories/forgotten", None),
        ("GET", "/v1/sessions", None),
    ],
)
def test_a_call_without_ids_is_refused(
    client: httpx.Client, method: str, path: str, body: Any
) -> None:
    """Of a user, an agent or a session; also not when it is empty or null."""
    note_of(client, "someone")
    answers = [client.request(method, path, json=body)]
    if body is None:
        answers += [client.request(method, path, params={"user_id": ""})]
    else:
        answers += [client.request(method, path, json={**body, "user_id": None})]
    for answer in answers:
        assert refusal(answer) == INVALID
        assert answer.json()["error"]["details"] == {"field": "user_id"}


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    """Before anything of it is looked at."""
    body = {"messages": "长" * 400_000, "user_id": "large"}
    assert refusal(client.post(MEMORIES, json=body)) == TOO_LARGE
    many = {"messages": [{"content": "x"}] * 5001, "user_id": "large"}
    assert refusal(client.post(MEMORIES, json=many)) == TOO_LARGE


# The description


def test_routes_are_counted_by_their_templates(client: httpx.Client) -> None:
    """No id stands in a label."""
    client.get(f"{MEMORIES}/secret_id", params={"user_id": "secret_user"})
    text = client.get("/metrics").text
    assert 'route="/v1/memories/{memory_id}"' in text
    assert 'operation="read_memory",outcome="refused"' in text
    assert "secret_" not in text


def described(record: Any) -> set[str]:
    """The names that a schema has for what a type of record shows."""
    schema = adapter(record).json_schema(mode="serialization")
    return set(schema["properties"])


def test_the_description_names_what_the_library_answers() -> None:
    """No field is left out over HTTP, and none is described that never comes."""
    row: dict[str, Any] = {"agent_id": "a", "user_id": "u", "session_id": "s", "content": "x"}
    message = Message("m", role="user", ts=0, ingest_time=0, **row)
    when: dict[str, Any] = {"ts": 0, "created": 0, "updated": 0, "valid_from": 0}
    note = Note("n", kind="user_info", digest="d", **when, **row)
    fields = Item(message).to_dict().keys() | Item(note).to_dict().keys()
    assert fields | {"withdrawn"} == described(Item)
    hit = Hit(note, 0.5, ("why",), ended=1, superseded_by="n2", in_reply_to="?")
    assert hit.to_dict().keys() | {"role", "withdrawn"} == described(Hit)
    hits = Memories((hit,), "c_", missing=("semantic",), total=1)
    assert hits.to_dict().keys() == described(Memories[Hit])
    outcome = Outcome("n", "x", "UPDATE", "y")
    assert outcome.to_dict().keys() == described(Outcome)
    added = Added((outcome,), (Link("n", "a", "b", "c"),), skipped=("messages[0]",))
    assert added.to_dict().keys() == described(Added)
    assert Context().to_dict().keys() == described(Context)
    job = Job("j", "embed", Scope("a"), due=0)
    assert job.to_dict().keys() == described(Job)
