"""What a recall returns: the evidence, the confidence in it, the limits, and every step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from kemem.records import Micros, Scope
from kemem.text.fence import fenced
from kemem.text.times import to_rfc3339

Driver = Literal["llm", "rules"]


def indented(text: str) -> str:
    """A text whose further lines cannot pose as others of a list.  "a\\nb" -> "a\\n  b" """
    return "\n  ".join(text.splitlines())


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call of a recall."""

    number: int  # from 1
    iteration: int
    tool: str  # "model" where a reply of the model could not be used
    arguments: Mapping[str, Any]
    success: bool
    outcome: str  # one line
    keys: tuple[str, ...]  # memories that it returned
    started: Micros
    seconds: float
    cached: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON."""
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A memory that answers the question, with the messages that it comes from."""

    memory_key: str
    kind: str
    memory_type: str
    content: str
    summary: str
    score: float  # 0-1, of the search that found it; 0 if none did
    said_by: str  # of a message: the speaker's name, or the role; of a note empty
    event_time: Micros
    message_ids: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON."""
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a recall was limited to."""

    max_iterations: int
    max_window: int  # messages
    max_calls: int  # of tools
    seconds: float
    windows: tuple[int, ...]  # messages that were shown, round by round
    memory_types: tuple[str, ...]  # empty: all types were searched
    time_range_days: int | None  # None: all times were searched
    min_relevance_score: float | None  # None: nothing was searched

    def to_dict(self) -> dict[str, Any]:
        """The limits as JSON."""
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class Recalled:
    """The result of a recall; in an f-string it is the evidence, delimited as data for a prompt."""

    question: str
    completed: bool  # False: a limit ended it, and this is the best it has
    by: Driver  # what decided on the steps
    reason: str
    search_summary: str
    confidence: float
    needs_more_info: bool
    follow_up_question: str | None
    evidence: tuple[Evidence, ...]
    message: str = field(repr=False)  # the handoff, as Markdown
    iteration_used: int
    context_window_used: int
    limits: Limits
    trace: tuple[Step, ...] = field(repr=False)
    problems: tuple[str, ...] = ()  # what failed on the way

    @property
    def memory_keys(self) -> tuple[str, ...]:
        """The keys of the memories that answer, best first."""
        return tuple(each.memory_key for each in self.evidence)

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The messages that the evidence comes from, each once."""
        ids = (message_id for each in self.evidence for message_id in each.message_ids)
        return tuple(dict.fromkeys(ids))

    def __str__(self) -> str:
        lines = (
            f"[{each.memory_key}] ({to_rfc3339(each.event_time)[:10]}) {indented(each.content)}"
            for each in self.evidence
        )
        return fenced("recalled_memories", "\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            **_to_json(self),
            "relevant_memory_keys": list(self.memory_keys),
            "message_ids": list(self.message_ids),
            "text": str(self),
        }


@dataclass(frozen=True, slots=True)
class RecallReport:
    """A recall that has ended, for a callback: whose it was, its result, how long it took."""

    scope: Scope
    result: Recalled
    seconds: float
    way: Literal["call", "forced", "asked"] = "call"  # of a chat: before a reply, by the model
    shown: tuple[str, ...] | None = None  # keys that a chat model is shown; None outside a chat


RecallCallback = Callable[[RecallReport], None]

_TIMES = {"started", "event_time"}


def _to_json(record: Step | Evidence | Limits | Recalled) -> dict[str, Any]:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {name: _json_value(name, value) for name, value in values.items()}


def _json_value(name: str, value: Any) -> Any:
    match value:
        case tuple():
            return [_json_value(name, each) for each in value]
        case Mapping():
            return dict(value)
        case Step() | Evidence() | Limits():
            return _to_json(value)
    return to_rfc3339(value) if name in _TIMES else value
