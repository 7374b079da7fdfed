"""From what happens in a turn to what comes of it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kemem.chat.counts import LeakCounts
from kemem.chat.events import (
    DoneEvent,
    ErrorEvent,
    Event,
    RecallEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from kemem.chat.turn import Happened
from kemem.errors import KeMemError, Unavailable

Ended = TypeVar("Ended", bound=DoneEvent | ErrorEvent)
Keep = Callable[[str, bool], Awaitable[str]]  # stores a reply, whole or partial; gives its id

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a turn, or of one member's part of it."""

    text: str
    message_id: str  # of the stored reply; empty where there is none
    recall: RecallEvent | None
    calls: tuple[ToolCallEvent, ...] = ()
    results: tuple[ToolResultEvent, ...] = ()
    leaks: int = 0
    error: ErrorEvent | None = None
    member_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The reply as JSON."""
        results = {it.call_id: it.result for it in self.results}
        error = self.error and {"code": self.error.code, "message": self.error.message}
        return {
            **({"member_id": self.member_id} if self.member_id else {}),
            "text": self.text,
            "message_id": self.message_id,
            "recall": list(self.recall.events) if self.recall else [],
            "tool_calls": [
                {
                    "call_id": call.call_id,
                    "name": call.name,
                    "arguments": call.arguments,
                    "result": results.get(call.call_id, ""),
                }
                for call in self.calls
            ],
            "leaks": self.leaks,
            **({"error": error} if error else {}),
        }


async def finish(
    happening: AsyncGenerator[Happened, None], keep: Keep, counts: LeakCounts
) -> AsyncGenerator[Event, None]:
    """All that happens, then `done` or `error`; what was said is stored whatever ends the turn."""
    said: list[str] = []
    try:
        async with aclosing(happening):
            async for event in happening:
                if isinstance(event, TextEvent):
                    said.append(event.delta)
                yield event
    except Unavailable as error:
        yield await _to_its_end(_failed(error, "".join(said), keep))
    except (asyncio.CancelledError, GeneratorExit):
        await _to_its_end(_failed(Unavailable("nobody listens"), "".join(said), keep))
        raise
    else:
        yield await _to_its_end(_done("".join(said), keep, counts))


async def _to_its_end(storing: Coroutine[Any, Any, Ended]) -> Ended:
    """What comes of it, also when whoever listens goes away meanwhile."""
    task = asyncio.create_task(storing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _done(text: str, keep: Keep, counts: LeakCounts) -> DoneEvent | ErrorEvent:
    try:
        message_id = await keep(text, False) if text.strip() else ""
    except KeMemError as error:
        log.error("a reply could not be stored: %s", error.code)
        return ErrorEvent(error.code, "the reply could not be stored", text)
    return DoneEvent(text, message_id, counts.total)


async def _failed(error: Unavailable, text: str, keep: Keep) -> ErrorEvent:
    message_id = ""
    try:
        message_id = await keep(text, True) if text.strip() else ""
    except KeMemError as fault:
        log.error("a partial reply could not be stored: %s", fault.code)
    return ErrorEvent(error.code, error.message, text, message_id)


async def gather(events: AsyncIterator[Event]) -> list[Reply]:
    """The replies of a turn, each when its `done` or `error` has come."""
    replies: list[Reply] = []
    open_reply = Reply("", "", None)
    async for event in events:
        match event:
            case RecallEvent():
                open_reply = replace(open_reply, recall=event, member_id=event.member_id)
            case ToolCallEvent():
                open_reply = replace(open_reply, calls=(*open_reply.calls, event))
            case ToolResultEvent():
                open_reply = replace(open_reply, results=(*open_reply.results, event))
            case ErrorEvent():
                replies.append(
                    replace(open_reply, text=event.text, message_id=event.message_id, error=event)
                )
                open_reply = Reply("", "", None)
            case DoneEvent() if open_reply.recall:  # not the end of a whole round
                replies.append(
                    replace(
                        open_reply,
                        text=event.text,
                        message_id=event.message_id,
                        leaks=event.leaks,
                    )
                )
                open_reply = Reply("", "", None)
    return replies
