"""What a recall returns: the evidence, the confidence in it, the limits, and every step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict

from kemem.records import Scope
from kemem.records.serialization import Record, Share, Timestamp, without_defaults
from kemem.records.times import to_rfc3339
from kemem.results import ended_text
from kemem.text.fence import fenced

Driver = Literal["llm", "rules"]


def indented(text: str) -> str:
    """A text whose further lines cannot pose as others of a list.  "a\\nb" -> "a\\n  b" """
    return "\n  ".join(text.splitlines())


@dataclass(frozen=True, slots=True)
class Step(Record):
    """One tool call of a recall."""

    number: int  # from 1
    iteration: int
    tool: str  # "model" where a reply of the model could not be used
    arguments: Mapping[str, Any]
    success: bool
    outcome: str  # one line
    keys: tuple[str, ...]  # memories that it returned
    started: Timestamp
    seconds: float
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Evidence(Record):
    """A memory that answers the question, with the messages that it comes from."""

    memory_key: str
    kind: str
    memory_type: str
    content: str
    summary: str
    score: Share  # of the search that found it; 0 if none did
    said_by: str  # of a message: the speaker's name, or the role; of a note empty
    event_time: Timestamp
    message_ids: tuple[str, ...]
    valid_until: Timestamp | None = None  # when it ceased to be true
    superseded_by: str | None = None  # the note that says what holds instead
    in_reply_to: str = ""  # of a short answer: the assistant's question before it

    @property
    def text(self) -> str:
        """The content, after the question that it answers."""
        if not self.in_reply_to:
            return self.content
        return f"assistant: {self.in_reply_to} {self.said_by}: {self.content}"

    @property
    def dates(self) -> str:
        """The day that it is about, and until when it was true."""
        day, end = to_rfc3339(self.event_time)[:10], self.valid_until
        return day if end is None else f"{day}, {ended_text(end, self.content)}"


@dataclass(frozen=True, slots=True)
class Limits(Record):
    """The limits of a recall."""

    max_iterations: int
    max_window: int  # messages
    max_calls: int  # of tools
    seconds: float
    windows: tuple[int, ...]  # messages that were shown, round by round
    memory_types: tuple[str, ...]  # empty: all types were searched
    time_range_days: int | None  # None: all times were searched
    min_relevance_score: float | None  # None: nothing was searched


def _describe_derived(schema: dict[str, Any]) -> None:
    without_defaults(schema)
    texts = {"type": "array", "items": {"type": "string"}}
    derived = {"relevant_memory_keys": texts, "message_ids": texts, "text": {"type": "string"}}
    schema["properties"] |= derived
    schema["required"] += derived


@dataclass(frozen=True, slots=True)
class Recalled(Record):
    """The result of a recall; in an f-string it is the evidence, delimited as data for a prompt."""

    __pydantic_config__ = ConfigDict(
        json_schema_serialization_defaults_required=True, json_schema_extra=_describe_derived
    )

    question: str
    completed: bool  # False: a limit ended it, and this is the best it has
    by: Driver  # what decided on the steps
    reason: str
    search_summary: str
    confidence: Share
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
            f"[{each.memory_key}] ({each.dates}) {indented(each.text)}" for each in self.evidence
        )
        return fenced("recalled_memories", "\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            **Record.to_dict(self),
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
