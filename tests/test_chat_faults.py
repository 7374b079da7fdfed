"""Single chats when things go wrong: leaks, models and stores that fail, turns that nobody ends."""

import asyncio
import gc
import json
import logging
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory
from kemem.chat import (
    ChatService,
    DoneEvent,
    ErrorEvent,
    Event,
    RecallEvent,
    TextEvent,
    ToolResultEvent,
)
from kemem.chat.events import Reply as ChatReply
from kemem.chat.turn import STEPS
from kemem.errors import Unavailable
from kemem.ports import Reply, ToolCall
from kemem.ports.request import SearchResponse
from kemem.records import Message
from kemem.records.batch import Applied, Batch
from kemem.settings import load
from kemem.testing import ScriptedLLM, calling
from kemem.testing.openai_server import (
    EMPTY,
    GARBAGE,
    NO_CHOICES,
    RESET,
    STRICT,
    TRUNCATED,
    Answer,
    Fault,
    Streamed,
    hang,
    running_openai_server,
    status,
)
from kemem_conformance.ram import RamStore
from tests import warm
from tests.chats import (
    CHINESE,
    ENGLISH,
    PATIENCE,
    TALK,
    TALKS,
    Stage,
    Talk,
    kinds,
    leaked,
    results,
    roles,
    staged,
)
from tests.recalls import Ready, parts_with

RECALL = "recall_memory"
LIMIT = 2  # recalls of a model in a turn, as the settings have it
MARKUP = re.compile(r"DSML|invoke|function_calls|tool_calls|parameter|[<＜][|｜]")
LEAKS = {
    "whole": lambda query: Streamed(leaked(query), piece=1000),
    "per character": lambda query: Streamed(leaked(query), piece=1),
    "cut": lambda query: Streamed(leaked(query)[:-50], piece=3),
    "cut by a limit": lambda query: Streamed(leaked(query)[:-70], finish_reason="length"),
    "ASCII pipes": lambda query: Streamed(leaked(query).replace("｜", "|"), piece=2),
    "code fence": lambda query: Streamed(f"```xml\n{leaked(query)}\n```", piece=4),
    "in thoughts": lambda query: Streamed("", reasoning=leaked(query), piece=1),
}
PROSE = {
    "zh": "function_calls 是 DSML 的标签名，如 a <| b、1 < 2、`tool_calls`。\n```py\na < b\n```",
    "en": "The function_calls of DSML, a <| b, 1 < 2, List<int>, `tool_calls`:\n```py\na | b\n```",
}
FAULTS: dict[str, Answer] = {
    "401": status(401, "wrong key sk-secret"),
    "429": status(429, "slow down, sk-secret"),
    "500": status(500, "sk-secret"),
    "reset": RESET,
    "no stream": GARBAGE,
    "half a body": TRUNCATED,
    "no choices": NO_CHOICES,
    "no body": EMPTY,
}
UNREADABLE = [  # events of a stream
    b"{sk-secret",
    b"null",
    b'{"choices": 5}',
    b'{"error": {"message": "sk-secret"}}',
]


def failure(events: list[Event]) -> ErrorEvent:
    """The error that a turn ends with; it tells nothing that a server said."""
    last = events[-1]
    assert isinstance(last, ErrorEvent) and "done" not in kinds(events)
    assert last.code == "UNAVAILABLE" and last.message and "sk-secret" not in last.message
    return last


async def works(stage: Stage, user: str, talk: Talk) -> dict[str, Any]:
    """The request of another turn, which succeeds: a strict server refuses orphans in it."""
    stage.model.says(talk.reply)
    *_, done = await stage.turn(talk.message, user)
    assert isinstance(done, DoneEvent) and done.text == talk.reply
    (request,) = stage.model.asked
    return request


@contextmanager
def collected_in_the_loop() -> Iterator[None]:
    """What a client leaves half read is no garbage of the store's threads.

    CPython complains where a thread finalises generators that the loop is closing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.enable()


def of_tools(events: list[Event]) -> list[Any]:
    """What tools answered in a turn, from JSON."""
    return [json.loads(it.result) for it in events if isinstance(it, ToolResultEvent)]


# Calls in the text


@TALK
@pytest.mark.parametrize("form", LEAKS)
async def test_a_call_in_the_text_is_seen_by_nobody(
    stage: Stage, user: str, talk: Talk, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In no event, not in what is stored, not in what the model reads; it is counted and logged."""
    leak: Streamed = LEAKS[form](talk.query)
    before = stage.counts.total
    stage.model.says(replace(leak, text=f"{talk.message}\n{leak.text}"), talk.reply)
    with caplog.at_level(logging.ERROR, "kemem"):
        events = await stage.turn(talk.message, user)
    end = events[-1]
    assert isinstance(end, ErrorEvent if form == "cut by a limit" else DoneEvent)
    assert end.text.startswith(talk.message) and stage.counts.total - before == 1
    assert getattr(end, "leaks", 1) == 1
    shown = [json.dumps(it.to_dict(), ensure_ascii=False) for it in events]
    stored = [content for _, content in await stage.said(user)]
    read = [str(it.get("content")) for request in stage.model.asked for it in request["messages"]]
    assert not [text for text in (*shown, *stored, *read) if MARKUP.search(text)]
    (logged,) = [it.getMessage() for it in caplog.records if it.name == "kemem"]
    assert "dsml" in logged and talk.query not in logged


@TALKS
async def test_prose_about_calls_is_not_swallowed(stage: Stage, user: str, talk: Talk) -> None:
    """Byte for byte, though it comes letter by letter."""
    stage.model.says(Streamed(PROSE[talk.language], piece=1))
    *_, done = await stage.turn(talk.message, user)
    assert isinstance(done, DoneEvent) and done.text == PROSE[talk.language] and not done.leaks
    assert (await stage.said(user))[-1] == ("assistant", PROSE[talk.language])


# Calls that cannot be carried out


@TALK
async def test_arguments_that_do_not_fit_are_told_to_the_model(
    stage: Stage, user: str, talk: Talk
) -> None:
    """Each with a structured answer; nothing of it counts, and the model replies."""
    await stage.memory.add(talk.note, user, infer=False)
    wrong = ['{"query": ', "[]", '"x"', "null", "{}", '{"query": 5}', '{"query": " "}', "NaN"]
    calls = [ToolCall("", RECALL, it) for it in wrong]
    right = ToolCall("", RECALL, json.dumps({"query": talk.query, "user_id": "somebody else"}))
    stage.model.says(calls, right, talk.reply)
    events = await stage.turn(talk.message, user)
    *refused, found = of_tools(events)
    assert len(refused) == len(wrong) and events[-1].type == "done"
    for answer in refused:
        assert answer.keys() == {"error"} and answer["error"]["code"] == "INVALID_ARGUMENT"
    assert [it["content"] for it in found["events"]] == [talk.note], "the user is not an argument"


@TALK
async def test_a_tool_that_there_is_not_is_told_to_the_model(
    stage: Stage, user: str, talk: Talk
) -> None:
    """With a structured answer, in its own events, and the model replies."""
    stage.model.says([calling("delete_all"), calling("回忆", query=talk.query)], talk.reply)
    events = await stage.turn(talk.message, user)
    assert kinds(events) == ["recall", *["tool_call"] * 2, *["tool_result"] * 2, "text", "done"]
    assert [it["error"]["message"] for it in of_tools(events)] == [
        "there is no tool 'delete_all'",
        "there is no tool '回忆'",
    ]
    assert await stage.said(user) == [("user", talk.message), ("assistant", talk.reply)]


@TALKS
async def test_fifty_recalls_at_once_search_as_often_as_the_limit_allows(
    stage: Stage, user: str, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are told so; then the model replies."""
    await stage.memory.add(talk.note, user, infer=False)
    stage.model.says([calling(RECALL, query=talk.query) for _ in range(50)], talk.reply)
    with caplog.at_level(logging.INFO, "kemem"):
        events = await stage.turn(talk.message, user)
    answers = of_tools(events)
    assert len(answers) == 50 and events[-1].type == "done"
    found = [it for it in answers if it["events"]]
    refused = [it for it in answers if it.get("limit_reached")]
    assert len(found) == LIMIT and len(refused) == 50 - LIMIT
    assert all(str(LIMIT) in it["message"] for it in refused)
    searched = [it for it in caplog.messages if it.startswith("recall_memory: query")]
    assert len(searched) == LIMIT


@TALK
async def test_a_model_that_does_nothing_but_recall_is_stopped(
    stage: Stage, user: str, talk: Talk
) -> None:
    """One recall after the other: as often as the limit allows, and not for ever.

    Its tools are taken away; what they returned stands in the instructions.
    """
    await stage.memory.add(talk.note, user, infer=False)
    stage.model.says(*[lambda _: calling(RECALL, query=talk.query)] * 50)
    events = await stage.turn(talk.message, user)
    answers = of_tools(events)
    assert [bool(it["events"]) for it in answers[: LIMIT + 1]] == [True] * LIMIT + [False]
    assert all(it["limit_reached"] for it in answers[LIMIT:])
    assert len(answers) == LIMIT + 2 and len(stage.model.asked) == LIMIT + 3 < STEPS
    assert "nothing" in failure(events).message
    *_, last = stage.model.asked
    assert "tools" not in last and roles(last) == ["system", "user"]
    assert talk.note in last["messages"][0]["content"]
    await works(stage, user, talk)


@TALKS
async def test_a_model_without_its_tools_answers(stage: Stage, user: str, talk: Talk) -> None:
    """As the 1.5 B model does that calls a tool whenever it sees one."""
    await stage.memory.add(talk.note, user, infer=False)

    def call_while_there_are_tools(request: dict[str, Any]) -> Answer:
        return calling(RECALL, query=talk.query) if request.get("tools") else talk.reply

    stage.model.says(*[call_while_there_are_tools] * 50)
    *_, done = await stage.turn(talk.message, user)
    assert isinstance(done, DoneEvent) and done.text == talk.reply
    assert (await stage.said(user))[-2:] == [("user", talk.message), ("assistant", talk.reply)]


@TALK
async def test_a_model_that_speaks_before_it_calls_without_end_has_answered(
    stage: Stage, user: str, talk: Talk
) -> None:
    said = Reply(talk.reply, calls=(calling(RECALL, query=talk.query),))
    stage.model.says(said, *[calling(RECALL, query=talk.query) for _ in range(50)])
    *_, done = await stage.turn(talk.message, user)
    assert isinstance(done, DoneEvent) and done.text == talk.reply


# A model that fails


@TALK
async def test_a_model_that_fails_ends_the_turn_with_an_error(
    stage: Stage, user: str, talk: Talk
) -> None:
    """What the user said is kept, and the next turn shows it to the model."""
    for name, fault in FAULTS.items():
        stage.model.says(fault)
        events = await stage.turn(f"{talk.message} {name}", user)
        assert kinds(events) == ["recall", "error"], name
        assert (failure(events).text, failure(events).message_id) == ("", "")
    said = [("user", f"{talk.message} {name}") for name in FAULTS]
    assert await stage.said(user) == said
    request = await works(stage, user, talk)
    assert [(it["role"], it["content"]) for it in request["messages"]][1 : len(said) + 1] == said


@TALK
async def test_a_model_that_cannot_be_understood_has_failed(
    stage: Stage, user: str, talk: Talk
) -> None:
    """Whatever its client raises then."""
    with collected_in_the_loop():
        for event in UNREADABLE:
            stage.model.says(Fault(b"data: " + event + b"\n\n"))
            events = await stage.turn(talk.message, user)
            assert kinds(events) == ["recall", "error"] and failure(events).text == ""
    await works(stage, user, talk)


@TALK
async def test_a_model_that_says_nothing_has_failed(stage: Stage, user: str, talk: Talk) -> None:
    """No empty reply is stored."""
    for nothing in (None, "", " \n　"):
        stage.model.says(nothing)
        assert "nothing" in failure(await stage.turn(talk.message, user)).message
    assert await stage.said(user) == [("user", talk.message)] * 3


@TALK
@pytest.mark.parametrize("calls_first", [False, True], ids=["at once", "after a call"])
async def test_a_reply_that_breaks_off_is_kept_and_marked(
    stage: Stage, user: str, talk: Talk, calls_first: bool
) -> None:
    """As far as it came; the next turn shows it without a call that nobody answered."""
    first = [Streamed("…", calls=(calling(RECALL, query=talk.query),))] if calls_first else []
    stage.model.says(*first, Streamed(talk.reply, piece=2, breaks_after=3))
    events = await stage.turn(talk.message, user)
    error, part = failure(events), ("…" if calls_first else "") + talk.reply[:6]
    assert error.text == part == "".join(it.delta for it in events if isinstance(it, TextEvent))
    said, partial = await stage.stored(user)
    assert (said.role, partial.role, partial.content) == ("user", "assistant", part)
    assert partial.metadata == {"partial": True} and partial.message_id == error.message_id
    request = await works(stage, user, talk)
    assert roles(request) == ["system", *["user", "assistant"] * 2, "tool"]
    assert request["messages"][2]["content"] == part


@TALK
async def test_a_call_that_breaks_off_is_not_run(stage: Stage, user: str, talk: Talk) -> None:
    """Neither one that the model makes nor one that leaks into its text."""
    for broken in (
        Streamed("", calls=(calling(RECALL, query=talk.query),), piece=2, breaks_after=4),
        Streamed(leaked(talk.query), piece=30, breaks_after=4),
    ):
        stage.model.says(broken)
        events = await stage.turn(talk.message, user)
        assert kinds(events) == ["recall", "error"] and failure(events).text == ""
    assert await stage.said(user) == [("user", talk.message)] * 2
    await works(stage, user, talk)


async def test_a_model_that_hangs_is_waited_for_as_long_as_the_settings_say(
    tmp_path: Path,
) -> None:
    """Whether it says nothing at all or stops in the middle; then the turn is over."""
    slow: dict[str, Answer] = {}
    for talk in (CHINESE, ENGLISH):
        slow[talk.message] = hang(60)
        slow[talk.note] = Streamed(talk.reply, piece=3, pause=60)

    def answer(request: dict[str, Any]) -> Answer:
        return slow[request["messages"][1]["content"]]

    drawing = ScriptedLLM([{"facts": [], "entities": []}], repeat=True)
    with running_openai_server(answer) as server:
        named: Any = {"llm_base_url": server.base_url, "llm_timeout_seconds": 1.0}
        named["chat_recall"] = "call"
        chosen = load(data_dir=tmp_path, embedder="none", **named)
        async with AsyncMemory(settings=chosen, llm=drawing) as memory:
            chat = ChatService(memory)
            turns = [
                chat.reply(it, user_id=f"u_{at}", session_id="s") for at, it in enumerate(slow)
            ]
            async with asyncio.timeout(PATIENCE):
                ended = await asyncio.gather(*turns, return_exceptions=True)
                await chat.close()
            logs = [(await memory.messages(f"u_{at}")).items for at in range(4)]
    assert [type(it) for it in ended] == [Unavailable, ChatReply] * 2
    parts = [it for it in ended if isinstance(it, ChatReply)]
    assert [it.text for it in parts] == [CHINESE.reply[:3], ENGLISH.reply[:3]]
    assert all(it.error for it in parts)
    said = [[it.content for it in reversed(log)] for log in logs]
    assert said[::2] == [[CHINESE.message], [ENGLISH.message]]
    assert said[1::2] == [[it.note, it.reply[:3]] for it in (CHINESE, ENGLISH)]


# A memory that fails


class Broken(RamStore):
    """A store that cannot be searched, or cannot be written to any more."""

    searches = "fail"
    writes_left = 1_000

    async def search(self, *given: Any, **named: Any) -> SearchResponse:
        if self.searches == "hang":
            await asyncio.Event().wait()
        raise OSError("/secret/path")

    async def apply(self, *given: Any, **named: Any) -> Any:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise Unavailable("/secret/path")
        return await super().apply(*given, **named)


def memory_on(store: RamStore) -> AsyncMemory:
    """A memory without models on a store of the test's own."""
    memory = AsyncMemory(settings=load(embedder="none", llm="none", chat_recall="call"))
    memory.runtime = Ready(parts_with(store=store))
    return memory


@TALK
@pytest.mark.parametrize("searches", ["fail", "hang"])
async def test_a_recall_that_fails_is_told_and_the_turn_goes_on(
    tmp_path: Path, talk: Talk, searches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forced one and the model's own; neither tells what the store said."""
    monkeypatch.setattr("kemem.chat.tools.SECONDS", 0.05)
    store = Broken()
    store.searches = searches
    async with staged(tmp_path, memory_on(store)) as stage:
        stage.model.says(calling(RECALL, query=talk.query), talk.reply)
        async with asyncio.timeout(PATIENCE):
            events = await stage.turn(talk.message, "u")
        assert kinds(events) == ["recall", "tool_call", "tool_result", "text", "done"]
        recall, (answer,) = events[0], of_tools(events)
        assert isinstance(recall, RecallEvent) and not recall.events and recall.problem
        assert answer["events"] == [] and answer["error"]
        assert results(stage.model.asked[0]) == [{"events": []}]
        assert "secret" not in json.dumps([stage.model.asked, [it.to_dict() for it in events]])
        assert await stage.said("u") == [("user", talk.message), ("assistant", talk.reply)]


@TALK
async def test_a_reply_that_cannot_be_stored_ends_with_an_error(tmp_path: Path, talk: Talk) -> None:
    """With its text, which the user has seen, and without an id."""
    store = Broken()

    def answer(request: dict[str, Any]) -> Answer:
        store.writes_left = 0
        return talk.reply

    async with staged(tmp_path, memory_on(store)) as stage:
        stage.model.says(answer)
        error = failure(await stage.turn(talk.message, "u"))
        assert (error.text, error.message_id) == (talk.reply, "")
        assert "secret" not in error.message
        assert await stage.said("u") == [("user", talk.message)]


# Turns that nobody ends


@TALK
async def test_a_turn_that_nobody_listens_to_any_more_is_over(
    stage: Stage, user: str, talk: Talk
) -> None:
    """The model is let go, no task is left, and what it had said is kept as a part."""
    before = asyncio.all_tasks()
    stage.api.hung_up.clear()
    stage.model.says(Streamed(talk.reply, piece=3, pause=60))
    async with aclosing(stage.chat.turn(talk.message, user_id=user, session_id="s")) as events:
        async for event in events:
            if isinstance(event, TextEvent):
                break
    await nothing_is_left(stage, before)
    _, partial = await stage.stored(user)
    assert (partial.content, partial.metadata) == (talk.reply[:3], {"partial": True})
    await works(stage, user, talk)


@TALK
async def test_a_turn_that_is_cancelled_is_over(stage: Stage, user: str, talk: Talk) -> None:
    """Just so, wherever it is cancelled."""
    before = asyncio.all_tasks()
    stage.api.hung_up.clear()
    stage.model.says(Streamed(talk.reply, piece=3, pause=60))
    speaking = asyncio.Event()

    async def listen() -> None:
        async for event in stage.chat.turn(talk.message, user_id=user, session_id="s"):
            if isinstance(event, TextEvent):
                speaking.set()

    task = asyncio.create_task(listen())
    async with asyncio.timeout(PATIENCE):
        await speaking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_is_left(stage, before)
    _, partial = await stage.stored(user)
    assert (partial.content, partial.metadata) == (talk.reply[:3], {"partial": True})
    await works(stage, user, talk)


@TALK
async def test_a_turn_can_be_left_before_the_model_is_asked(
    stage: Stage, user: str, talk: Talk
) -> None:
    """What the user said is kept."""
    stage.model.says(talk.reply)
    async with aclosing(stage.chat.turn(talk.message, user_id=user, session_id="s")) as events:
        assert (await anext(events)).type == "recall"
    assert not stage.model.asked
    assert await stage.said(user) == [("user", talk.message)]
    await works(stage, user, talk)


class Slow(RamStore):
    """A store that takes its time with what assistants say."""

    def __init__(self) -> None:
        super().__init__()
        self.storing, self.go_on = asyncio.Event(), asyncio.Event()

    async def apply(self, batch: Batch) -> Applied:
        if any(isinstance(it, Message) and it.role == "assistant" for it in batch.put):
            self.storing.set()
            await self.go_on.wait()
        return await super().apply(batch)


@TALK
async def test_a_reply_is_stored_though_its_turn_is_cancelled_meanwhile(
    tmp_path: Path, talk: Talk
) -> None:
    """Whoever has read it to its end and goes away loses nothing."""
    store = Slow()
    async with staged(tmp_path, memory_on(store)) as stage:
        stage.model.says(talk.reply)
        task = asyncio.create_task(stage.turn(talk.message, "u"))
        async with asyncio.timeout(PATIENCE):
            await store.storing.wait()
            task.cancel()
            asyncio.get_running_loop().call_soon(store.go_on.set)
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await stage.said("u") == [("user", talk.message), ("assistant", talk.reply)]


async def nothing_is_left(stage: Stage, before: set[asyncio.Task[Any]]) -> None:
    """The server was hung up on, and no task goes on once all is remembered."""
    assert await asyncio.to_thread(stage.api.hung_up.wait, PATIENCE)
    await stage.chat.close()
    async with asyncio.timeout(PATIENCE):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)


KILLED = """
import asyncio, os, signal, sys
from openai import AsyncOpenAI
from kemem import AsyncMemory
from kemem.records.batch import Applied, Batch
from kemem.chat import ChatService
from kemem.settings import load

directory, base_url, *said = sys.argv[1:]

async def main():
    settings = load(data_dir=directory, embedder="none", llm="none", chat_recall="call")
    memory = AsyncMemory(settings=settings)
    chat = ChatService(memory, client=AsyncOpenAI(base_url=base_url, api_key="any"), model="any")
    calling = asyncio.Barrier(len(said))

    async def talk(message):
        async for event in chat.turn(message, user_id=message[0], session_id="s"):
            if event.type == "tool_call":
                await calling.wait()
                os.kill(os.getpid(), signal.SIGKILL)

    await asyncio.gather(*map(talk, said))

asyncio.run(main())
"""


async def test_a_process_that_is_killed_in_a_call_leaves_no_orphan(tmp_path: Path) -> None:
    """kill -9 between a call and its result: the next turn reads the message, and no call."""
    talks = {it.message[0]: it for it in (CHINESE, ENGLISH)}
    script = [calling(RECALL, query="火锅 hotpot")] * 2
    with running_openai_server(script, strict=STRICT) as server:
        said = [it.message for it in talks.values()]
        command = [*warm.python(), "-c", KILLED, str(tmp_path), server.base_url, *said]
        killed = await asyncio.to_thread(subprocess.run, command, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL and len(server.requests) == 2
    async with staged(tmp_path) as stage:
        for user, talk in talks.items():
            assert await stage.said(user) == [("user", talk.message)]
            request = await works(stage, user, talk)
            assert roles(request) == ["system", "user", "user", "assistant", "tool"]
            assert [text for _, text in await stage.said(user)][1:] == [talk.message, talk.reply]
