"""The events of a turn, and the replies that they add up to."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of a turn; in a group it has the member that it belongs to."""

    type: ClassVar[str]
    member_id: str = field(default="", kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON; `member_id` only in a group."""
        shown = {"type": self.type, **asdict(self)}
        return shown if self.member_id else {k: v for k, v in shown.items() if k != "member_id"}


@dataclass(frozen=True, slots=True)
class RecallEvent(_Event):
    """The recall that every turn begins with."""

    type = "recall"
    query: str
    events: tuple[Mapping[str, Any], ...]  # as the model sees them
    seconds: float
    problem: str = ""  # why there is none; the turn goes on without it
    uncertain: bool = False  # nothing certain is known: the memories are only possibly related


@dataclass(frozen=True, slots=True)
class TextEvent(_Event):
    """A piece of the reply."""

    type = "text"
    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallEvent(_Event):
    """The model calls a tool."""

    type = "tool_call"
    call_id: str
    name: str
    arguments: str  # JSON, as the model wrote it


@dataclass(frozen=True, slots=True)
class ToolResultEvent(_Event):
    """What the tool answered."""

    type = "tool_result"
    call_id: str
    name: str
    result: str  # of recall_memory JSON, of the others a sentence or lines


@dataclass(frozen=True, slots=True)
class ErrorEvent(_Event):
    """The end of a turn that failed; what was said until then is stored and marked as partial."""

    type = "error"
    code: str
    message: str
    text: str = ""  # the part of the reply that came
    message_id: str = ""  # of that part, where it is stored


@dataclass(frozen=True, slots=True)
class DoneEvent(_Event):
    """The end of a turn; in a group of one member's part, and once without a member of all."""

    type = "done"
    text: str  # the whole reply; empty where a member stays silent
    message_id: str = ""  # of the stored reply
    leaks: int = 0  # calls that the model wrote into its text, which nobody saw


Event = RecallEvent | TextEvent | ToolCallEvent | ToolResultEvent | ErrorEvent | DoneEvent


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a turn, or of one member's part of it."""

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
        calls = [
            {"call_id": it.call_id, "name": it.name, "arguments": it.arguments}
            | {"result": results.get(it.call_id, "")}
            for it in self.calls
        ]
        error = self.error and {"code": self.error.code, "message": self.error.message}
        return {
            **({"member_id": self.member_id} if self.member_id else {}),
            "text": self.text,
            "message_id": self.message_id,
            "recall": list(self.recall.events) if self.recall else [],
            "tool_calls": calls,
            "leaks": self.leaks,
            **({"error": error} if error else {}),
        }


async def gather(events: AsyncIterator[Event]) -> list[Reply]:
    """The replies of a turn, each complete when its `done` or `error` has come."""
    replies: list[Reply] = []
    reply = Reply("", "", None)
    async for event in events:
        match event:
            case RecallEvent():
                reply = replace(reply, recall=event, member_id=event.member_id)
            case ToolCallEvent():
                reply = replace(reply, calls=(*reply.calls, event))
            case ToolResultEvent():
                reply = replace(reply, results=(*reply.results, event))
            case ErrorEvent(text=text, message_id=message_id):
                replies.append(replace(reply, text=text, message_id=message_id, error=event))
                reply = Reply("", "", None)
            case DoneEvent(text, message_id, leaks) if reply.recall:  # not of a whole group
                replies.append(replace(reply, text=text, message_id=message_id, leaks=leaks))
                reply = Reply("", "", None)
    return replies


def collected(
    turn: Callable[P, AsyncIterator[Event]], collect: Callable[[list[Reply]], T]
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A method with the parameters of `turn` that returns its replies instead of events."""

    @wraps(turn, assigned=())
    async def method(*args: P.args, **kwargs: P.kwargs) -> T:
        return collect(await gather(turn(*args, **kwargs)))

    method.__doc__ = collect.__doc__
    return method
