"""One turn of a chat: the loop that calls the model and its tools, and the events of a reply."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from kemem.chat import events as chat_events
from kemem.chat.events import TextEvent, ToolCallEvent, ToolResultEvent
from kemem.chat.filters import LeakCounts
from kemem.chat.requests import Json, is_openai, new_call_id
from kemem.chat.tools import IsOwn, TurnTools, function_of
from kemem.errors import KeMemError, Unavailable
from kemem.ports import OnReply, Reply
from kemem.ports.turns import Turns

STEPS = 12  # answers of the model in one turn, those that only call tools included

StoreReply = Callable[[str, bool], Awaitable[str]]  # text, is partial -> message id
_End = chat_events.DoneEvent | chat_events.ErrorEvent

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A chat model: a client that is guarded, where its leaks are counted, and who meters it."""

    client: Any  # an AsyncOpenAI
    name: str
    counts: LeakCounts
    on_reply: OnReply
    turns: Turns


class Completion:
    """One answer of the model; calls of our own tools are hidden from the application."""

    def __init__(self, answer: Json, is_own: IsOwn) -> None:
        choice: Json = next(iter(answer.get("choices") or ()), {})
        if not choice:
            raise Unavailable("the model answered without choices")
        message = choice.get("message") or {}
        calls = message.get("tool_calls") or ()
        calls = [{**it, "id": it.get("id") or new_call_id()} for it in calls]
        self.text: str = message.get("content") or ""
        self.own_calls = [it for it in calls if is_own(function_of(it)[0])]
        self.other_calls = [it for it in calls if not is_own(function_of(it)[0])]
        self.wants_own_tool = bool(self.own_calls) and not self.other_calls
        # The application does not know of our tools.
        self.shown_reason = "stop" if self.wants_own_tool else choice.get("finish_reason")
        self.usage: Json = answer.get("usage") or {}
        # The message that precedes the results of our own tools.
        self.message: Json = {"role": "assistant", "content": self.text or None}
        if reasoning := message.get("reasoning_content"):
            self.message["reasoning_content"] = reasoning
        self.message["tool_calls"] = self.own_calls


Step = Json | Completion | ToolCallEvent | ToolResultEvent


def tokens_of(answer: Json) -> tuple[int, int]:
    """The tokens of the prompt and of the completion, as far as the server tells."""
    usage = answer.get("usage") or {}
    return usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0


def join_chunks(chunks: Iterable[Json]) -> Json:
    """The complete answer of a stream; one that ended without a reason has broken off."""
    message: Json = {"content": "", "reasoning_content": ""}
    calls: list[Json] = []
    usage = reason = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in (chunk.get("choices") or ())[:1]:
            reason = choice.get("finish_reason") or reason
            delta = choice.get("delta") or {}
            calls += delta.get("tool_calls") or ()  # a guarded client sends each of them at once
            for name in message:
                message[name] += delta.get(name) or ""
    if reason is None:
        raise Unavailable("the model's answer broke off")
    message["tool_calls"] = [{k: v for k, v in it.items() if k != "index"} for it in calls]
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


async def run_model(
    model: ChatModel, request: Json, tools: TurnTools, is_own: IsOwn, *, steps: int, stream: bool
) -> AsyncGenerator[Step, None]:
    """Call the model, run the tools of ours that it calls, and call it again with their results.

    A model that does not stop calling them loses them, and is asked once more for an answer.
    Yields chunks (or complete answers) as they come, after each answer its Completion, and calls
    of our tools with their results. Raises whatever the client raises.
    """
    create: Any = model.client.chat.completions.create
    messages = [*request["messages"]]
    for left in reversed(range(steps)):
        sent = {**request, "messages": messages}
        is_last = tools.are_over or not left
        if is_last:
            sent = tools.take_away(sent, is_own)
        started, usable, answer = time.perf_counter(), False, Json()
        try:
            with model.turns.reply():
                if stream:
                    chunks: list[Json] = []
                    async with await create(**sent, stream=True) as coming:
                        usable = True  # though nobody may listen to the end
                        async for chunk in coming:
                            chunks.append(chunk.to_dict(mode="json", warnings=False))
                            yield chunks[-1]
                    answer = join_chunks(chunks)
                else:
                    answer = (await create(**sent)).to_dict(mode="json", warnings=False)
                    usable = True
        except Exception:
            usable = False
            raise
        finally:
            reply = Reply("", *tokens_of(answer))
            model.on_reply(time.perf_counter() - started, usable, reply)
        if not stream:
            yield answer
        completion = Completion(answer, is_own)
        yield completion
        if is_last or not completion.wants_own_tool:
            return
        messages = [*messages, completion.message]
        for call in completion.own_calls:
            yield ToolCallEvent(call["id"], *function_of(call))
        async for call, result in tools.call_all(completion.own_calls):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            yield ToolResultEvent(call["id"], function_of(call)[0], result)


async def stream_reply(
    model: ChatModel, messages: list[Json], tools: TurnTools, store: StoreReply, silence: str = ""
) -> AsyncGenerator[chat_events.Event, None]:
    """What the model says and calls, then `done` or `error`; whatever ends a reply, it is stored.

    A text that is nothing but the word for `silence` is not shown.
    """
    request: Json = {"model": model.name, "messages": messages}
    if offered := tools.to_dicts():
        request["tools"] = offered
    else:
        request["messages"] = tools.as_note(messages, _every_tool)
    if is_openai(str(model.client.base_url)):
        request["stream_options"] = {"include_usage": True}  # not every other server knows it
    text = pending = ""  # what was shown; what may still become that word
    has_answer, is_undecided = False, bool(silence)
    error: Unavailable | None = None
    steps = run_model(model, request, tools, _every_tool, steps=STEPS, stream=True)
    try:
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, Completion):
                    if pending.strip() not in ("", silence):
                        text += pending
                        yield TextEvent(pending)
                    pending, is_undecided = "", bool(silence)
                elif not isinstance(step, dict):
                    yield step
                elif piece := _content(step):
                    pending += piece
                    has_answer |= piece.strip() != ""
                    if is_undecided and silence.startswith(pending.strip()):
                        continue
                    shown, pending, is_undecided = pending, "", False
                    text += shown
                    yield TextEvent(shown)
        if not has_answer:
            error = Unavailable("the model answered nothing")
    except ImportError:  # an extra that is missing is named by its own error
        raise
    except Unavailable as failure:
        error = failure
    except Exception as failure:  # the client raises whatever a server provokes
        log.warning("the chat model failed: %s", type(failure).__name__)
        error = Unavailable(f"the model failed: {type(failure).__name__}")
    except (asyncio.CancelledError, GeneratorExit):
        await _to_the_end(_store_reply(text, store, model.counts, Unavailable("nobody listens")))
        raise
    yield await _to_the_end(_store_reply(text, store, model.counts, error))


def _every_tool(name: str) -> bool:
    """All calls are ours where no application has tools of its own."""
    return True


def _content(chunk: Json) -> str:
    choice: Json = next(iter(chunk.get("choices") or ()), {})
    return (choice.get("delta") or {}).get("content") or ""


async def _to_the_end(storing: Awaitable[_End]) -> _End:
    """The result of storing a reply, which goes on though the listener is cancelled meanwhile."""
    task = asyncio.ensure_future(storing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _store_reply(
    text: str, store: StoreReply, counts: LeakCounts, error: Unavailable | None
) -> _End:
    """Store what came of a reply; returns the event that ends its turn."""
    message_id = ""
    try:
        message_id = await store(text, error is not None) if text.strip() else ""
    except KeMemError as failure:
        log.error("a reply could not be stored: %s", failure.code)
        if error is None:
            return chat_events.ErrorEvent(failure.code, "the reply could not be stored", text)
    if error is None:
        return chat_events.DoneEvent(text, message_id, counts.total)
    return chat_events.ErrorEvent(error.code, error.message, text, message_id)
