"""Recalls over HTTP: one answer or events, who may see what, and clients that hang up."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from kemem.errors import Unavailable
from kemem.memory import AsyncMemory
from kemem.ports import ToolCall
from kemem.recall import Evidence, Limits, Recalled, Step
from kemem.serve.http.app import create_app
from kemem.serve.http.responses import Emit, EventStream, wants_events
from kemem.testing import calling
from kemem.testing.openai_server import Answer, running_openai_server
from tests.cases import each
from tests.routes import KEY, SECRET, keyed, token
from tests.server import (
    INVALID,
    MISSING,
    PATIENCE,
    Server,
    note_of,
    refusal,
    running_server,
    wait_for,
)
from tests.test_http import metrics

RECALL = "/v1/recall"
EVENTS = {"Accept": "text/event-stream"}
FORBIDDEN = (403, "PERMISSION_DENIED")
SAID = [
    ("zh", "用户不吃辣，火锅要清汤", "火锅要清汤吗？"),
    ("en", "User orders the mild hotpot without chilli", "Which hotpot does the user order?"),
]
BOTH = pytest.mark.parametrize(("user", "note", "question"), SAID)
ONE = pytest.mark.parametrize(("user", "note", "question"), SAID[:1])
STEP = Step(1, 1, "search_memories", {"query": "火锅 hotpot"}, True, "1", ("n_1",), 0, 0.1)


class Model:
    """A model that searches, and hands over as soon as it may."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()
        self.first: Answer = calling(
            "search_memories", query="火锅 hotpot", min_relevance_score=0.0
        )

    def __call__(self, request: dict[str, Any]) -> Answer:
        answers = [it["content"] for it in request["messages"] if it["role"] == "tool"]
        if not answers:
            return self.first
        self.may_end.wait(3 * PATIENCE)  # longer than any test waits for what must not wait
        found = re.findall(r'"memory_key":"([^"]+)"', answers[-1])
        told: dict[str, Any] = {"reason": "找到了 found", "search_summary": "火锅 hotpot"}
        told |= {"relevant_memory_keys": found, "confidence": 0.9, "needs_more_info": False}
        return calling("handoff", **told)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let it go on only after the block, or when the block says so."""
        self.may_end.clear()
        try:
            yield
        finally:
            self.may_end.set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with both credentials, and without a model."""
    data_dir = tmp_path_factory.mktemp("recall") / "data"
    with running_server(data_dir, llm="none", api_key=KEY, jwt_secret=SECRET) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """An operator of the server."""
    with keyed(server) as connected:
        yield connected


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """What the server with a model asks."""
    yield Model()


@pytest.fixture(scope="module")
def thinking(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model, and with a note in each language."""
    data_dir = tmp_path_factory.mktemp("thinking") / "data"
    with (
        running_openai_server(model) as there,
        running_server(data_dir, llm_base_url=there.base_url, llm_api_key="any") as running,
    ):
        with running.client() as connected:
            for user, note, _ in SAID:
                note_of(connected, user, note)
        yield running


def recalled(client: httpx.Client, user: str, question: str, **asked: Any) -> Any:
    """The answer to a recall that must succeed."""
    answer = client.post(RECALL, json={"question": question, "user_id": user, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The events of a stream as they come: their names and data."""
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def bound(server: Server, user: str, **claims: Any) -> httpx.Client:
    """A client with a token of a user."""
    return server.client(token(user, **claims))


# One answer, or events


@BOTH
def test_a_recall_answers_with_its_evidence(
    client: httpx.Client, user: str, note: str, question: str
) -> None:
    """The note, the message behind it, a text for a prompt, and every step."""
    name = note_of(client, user, note)
    found = recalled(client, user, question, max_iterations=1)
    assert (found["question"], found["by"], found["completed"]) == (question, "rules", True)
    assert name in found["relevant_memory_keys"]
    assert {it["content"] for it in found["evidence"]} == {note}
    assert found["message_ids"] and note in found["text"]
    assert found["limits"]["max_iterations"] == 1
    assert [it["tool"] for it in found["trace"]][-1] == "handoff"


@ONE
def test_events_tell_the_steps_and_then_the_result(
    client: httpx.Client, user: str, note: str, question: str
) -> None:
    """The result is what a request without events is answered with."""
    note_of(client, user, note)
    asked = {"question": question, "user_id": user}
    with client.stream("POST", RECALL, json=asked, headers=EVENTS) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert "content-length" not in answer.headers
        *steps, (name, result) = events(answer.iter_lines())
    assert ({it for it, _ in steps}, name) == ({"step"}, "result")
    assert [it for _, it in steps] == result["trace"]
    plain = recalled(client, user, question)
    for changing in ("trace", "message"):
        plain.pop(changing), result.pop(changing)
    assert plain == result


@ONE
def test_a_step_is_told_while_the_recall_goes_on(
    thinking: Server, model: Model, user: str, note: str, question: str
) -> None:
    """Nothing on the way holds it back until the end."""
    asked = {"question": question, "user_id": user}
    with (
        model.held(),
        thinking.client() as client,
        client.stream("POST", RECALL, json=asked, headers=EVENTS) as answer,
    ):
        coming = events(answer.iter_lines())
        assert next(coming)[1]["tool"] == "search_memories"
        model.may_end.set()  # so far the model could not go on
        *_, (name, result) = coming
    assert (name, result["by"]) == ("result", "llm")
    assert [it["content"] for it in result["evidence"]] == [note]


@each(
    ("accepted", "wanted"),
    [
        (["text/event-stream"], True),
        (["TEXT/Event-Stream; charset=utf-8"], True),
        (["text/event-stream, */*"], True),
        (["application/json;q=0.5, text/event-stream"], True),
        (["text/html", "text/event-stream;q=0.2"], True),
        (["text/event-stream, application/json"], True),
        (["application/json, text/event-stream"], False),
        (["application/json", "text/event-stream;q=0.9"], False),
        (["text/event-stream;q=0"], False),
        (["text/event-stream;q=0, */*"], False),
        (["*/*"], False),
        (["text/html, */*;q=0.8"], False),
        (["text/event-streams"], False),
        (["事件 events;;q=,"], False),
        ([""], False),
        ([], False),
    ],
)
def test_events_are_for_those_who_prefer_them(accepted: list[str], wanted: bool) -> None:
    """The better quality wins, then the exact name, then the first; JSON if there is a doubt."""
    headers = [(b"accept", it.encode()) for it in accepted]
    assert wants_events(Request({"type": "http", "headers": headers})) == wanted


# What is refused


@each("headers", [{}, EVENTS])
@each(
    ("field", "wrong"),
    [
        ("question", {"question": None}),
        ("question", {"question": ""}),
        ("question", {"question": " \n"}),
        ("question", {"question": "问" * 10_001}),
        ("user_id", {"user_id": None}),
        ("user_id", {"user_id": ""}),
        ("user_id", {"user_id": 7}),
        ("agent_id", {"agent_id": "a\nb"}),
        ("session_id", {"session_id": "早 early", "run_id": "晚 late"}),
        ("max_iterations", {"max_iterations": 0}),
        ("max_iterations", {"max_iterations": 11}),
        ("max_iterations", {"max_iterations": "3"}),
        ("max_iterations", {"max_iterations": True}),
        ("sensitive", {"sensitive": "yes"}),
        ("颜色", {"颜色": "red"}),
    ],
)
def test_a_wrong_question_is_refused_by_its_field(
    client: httpx.Client, field: str, wrong: dict[str, Any], headers: dict[str, str]
) -> None:
    """With its own status, also where events were asked for: no stream has begun."""
    body = {"question": "火锅 hotpot", "user_id": "u", **wrong}
    answer = client.post(RECALL, json=body, headers=headers)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"]["field"] == field


def test_a_question_needs_a_user(client: httpx.Client) -> None:
    """An agent or a session alone is not enough."""
    for ids in ({}, {"agent_id": "default"}, {"session_id": "s"}):
        answer = client.post(RECALL, json={"question": "火锅 hotpot", **ids})
        assert refusal(answer) == INVALID
        assert answer.json()["error"]["message"] == "user_id is required"


# Who may see what


@ONE
@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["json", "events"])
def test_a_token_recalls_for_its_own_user_only(
    server: Server,
    client: httpx.Client,
    user: str,
    note: str,
    question: str,
    headers: dict[str, str],
) -> None:
    """Another user does not exist for it, whether a stream is asked for or not."""
    own, other = f"own_{user}", f"other_{user}"
    note_of(client, own, note)
    note_of(client, other, f"{note} 秘密 secret")
    with bound(server, own) as alone:
        answer = alone.post(RECALL, json={"question": question, "user_id": own}, headers=headers)
        assert answer.status_code == 200
        assert note in answer.text and "秘密 secret" not in answer.text
        asked = {"question": question, "user_id": other}
        assert refusal(alone.post(RECALL, json=asked, headers=headers)) == MISSING
        asked = {"question": question, "agent_id": "default"}  # its user is meant
        answer = alone.post(RECALL, json=asked, headers=headers)
        assert note in answer.text and "秘密 secret" not in answer.text


@ONE
def test_what_is_sensitive_is_seen_only_where_that_is_granted(
    server: Server, client: httpx.Client, user: str, note: str, question: str
) -> None:
    """The key may ask for it, a token only with the claim; who does not ask does not see."""
    owner = f"private_{user}"
    name = note_of(client, owner, note, sensitive=True)

    def seen(asking: httpx.Client, **asked: Any) -> bool:
        found = recalled(asking, owner, question, **asked)
        shown = json.dumps(found, ensure_ascii=False)
        assert (name in shown) == (note in shown)
        return name in found["relevant_memory_keys"]

    with bound(server, owner) as alone, bound(server, owner, sensitive=True) as trusted:
        assert [seen(it) for it in (client, alone, trusted)] == [False] * 3
        assert [seen(it, sensitive=True) for it in (client, trusted)] == [True] * 2
        asked = {"question": question, "user_id": owner, "sensitive": True}
        for headers in ({}, EVENTS):
            refused = alone.post(RECALL, json=asked, headers=headers)
            assert refusal(refused) == FORBIDDEN
            assert '"sensitive": true' in refused.json()["error"]["message"]
        assert [seen(it) for it in (client, alone, trusted)] == [False] * 3  # caches keep apart


# Faults


class FailingMemory(AsyncMemory):
    """A memory whose recalls fail, after a step or before it."""

    error: Exception
    steps: tuple[Step, ...] = ()

    async def recall(
        self, *given: Any, on_step: Callable[[Step], None] | None = None, **named: Any
    ) -> Recalled:
        for step in self.steps:
            if on_step:
                on_step(step)
        raise self.error


@pytest.mark.parametrize(
    ("error", "refused", "logged"),
    [
        (RuntimeError("SELECT 绝密 secret FROM /var/lib"), (500, "INTERNAL"), 3),
        (Unavailable("绝密 secret at /var/lib"), (503, "UNAVAILABLE"), 1),  # for all three
    ],
)
async def test_a_fault_is_told_and_not_explained(
    tmp_path: Path, error: Exception, refused: tuple[int, str], logged: int
) -> None:
    """Before the first step as the answer, after it as the last event; in the same words."""
    memory = FailingMemory(data_dir=tmp_path)
    memory.error = error
    transport = httpx.ASGITransport(create_app(memory))
    asked: dict[str, Any] = {"json": {"question": "火锅 hotpot", "user_id": "u"}}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with structlog.testing.capture_logs() as log:
            plain = await client.post(RECALL, **asked)
            early = await client.post(RECALL, headers=EVENTS, **asked)
            memory.steps = (STEP,)
            late = await client.post(RECALL, headers=EVENTS, **asked)
    assert refusal(plain) == refusal(early) == refused
    told = [("step", STEP.to_dict()), ("error", plain.json())]
    assert (late.status_code, list(events(iter(late.text.splitlines())))) == (200, told)
    for text in (plain.text, early.text, late.text):
        assert not any(word in text for word in ("绝密", "secret", "/var/lib"))
    assert len([it for it in log if it["log_level"] in ("error", "warning")]) == logged


@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["json", "events"])
def test_half_characters_of_a_model_break_no_answer(
    thinking: Server, model: Model, headers: dict[str, str]
) -> None:
    """A model may call a tool by a name that is no text."""
    usual = model.first
    model.first = ToolCall("c_1", "搜索 search \ud800", "{}")
    try:
        with thinking.client() as client:
            asked = {"question": "火锅 hotpot", "user_id": "zh"}
            answer = client.post(RECALL, json=asked, headers=headers)
    finally:
        model.first = usual
    assert answer.status_code == 200, answer.text
    assert "搜索 search" in answer.text
    assert answer.content.decode()


# Connections


class Exchange:
    """The two ends of a connection, of which the client's may go away."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.on_send: Callable[[bytes], None] = lambda chunk: None
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.on_send(message.get("body", b""))

    @property
    def text(self) -> str:
        return b"".join(it.get("body", b"") for it in self.sent).decode()


async def test_silence_is_filled_with_comments() -> None:
    """Also before the first step, when the stream begins with one."""
    heard, exchange = asyncio.Event(), Exchange()

    def listen(chunk: bytes) -> None:
        if chunk.startswith(b":"):
            heard.set()

    async def work(emit: Emit) -> None:
        await heard.wait()
        heard.clear()
        emit("step", {"说 said": 1})
        await heard.wait()
        emit("result", {"完 done": 2})

    exchange.on_send = listen
    await EventStream(work, pause=0.01)({}, exchange.receive, exchange.send)
    shown = re.sub(r"(: ping\n\n)+", ": ping\n\n", exchange.text)
    first, second = ('event: step\ndata: {"说 said":1}', 'event: result\ndata: {"完 done":2}')
    assert shown == f": ping\n\n{first}\n\n: ping\n\n{second}\n\n"
    assert exchange.sent[0]["status"] == 200
    assert [it.get("more_body", False) for it in exchange.sent[1:]][-2:] == [True, False]


@pytest.mark.parametrize("steps", [0, 1])
async def test_who_hangs_up_ends_the_work(steps: int) -> None:
    """Before the first step or after it: the work is cancelled, and no task stays behind."""
    before, exchange, ended = asyncio.all_tasks(), Exchange(), asyncio.Event()

    async def work(emit: Emit) -> None:
        for _ in range(steps):
            emit("step", {"步 step": 1})
        exchange.gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stream = EventStream(work)({}, exchange.receive, exchange.send)
    if steps:
        await stream
    else:
        with pytest.raises(ClientDisconnect):
            await stream
        assert exchange.sent == []
    assert ended.is_set()
    assert asyncio.all_tasks() == before


async def test_a_server_that_stops_ends_the_work() -> None:
    """Whoever cancels the request cancels the work with it, and waits for its end."""
    before, exchange = asyncio.all_tasks(), Exchange()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(emit: Emit) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    serving = asyncio.create_task(EventStream(work)({}, exchange.receive, exchange.send))
    await begun.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert ended.is_set()
    assert asyncio.all_tasks() == before


def test_clients_that_hang_up_leave_nothing_behind(thinking: Server, model: Model) -> None:
    """While the model is still being asked, 40 times: each request ends, no connection stays."""
    count = 'kemem_requests_total{method="POST",route="/v1/recall",status="200"}'
    with model.held(), thinking.client() as watching:
        before = metrics(watching)
        for number in range(40):
            user, _, question = SAID[number % 2]
            asked = {"question": question, "user_id": user}
            with (
                thinking.client() as client,
                client.stream("POST", RECALL, json=asked, headers=EVENTS) as answer,
            ):
                assert next(events(answer.iter_lines()))[0] == "step"
        wait_for(lambda: metrics(watching).get(count, 0) == before.get(count, 0) + 40)
        files = "process_open_fds"
        # The store may have opened some files of its own; a leak of ours would be 40 or more.
        wait_for(lambda: metrics(watching)[files] < before[files] + 20)
    log = thinking.log.read_text("utf-8")
    assert "Traceback" not in log and "request failed" not in log


def test_a_server_stops_in_time_while_a_recall_goes_on(tmp_path: Path) -> None:
    """An open stream does not hold it up."""
    model = Model()
    with (
        running_openai_server(model) as there,
        running_server(
            tmp_path / "data", llm_base_url=there.base_url, llm_api_key="any"
        ) as stopping,
        model.held(),
        stopping.client() as client,
    ):
        asked = {"question": "火锅 hotpot", "user_id": "u"}
        with client.stream("POST", RECALL, json=asked, headers=EVENTS) as answer:
            assert next(events(answer.iter_lines()))[0] == "step"
            stopping.process.send_signal(signal.SIGTERM)
            stopping.process.wait(timeout=5)


# What is described and counted


@ONE
def test_metrics_show_how_well_the_caches_serve(
    server: Server, user: str, note: str, question: str
) -> None:
    """The same recall a second time is served from them, and what is counted never falls."""
    with keyed(server) as client:
        owner = f"cached_{user}"
        note_of(client, owner, note)
        counts = [metrics(client)]
        for _ in range(2):
            recalled(client, owner, question)
            counts.append(metrics(client))

    def grown(name: str, at: int) -> float:
        return counts[at][name] - counts[at - 1][name]

    hits, misses = (
        f'kemem_cache_lookups_total{{cache="search",outcome="{it}"}}' for it in ("hit", "miss")
    )
    assert (grown(hits, 1), grown(misses, 2)) == (0, 0)
    assert grown(misses, 1) >= 1 and grown(hits, 2) >= 1
    assert counts[2]['kemem_cache_entries{cache="search"}'] >= 1
    expected = counts[2][hits] / (counts[2][hits] + counts[2][misses])
    assert counts[2]['kemem_cache_hit_ratio{cache="search"}'] == pytest.approx(expected)
    assert {it for it in counts[2] if it.startswith("kemem_cache_entries")} == {
        f'kemem_cache_entries{{cache="{it}"}}'
        for it in ("expansion", "search", "content", "profile")
    }


def test_the_description_names_what_a_recall_answers(client: httpx.Client) -> None:
    """Both forms of the answer, and no field too many or too few."""
    described = client.get("/openapi.json").json()
    content = described["paths"][RECALL]["post"]["responses"]["200"]["content"]
    assert content.keys() == {"application/json", "text/event-stream"}
    assert content["application/json"]["schema"] == {"$ref": "#/components/schemas/Recalled"}
    schemas = described["components"]["schemas"]
    assert schemas["RecallRequest"]["required"] == ["question"]
    evidence = Evidence("n_1", "user_info", "taste", "火锅 hotpot", "", 0.5, "", 0, ("m_1",))
    limits = Limits(3, 100, 15, 60.0, (5,), (), None, None)
    found = Recalled(
        question="火锅 hotpot",
        completed=True,
        by="rules",
        reason="",
        search_summary="",
        confidence=0.5,
        needs_more_info=False,
        follow_up_question=None,
        evidence=(evidence,),
        message="",
        iteration_used=1,
        context_window_used=5,
        limits=limits,
        trace=(STEP,),
    ).to_dict()
    assert found.keys() == schemas["Recalled"]["properties"].keys()
    assert found["evidence"][0].keys() == schemas["Evidence"]["properties"].keys()
    assert found["limits"].keys() == schemas["Limits"]["properties"].keys()
    assert found["trace"][0].keys() == schemas["Step"]["properties"].keys()


def test_the_log_does_not_tell_what_was_asked(server: Server, client: httpx.Client) -> None:
    """Neither the question nor the user, in either form of the answer."""
    asked = {"question": "绝密zebra", "user_id": "log_user"}
    for headers in ({}, EVENTS):
        assert client.post(RECALL, json=asked, headers=headers).is_success
    log = server.log.read_text("utf-8")
    assert '"route": "/v1/recall"' in log
    assert not re.search("绝密|zebra|log_user|Traceback", log)
