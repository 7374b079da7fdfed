"""What happens in a turn, as it happens."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class _Event:
    """One thing that happened; in a group, to which member."""

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
