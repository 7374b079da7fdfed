"""What a recall gives back: the evidence, how sure it is, what it was limited to, every step."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kemem.records import Micros, Scope
from kemem.text.fence import fenced
from kemem.text.times import to_rfc3339

By = Literal["llm", "rules"]


def indented(text: str) -> str:
    """A text whose further lines cannot pose as others of a list.  "a\\nb" -> "a\\n  b" """
    return "\n  ".join(text.splitlines())


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a recall."""

    number: int  # from 1
    iteration: int
    tool: str  # "model" where a reply of the model could not be used
    arguments: Mapping[str, Any]
    success: bool
    outcome: str  # one line
    keys: tuple[str, ...]  # memories that it brought up
    started: Micros
    seconds: float
    cached: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON."""
        shown = {**asdict(self), "arguments": dict(self.arguments), "keys": list(self.keys)}
        return {**shown, "started": to_rfc3339(self.started)}


@dataclass(frozen=True, slots=True)
class Evidence:
    """A memory that answers, with the messages that say it."""

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
        shown = {**asdict(self), "message_ids": list(self.message_ids)}
        return {**shown, "event_time": to_rfc3339(self.event_time)}


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
        lists = {"windows": list(self.windows), "memory_types": list(self.memory_types)}
        return {**asdict(self), **lists}


@dataclass(frozen=True, slots=True)
class Recalled:
    """The result of a recall; in an f-string it is the evidence, delimited as data for a prompt."""

    question: str
    completed: bool  # False: a limit ended it, and this is the best it has
    by: By  # what decided on the steps
    reason: str
    search_summary: str
    confidence: float
    needs_more_info: bool
    follow_up_question: str | None
    evidence: tuple[Evidence, ...]
    message: str = field(repr=False)  # the hand-off, as Markdown
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
        """The messages that say so, each once."""
        found = (each_id for each in self.evidence for each_id in each.message_ids)
        return tuple(dict.fromkeys(found))

    def __str__(self) -> str:
        lines = (
            f"[{each.memory_key}] ({to_rfc3339(each.event_time)[:10]}) {indented(each.content)}"
            for each in self.evidence
        )
        return fenced("recalled_memories", "\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "question": self.question,
            "completed": self.completed,
            "by": self.by,
            "reason": self.reason,
            "search_summary": self.search_summary,
            "confidence": self.confidence,
            "needs_more_info": self.needs_more_info,
            "follow_up_question": self.follow_up_question,
            "relevant_memory_keys": list(self.memory_keys),
            "message_ids": list(self.message_ids),
            "evidence": [each.to_dict() for each in self.evidence],
            "message": self.message,
            "text": str(self),
            "iteration_used": self.iteration_used,
            "context_window_used": self.context_window_used,
            "limits": self.limits.to_dict(),
            "trace": [step.to_dict() for step in self.trace],
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Account:
    """A recall that has ended, for who watches: whose it was, what came of it, how long it took."""

    scope: Scope
    result: Recalled
    seconds: float
    way: Literal["call", "forced", "asked"] = "call"  # of a chat: before a reply, by the model
    shown: tuple[str, ...] | None = None  # keys that a chat model is shown; None: it is no chat


OnRecall = Callable[[Account], None]
