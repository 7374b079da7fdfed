"""The HTTP face: what goes in comes back, every answer has its form, the process behaves."""

import json
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem.memory import AsyncMemory
from kemem.records import Matrix
from kemem.serve.http.app import create_app
from kemem.serve.http.message_routes import FIELD_NAMES
from kemem.settings import Settings
from tests.cases import each
from tests.server import (
    INVALID,
    LocalServer,
    Server,
    ids,
    local_server,
    post,
    read,
    refusal,
    running_server,
    said,
    search,
    wait_for,
)

BOTH = pytest.mark.parametrize("words", ["我不吃辣", "I do not eat spicy food"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app by words only."""
    with local_server(tmp_path_factory.mktemp("data")) as running:
        yield running


def metrics(client: httpx.Client) -> dict[str, float]:
    """The samples of /metrics by their names and labels."""
    lines = client.get("/metrics").text.splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


# Storing


@BOTH
def test_a_message_keeps_every_field(client: httpx.Client, words: str) -> None:
    """What was posted is read back, with the user of the path."""
    user = f"fields_{len(words)}"
    talk = {"session_id": "晚餐 dinner", "agent_id": "厨师 cook"}
    whole = said(
        words,
        "m2",
        role="assistant",
        **talk,
        content_type="markdown",
        parent_message_id="m1",
        metadata={"speaker": "李明", "mood": ["calm", 1, None, {"深": True}]},
    )
    post(client, user, said(words, "m1", **talk), whole)
    assert read(client, user)["items"][0] == {**whole, "user_id": user}


@BOTH
def test_what_is_left_out_is_filled_in(client: httpx.Client, words: str) -> None:
    """Role and content are enough: id, time and the other fields get their defaults."""
    user = f"defaults_{len(words)}"
    stored = post(client, user, {"role": "user", "content": words})
    (item,) = read(client, user)["items"]
    assert stored == {
        "inserted": [item["message_id"]],
        "ignored": [],
        "failed": [],
        "truncated": [],
        "pending": False,
    }
    assert item.keys() == set(FIELD_NAMES)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", item["ts"])
    assert (item["session_id"], item["agent_id"], item["metadata"]) == ("default", "default", {})
    assert item["parent_message_id"] is None


@BOTH
def test_a_batch_is_stored_wholly_or_not_at_all(client: httpx.Client, words: str) -> None:
    """One wrong message refuses its neighbours too, and is named."""
    user = f"atomic_{len(words)}"
    batch = [said(words, "m1"), {**said(words, "m2"), "content": 5}, said(words, "m3")]
    answer = client.post(f"/v1/users/{user}/messages", json={"messages": batch})
    assert refusal(answer) == INVALID
    assert "messages[1].content" in answer.json()["error"]["message"]
    assert read(client, user)["items"] == []


@BOTH
def test_a_message_that_is_too_long_is_cut_and_says_so(client: httpx.Client, words: str) -> None:
    """The limit is counted in bytes, and no character is broken."""
    user = f"long_{len(words)}"
    stored = post(client, user, said(words * 20_000, "m1"))
    assert stored["truncated"] == ["m1"]
    (item,) = read(client, user)["items"]
    assert (words * 20_000).startswith(item["content"])
    assert 102_396 < len(item["content"].encode()) <= 102_400
    assert item["metadata"] == {"truncated": True}


class AbsentModel:
    """An embedder that cannot be reached."""

    name = "absent"
    width = 3

    async def embed(self, texts: Sequence[str], *, purpose: str) -> Matrix:
        raise ConnectionError("the model is away")


async def test_messages_are_stored_while_the_model_is_away(tmp_path: Path) -> None:
    """They say that vectors are pending, and words find them."""
    async with AsyncMemory(data_dir=tmp_path, embedder=AbsentModel()) as memory:
        transport = httpx.ASGITransport(create_app(memory))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"messages": [said("我不吃辣 no spicy food", "m1")]}
            stored = (await client.post("/v1/users/u/messages", json=body)).json()
            assert (stored["inserted"], stored["pending"]) == (["m1"], True)
            asked = {"user_id": "u", "query_text": "辣 spicy"}
            assert ids((await client.post("/v1/messages/hybrid_search", json=asked)).json()) == [
                "m1"
            ]
            assert 'kemem_jobs{state="pending"} 1.0' in (await client.get("/metrics")).text


# Searching


@pytest.mark.parametrize(
    ("user", "word", "words"),
    [("why_zh", "不吃辣", "我不吃辣"), ("why_en", "spicy", "I do not eat spicy food")],
)
def test_hybrid_search_gives_score_reasons_and_highlights(
    client: httpx.Client, user: str, word: str, words: str
) -> None:
    """Each item is a message with what makes it a hit; a missing signal is named."""
    post(client, user, said(words, "m1"), said("别的 other", "m2"))
    (item,) = search(client, "hybrid", user, query_text=word)["items"]
    assert item.keys() == {*FIELD_NAMES, "score", "why", "highlights"}
    assert 0 < item["score"] <= 1
    assert item["why"][0].startswith("lexical#1")
    assert "semantic: unavailable" in item["why"]
    assert item["highlights"] == [words.replace(word, f"<mark>{word}</mark>")]


@pytest.mark.parametrize(("user", "word"), [("limit_zh", "茶"), ("limit_en", "tea")])
def test_hybrid_search_takes_a_filter_a_limit_and_fields(
    client: httpx.Client, user: str, word: str
) -> None:
    """The same filter as the other searches, `limit` items, and the wanted fields."""
    times = [f"2026-01-{day:02}T00:00:00.000000Z" for day in range(1, 16)]
    post(client, user, *[said(word, f"m{n:02}", ts) for n, ts in enumerate(times)])
    assert len(search(client, "hybrid", user, query_text=word)["items"]) == 10
    window = {"time_range": {"since": times[3], "until": times[6]}, "role": "user"}
    asked: dict[str, Any] = {"query_text": word, "filter": window, "return_fields": ["ts"]}
    found = search(client, "hybrid", user, **asked, limit=2)["items"]
    assert [item["ts"] for item in found] == [times[5], times[4]]
    assert found[0].keys() == {"ts", "score", "why", "highlights"}


@BOTH
def test_fields_of_null_mean_the_same_as_none(client: httpx.Client, words: str) -> None:
    """Clients that write every optional field as null are understood."""
    user = f"null_{len(words)}"
    empty = ("message_id", "ts", "session_id", "agent_id", "metadata", "parent_message_id")
    post(client, user, {"role": "user", "content": words, **dict.fromkeys(empty)})
    asked: dict[str, Any] = {"query_text": words, "filter": None, "return_fields": None}
    assert len(search(client, "lexical", user, **asked, cursor=None)["items"]) == 1
    nothing = {"time_range": {"since": None, "until": None}, "role": None}
    assert len(search(client, "lexical", user, query_text=words, filter=nothing)["items"]) == 1


@pytest.mark.parametrize("kind", ["lexical", "semantic", "hybrid"])
def test_what_a_request_does_not_know_is_refused(client: httpx.Client, kind: str) -> None:
    """Unknown fields anywhere, unknown return_fields, and numbers in quotes."""
    size = {"lexical": "page_size", "semantic": "top_k", "hybrid": "limit"}[kind]
    mistakes: dict[str, dict[str, Any]] = {
        "颜色 colour": {"颜色 colour": 1},
        "filter.agent": {"filter": {"agent": "x"}},
        "filter.time_range.from": {"filter": {"time_range": {"from": "2026"}}},
        "return_fields[1]": {"return_fields": ["ts", "embedding"]},
        size: {size: "5"},
        "user_id": {"user_id": 7},
    }
    for field, wrong in mistakes.items():
        body = {"user_id": "u", "query_text": "辣 spicy"} | wrong
        answer = client.post(f"/v1/messages/{kind}_search", json=body)
        assert refusal(answer) == INVALID
        assert answer.json()["error"]["details"]["field"] == field
        assert field in answer.json()["error"]["message"]


def test_unknown_query_parameters_are_refused(client: httpx.Client) -> None:
    """A misspelled filter must not silently show everything."""
    for path in ("/v1/users/u/messages", "/v1/users/u/messages/m/neighbors"):
        answer = client.get(path, params={"sinse": "2026-01-01T00:00:00Z"})
        assert refusal(answer) == INVALID
        assert "sinse" in answer.json()["error"]["message"]


def test_without_an_embedder_meaning_is_not_searched(client: httpx.Client) -> None:
    """The answer says why."""
    body = {"user_id": "u", "query_text": "辣 spicy"}
    answer = client.post("/v1/messages/semantic_search", json=body)
    assert refusal(answer) == (501, "UNAVAILABLE")
    assert "KEMEM_EMBEDDER" in answer.json()["error"]["message"]


# Answers


@each(
    "path", ["/healthz", "/v1/users/u/messages", "/docs", "/metrics", "/nowhere", "/v1/users/%ff"]
)
def test_every_answer_has_the_safe_headers(client: httpx.Client, path: str) -> None:
    """No sniffing, no caching, no name of the server, nothing shared across origins."""
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_description_knows_every_failure(client: httpx.Client) -> None:
    """Operations have names to call them by, and say what a failure looks like."""
    described = client.get("/openapi.json").json()
    operations = [it for methods in described["paths"].values() for it in methods.values()]
    assert len({it["operationId"] for it in operations}) == len(operations) == 63
    for operation in operations:
        nothing = {"204"} if operation["operationId"] == "rpc" else set()
        assert {"200", "4XX", "5XX"} | nothing == operation["responses"].keys()
        is_open = operation["operationId"] in ("healthz", "readyz", "docs", "openapi")
        either: list[dict[str, list[str]]]
        either = [] if is_open else [{"HTTPBearer": []}, {"APIKeyHeader": []}]
        assert operation.get("security", []) == either
    assert described["components"]["schemas"]["NewMessages"]["required"] == ["messages"]


@BOTH
def test_a_history_of_another_format_is_stored(client: httpx.Client, words: str) -> None:
    """What has no content is skipped and named, and so are unknown keys."""
    user = f"formats_{len(words)}"
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"q": words}}
    history = [
        {"role": "user", "content": [{"type": "text", "text": words}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "…"}, call]},
        {"role": "assistant", "content": None, "cost": 1},
    ]
    stored = client.post(f"/v1/users/{user}/messages", json={"messages": history}).json()
    assert (len(stored["inserted"]), stored["skipped"]) == (2, ["messages[2]"])
    assert stored["problems"] == ["a message has no content and is not stored; it has 'cost'"]
    items = read(client, user)["items"]
    assert [(it["role"], it["content_type"]) for it in items] == [
        *(("tool", "tool_call"), ("user", "text")),
    ]
    body = {"messages": {"messages": history, "system": words}, "user_id": f"added_{user}"}
    added = client.post("/v1/memories", json=body).json()
    assert (len(added["message_ids"]), added["skipped"]) == (3, ["messages[3]"])


def test_metrics_count_by_route_and_outcome(client: httpx.Client) -> None:
    """Labels are route templates: neither ids nor what was asked for stands in them."""
    before = metrics(client)
    post(client, "metrics_user", said("计数 count", "m1"))
    read(client, "metrics_user")
    client.get("/v1/users/metrics_user/messages", params={"role": "x"})
    client.request("BREW", "/v1/users/metrics_user/messages")
    client.get("/wp-login.php")
    after = metrics(client)

    def grown(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    route = 'route="/v1/users/{user_id}/messages"'
    assert grown(f'kemem_requests_total{{method="GET",{route},status="200"}}') == 1
    assert grown(f'kemem_requests_total{{method="GET",{route},status="400"}}') == 1
    assert grown(f'kemem_requests_total{{method="other",{route},status="405"}}') == 1
    assert grown('kemem_requests_total{method="GET",route="none",status="404"}') == 1
    assert grown(f'kemem_request_seconds_count{{method="POST",{route}}}') == 1
    assert grown('kemem_operations_total{operation="store_messages",outcome="ok"}') == 1
    assert grown('kemem_operations_total{operation="read_messages",outcome="refused"}') == 2
    assert grown("kemem_messages") == 1
    assert after['kemem_jobs{state="pending"}'] == after['kemem_jobs{state="failed"}'] == 0
    assert after["kemem_store_up"] == 1
    assert after["process_resident_memory_bytes"] > 1e6
    assert "metrics_user" not in client.get("/metrics").text


async def test_every_app_on_a_memory_hears_of_replies_and_recalls(tmp_path: Path) -> None:
    """A second app beside the first does not replace its listeners."""
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        for _ in range(2):
            app = create_app(memory)
        assert app.state.metrics.count_reply in memory.runtime.on_reply
        assert app.state.traces.take in memory.runtime.on_recall
        assert len(memory.runtime.on_reply) == len(memory.runtime.on_recall) == 2


def test_the_log_names_routes_but_not_what_was_said(tmp_path: Path) -> None:
    """Neither contents nor queries nor ids are in it, even where they were wrong."""
    secret = "绝密zebra"
    with running_server(tmp_path / "data") as server, server.client() as client:
        post(client, "log_user", said(secret, "log_message", metadata={"k": secret}))
        search(client, "hybrid", "log_user", query_text=secret)
        client.post("/v1/users/log_user/messages", json={"messages": [said(secret, secret * 20)]})
        client.post("/v1/messages/lexical_search", content=secret)
        client.get("/v1/users/log_user/messages", params={"role": secret})
        client.get("/v1/users/log_user/messages/log_missing/neighbors")
        log = server.log.read_text("utf-8")
    assert '"route": "/v1/messages/hybrid_search"' in log
    assert not re.search("绝密|zebra|log_user|log_message|log_missing|Traceback", log)


# The process


def test_a_server_without_its_store_lives_but_is_not_ready(tmp_path: Path) -> None:
    """Probes can tell the two apart, and callers learn no paths."""
    away, unavailable = "postgresql://127.0.0.1:9/nowhere", (503, "UNAVAILABLE")
    for given in ({}, {"api_key": "k"}):  # without one, the store says whether one is required
        data = tmp_path / "data"
        running = running_server(data, ready_at="/healthz", database_url=away, **given)
        with running as server, server.client(given.get("api_key")) as client:
            assert refusal(client.get("/readyz")) == unavailable
            answer = client.get("/v1/users/u/messages")
            assert refusal(answer) == unavailable
            assert "nowhere" not in answer.text
            assert answer.headers["Retry-After"] == "2"
            if given:
                assert metrics(client)["kemem_store_up"] == 0
            assert client.get("/healthz").json() == {"status": "alive"}


def test_a_server_warns_of_a_variable_that_it_does_not_know(tmp_path: Path) -> None:
    """A misspelt setting would be ignored without a word."""
    with running_server(tmp_path / "data", databse_url="postgresql://127.0.0.1:9/x") as server:
        warned = [it for it in server.log.read_text("utf-8").splitlines() if "unknown" in it]
    (line,) = map(json.loads, warned)
    assert (line["level"], line["names"]) == ("warning", ["KEMEM_DATABSE_URL"])
    with running_server(tmp_path / "other") as server:
        assert "unknown" not in server.log.read_text("utf-8")


def test_a_server_stops_in_time_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Cursors hold over a restart, and the worker embeds what was stored without a model."""
    batch = [said("我不吃辣", "zh"), said("I do not eat spicy food", "en", session_id="s2")]
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert post(client, "u", *batch)["pending"] is False
        first = read(client, "u", page_size=1)
        found = search(client, "lexical", "u", query_text="辣 spicy", page_size=1)
        stop_while_busy(server)
    with (
        running_server(tmp_path / "data", embedder="local") as server,
        server.client() as client,
    ):
        assert ids(first) + ids(read(client, "u", cursor=first["next_cursor"])) == ["en", "zh"]
        cursor = found["next_cursor"]
        rest = search(client, "lexical", "u", query_text="辣 spicy", cursor=cursor)
        assert {*ids(found), *ids(rest)} == {"en", "zh"}
        wait_for(lambda: metrics(client)["kemem_vectors"] == 2)
        near = search(client, "semantic", "u", query_text="吃不了辣椒", min_score=0.3)
        assert set(ids(near)) == {"en", "zh"}


def stop_while_busy(server: Server) -> None:
    """End a server that waits for the rest of a request; it may take 5 seconds."""
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"POST /v1/users/u/messages HTTP/1.1\r\nHost: localhost\r\n")
        half.sendall(b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=5)
