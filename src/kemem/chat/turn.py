"""One turn of a chat: the loop that calls the model and its tools, and the events of a reply."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kemem.chat import events as chat_events
from kemem.chat.events import TextEvent, ToolCallEvent, ToolResultEvent
from kemem.chat.filters import LeakCounts
from kemem.chat.requests import Json, is_openai, new_call_id
from kemem.chat.tools import IsOwn, TurnTools, function_of
from kemem.errors import Exhausted, KeMemError, Unavailable
from kemem.ports import OnReply, Reply
from kemem.ports.faults import fault, whose
from kemem.ports.limits import TokenLimit
from kemem.ports.turns import Turns
from kemem.text.thoughts import ThoughtFilter

STEPS = 12  # answers of the model in one turn, those that only call tools included

T = TypeVar("T")
StoreReply = Callable[[str, bool], Awaitable[str]]  # text, is partial -> message id
_End = chat_events.DoneEvent | chat_events.ErrorEvent

_LATE = "late"  # the finish reason of an answer that took too long
_CUT = {"length": "it reached its limit of tokens", _LATE: "it took longer than {seconds:g} s"}

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A chat model: a client that is guarded, where its leaks are counted, and who meters it."""

    client: Any  # an AsyncOpenAI
    name: str
    counts: LeakCounts
    on_reply: OnReply
    turns: Turns
    seconds: float  # that a reply may take, with all calls of tools in it
    tokens: int = 0  # that each answer may have; 0: as many as the server gives
    limit: TokenLimit = field(default_factory=TokenLimit)  # how its server is told of them

    @property
    def address(self) -> str:
        """The model and where it is, for messages."""
        return whose(self.name, str(self.client.base_url))

    @property
    def most_tokens(self) -> int:
        """The tokens of an answer, more of them for a model that was seen to think for long."""
        return self.limit.room * self.tokens

    async def create(self, request: Json, **more: Any) -> Any:
        """An answer or a stream of the client, limited in the way that the server knows."""
        while True:
            option = self.limit.option(self.most_tokens)
            try:
                return await self.client.chat.completions.create(**request, **option, **more)
            except Exception as error:  # of the client's library
                if not self.limit.is_refused(option, error, self.address):
                    raise


class Completion:
    """One answer of the model; calls of our own tools are hidden from the application."""

    def __init__(self, answer: Json, is_own: IsOwn) -> None:
        choice: Json = next(iter(answer.get("choices") or ()), {})
        if not choice:
            raise Unavailable("the model answered without choices")
        message, reason = choice.get("message") or {}, choice.get("finish_reason") or ""
        calls = () if reason == _LATE else message.get("tool_calls") or ()
        calls = [{**it, "id": it.get("id") or new_call_id()} for it in calls]
        self.text: str = message.get("content") or ""
        self.own_calls = [it for it in calls if is_own(function_of(it)[0])]
        self.other_calls = [it for it in calls if not is_own(function_of(it)[0])]
        self.wants_own_tool = bool(self.own_calls) and not self.other_calls
        # The application does not know of our tools.
        self.shown_reason = "stop" if self.wants_own_tool else reason or None
        self.cut = "" if self.wants_own_tool else _CUT.get(reason, "")  # why it has no end
        if reason == _LATE:
            self.shown_reason = "length"
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


class JoinedChunks:
    """The complete answer of a stream, put together while its chunks come."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._calls: list[Json] = []
        self._usage: Json | None = None
        self.reason: str | None = None  # why it has ended

    def add(self, chunk: Json) -> None:
        """Take in a chunk of a guarded client, which sends each call at once."""
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or ())[:1]:
            self.reason = choice.get("finish_reason") or self.reason
            delta = choice.get("delta") or {}
            self._calls += delta.get("tool_calls") or ()
            for name, pieces in self._texts.items():
                pieces.append(delta.get(name) or "")

    def answer(self) -> Json:
        """What was joined; an answer that ended without a reason has broken off."""
        if self.reason is None:
            raise Unavailable("the model's answer broke off")
        message: Json = {name: "".join(pieces) for name, pieces in self._texts.items()}
        calls = [{k: v for k, v in it.items() if k != "index"} for it in self._calls]
        choice = {"message": {**message, "tool_calls": calls}, "finish_reason": self.reason}
        return {"choices": [choice], "usage": self._usage}


async def run_model(
    model: ChatModel, request: Json, tools: TurnTools, is_own: IsOwn, *, steps: int, stream: bool
) -> AsyncGenerator[Step, None]:
    """Call the model, run the tools of ours that it calls, and call it again with their results.

    A model that does not stop calling them loses them, and is asked once more for an answer. A
    stream that does not end in time is cut: what came of it is the answer.
    Yields chunks (or complete answers) as they come, after each answer its Completion, and calls
    of our tools with their results. Raises whatever the client raises.
    """
    until = asyncio.get_running_loop().time() + model.seconds
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
                    joined = JoinedChunks()
                    async with aclosing(_chunks(model, sent, until)) as chunks:
                        async for chunk in chunks:
                            usable = True  # though nobody may listen to the end
                            joined.add(chunk)
                            yield chunk
                    answer = joined.answer()
                else:
                    async with asyncio.timeout_at(until):
                        came = await model.create(sent)
                    answer, usable = came.to_dict(mode="json", warnings=False), True
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
        if completion.cut:
            reason = completion.cut.format(seconds=model.seconds)
            log.warning("a reply of %s was cut: %s", model.address, reason)
        if is_last or not completion.wants_own_tool:
            return
        messages = [*messages, completion.message]
        for call in completion.own_calls:
            yield ToolCallEvent(call["id"], *function_of(call))
        async for call, result in tools.call_all(completion.own_calls):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            yield ToolResultEvent(call["id"], function_of(call)[0], result)


async def _chunks(model: ChatModel, request: Json, until: float) -> AsyncGenerator[Json, None]:
    """The chunks of an answer; one that does not end in time, or is too long, is ended here."""
    most, count = model.most_tokens, 0
    try:
        async with asyncio.timeout_at(until):
            stream = await model.create(request, stream=True)
        async with stream:
            while True:
                async with asyncio.timeout_at(until):
                    chunk = await anext(stream, None)
                if chunk is None:
                    return
                count += 1
                yield chunk.to_dict(mode="json", warnings=False)
                if 0 < most < count:  # there is a token in each: the server knows no limit
                    yield _ending("length")
                    return
    except TimeoutError:
        if not count:
            raise
        yield _ending(_LATE)


def _ending(reason: str) -> Json:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


async def stream_reply(
    model: ChatModel, messages: list[Json], tools: TurnTools, store: StoreReply, silence: str = ""
) -> AsyncGenerator[chat_events.Event, None]:
    """What the model says and calls, then `done` or `error`; whatever ends a reply, it is stored.

    A text that is nothing but the word for `silence` is not shown, nor are thoughts before it.
    """
    request: Json = {"model": model.name, "messages": messages}
    if offered := tools.to_dicts():
        request["tools"] = offered
    else:
        request["messages"] = tools.as_note(messages, _every_tool)
    if is_openai(str(model.client.base_url)):
        request["stream_options"] = {"include_usage": True}  # not every other server knows it
    text = pending = cut = ""  # what was shown; what may still become that word; why it was cut
    has_answer, is_undecided = False, bool(silence)
    error: KeMemError | None = None
    said = ThoughtFilter()
    steps = run_model(model, request, tools, _every_tool, steps=STEPS, stream=True)
    try:
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, Completion):
                    pending, said = pending + said.close(), ThoughtFilter()
                    has_answer |= pending.strip() != ""
                    if pending.strip() not in ("", silence):
                        text += pending
                        yield TextEvent(pending)
                    pending, is_undecided = "", bool(silence)
                    cut = step.cut.format(seconds=model.seconds)
                elif not isinstance(step, dict):
                    yield step
                elif piece := said.feed(_content(step)):
                    pending += piece
                    has_answer |= piece.strip() != ""
                    if is_undecided and silence.startswith(pending.strip()):
                        continue
                    shown, pending, is_undecided = pending, "", False
                    text += shown
                    yield TextEvent(shown)
        if cut and has_answer:
            error = Exhausted(f"the reply was cut: {cut}")
        elif not has_answer:
            if cut:
                model.limit.widen()  # it has thought all the time
            error = Unavailable(f"the model answered nothing{cut and f': {cut}'}")
    except ImportError:  # an extra that is missing is named by its own error
        raise
    except Unavailable as failure:
        error = failure
    except Exception as failure:  # the client raises whatever a server provokes
        error = Unavailable(f"{model.address} {fault(failure)}")
        log.warning("%s; what came of its reply is stored", error.message)
    except (asyncio.CancelledError, GeneratorExit):
        await to_the_end(_store_reply(text, store, model.counts, Unavailable("nobody listens")))
        raise
    yield await to_the_end(_store_reply(text, store, model.counts, error))


def _every_tool(name: str) -> bool:
    """All calls are ours where no application has tools of its own."""
    return True


def _content(chunk: Json) -> str:
    choice: Json = next(iter(chunk.get("choices") or ()), {})
    return (choice.get("delta") or {}).get("content") or ""


async def to_the_end(storing: Awaitable[T]) -> T:
    """The result of storing something, which goes on though the listener is cancelled meanwhile."""
    task = asyncio.ensure_future(storing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _store_reply(
    text: str, store: StoreReply, counts: LeakCounts, error: KeMemError | None
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
