"""The loop of a turn: a model is called until it needs none of our tools any more."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kemem.chat.completions import (
    Completion,
    CompletionBuilder,
    IsOwn,
    Json,
    function_of,
    parse_completion,
)
from kemem.chat.events import (
    DoneEvent,
    ErrorEvent,
    Event,
    RecallEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from kemem.chat.filters import LeakCounts
from kemem.chat.recall import RECALL, ChatTool, refused, to_json
from kemem.chat.requests import is_openai, new_call_id
from kemem.errors import KeMemError, Unavailable

if TYPE_CHECKING:
    from openai import AsyncOpenAI

STEPS = 12  # answers of the model in one turn, those that only call tools included
_MAX_QUERY = 500  # characters of a message that the synthetic recall repeats

TurnEvent = TextEvent | ToolCallEvent | ToolResultEvent
Step = Json | Completion | ToolCallEvent | ToolResultEvent
StoreReply = Callable[[str, bool], Awaitable[str]]  # text, is partial -> message id
_End = DoneEvent | ErrorEvent

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A model to ask: a client that is guarded, and where its leaks are counted."""

    client: "AsyncOpenAI"
    name: str
    counts: LeakCounts


def synthetic_call(name: str, arguments: Mapping[str, Any], result: str) -> list[Json]:
    """Messages with a call that was never made, and its result, for a model to read as its own."""
    function = {"name": name, "arguments": to_json(dict(arguments))}
    call = {"id": new_call_id(), "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


def synthetic_recall(event: RecallEvent) -> list[Json]:
    """The forced recall as a call and its result."""
    query = {"query": event.query[:_MAX_QUERY]}
    return synthetic_call(RECALL, query, to_json({"events": list(event.events)}))


async def run_model(
    model: ChatModel,
    request: Json,
    tools: Sequence[ChatTool],
    *,
    steps: int,
    is_own: IsOwn,
    stream: bool = True,
) -> AsyncGenerator[Step, None]:
    """Ask the model, run the tools of ours that it calls, and ask again with their results.

    Yields chunks (or complete answers) as they come, after each answer its Completion, and calls
    of our tools with their results. Raises whatever the client raises.
    """
    create: Any = model.client.chat.completions.create
    messages, by_name = [*request["messages"]], {it.tool.name: it for it in tools}
    for left in reversed(range(steps)):
        sent = {**request, "messages": messages}
        if stream:
            builder = CompletionBuilder()
            async with await create(**sent, stream=True) as chunks:
                async for chunk in chunks:
                    plain: Json = chunk.to_dict(mode="json", warnings=False)
                    builder.add(plain)
                    yield plain
            completion = builder.build(is_own)
        else:
            answer: Json = (await create(**sent)).to_dict(mode="json", warnings=False)
            yield answer
            completion = parse_completion(answer, is_own)
        yield completion
        if not (left and completion.wants_own_tool):
            return
        messages = [*messages, completion.message]
        for call in completion.own_calls:
            yield ToolCallEvent(call["id"], *function_of(call))
        for call in completion.own_calls:
            name, arguments = function_of(call)
            if tool := by_name.get(name):
                result = await tool.answer(arguments)
            else:
                result = refused(f"there is no tool {name!r:.80}")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            yield ToolResultEvent(call["id"], name, result)


async def stream_reply(
    model: ChatModel, system: str, messages: Sequence[Json], tools: Sequence[ChatTool]
) -> AsyncGenerator[TurnEvent, None]:
    """What the model says and calls until it has answered; failures are Unavailable."""
    request: Json = {
        "model": model.name,
        "messages": [{"role": "system", "content": system}, *messages],
        "tools": [it.tool.to_dict() for it in tools],
    }
    if is_openai(str(model.client.base_url)):
        request["stream_options"] = {"include_usage": True}  # not every other server knows it
    text, last = "", None
    try:
        steps = run_model(model, request, tools, steps=STEPS, is_own=lambda name: True)
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, Completion):
                    last = step
                elif not isinstance(step, dict):
                    yield step
                elif piece := _content(step):
                    text += piece
                    yield TextEvent(piece)
        if last and last.wants_own_tool:
            raise Unavailable(f"the model called tools {STEPS} times without an answer")
        if not text.strip():
            raise Unavailable("the model answered nothing")
    except (Unavailable, ImportError):  # an extra that is missing is named by its own error
        raise
    except Exception as error:  # the client raises whatever a server provokes
        log.warning("the chat model failed: %s", type(error).__name__)
        raise Unavailable(f"the model failed: {type(error).__name__}") from error


def _content(chunk: Json) -> str:
    choice: Json = next(iter(chunk.get("choices") or ()), {})
    return (choice.get("delta") or {}).get("content") or ""


async def finish_turn(
    events: AsyncGenerator[TurnEvent, None], store: StoreReply, counts: LeakCounts
) -> AsyncGenerator[Event, None]:
    """All events, then `done` or `error`; the reply is stored whatever ends the turn."""
    text = ""
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, TextEvent):
                    text += event.delta
                yield event
    except Unavailable as error:
        yield await _to_the_end(_store_reply(text, store, counts, error))
    except (asyncio.CancelledError, GeneratorExit):
        await _to_the_end(_store_reply(text, store, counts, Unavailable("nobody listens")))
        raise
    else:
        yield await _to_the_end(_store_reply(text, store, counts))


async def _to_the_end(storing: Coroutine[Any, Any, _End]) -> _End:
    """The result of storing a reply, which goes on though the listener is cancelled meanwhile."""
    task = asyncio.create_task(storing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _store_reply(
    text: str, store: StoreReply, counts: LeakCounts, error: Unavailable | None = None
) -> _End:
    """Store what came of a reply; returns the event that ends its turn."""
    message_id = ""
    try:
        message_id = await store(text, error is not None) if text.strip() else ""
    except KeMemError as fault:
        log.error("a reply could not be stored: %s", fault.code)
        if error is None:
            return ErrorEvent(fault.code, "the reply could not be stored", text)
    if error is None:
        return DoneEvent(text, message_id, counts.total)
    return ErrorEvent(error.code, error.message, text, message_id)
