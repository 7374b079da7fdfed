"""What callers get back: typed, printable as part of a prompt, and as plain dicts on request."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, overload

from kemem.records import Link, Message, Note, Row
from kemem.text.language import is_chinese
from kemem.text.times import to_rfc3339

It = TypeVar("It", bound="Item", covariant=True)


_DATED = re.compile(r"[(（]\d{4}-\d{2}[^()（）]{0,20}[)）]$")  # the text gives a date itself


def _line(text: str) -> str:
    """One line, so that a text cannot pose as another."""
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Item:
    """A message or note as it is remembered."""

    row: Row

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def memory(self) -> str:
        """The text."""
        return self.row.content

    @property
    def kind(self) -> str:
        return self.row.kind

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.row.metadata

    @property
    def keywords(self) -> tuple[str, ...]:
        return self.row.keywords if isinstance(self.row, Note) else ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The ids of the messages that say it."""
        return self.row.sources if isinstance(self.row, Note) else (self.row.id,)

    @property
    def message(self) -> Message:
        """The message; a note is not one."""
        if not isinstance(self.row, Message):
            raise TypeError(f"{self.id} is a note")
        return self.row

    @property
    def note(self) -> Note:
        """The note; a message is not one."""
        if not isinstance(self.row, Note):
            raise TypeError(f"{self.id} is a message")
        return self.row

    def __str__(self) -> str:
        day, text = to_rfc3339(self.row.ts)[:10], _line(self.memory)
        if isinstance(self.row, Message):
            speaker = _line(str(self.row.metadata.get("speaker") or self.row.role))[:64]
            return f"- [{day}] {speaker}: {text}"
        if _DATED.search(text):
            return f"- {text}"
        return f"- {text}（{day}）" if is_chinese(text) else f"- {text} ({day})"

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON."""
        return row_to_dict(self.row)


@dataclass(frozen=True, slots=True)
class Hit(Item):
    """A message or note that was found, how good it is (0-1) and why."""

    score: float
    why: tuple[str, ...] = ()
    snippets: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The hit as JSON; `why` where it was asked for."""
        found = {**row_to_dict(self.row), "score": self.score}
        return {**found, "why": list(self.why)} if self.why else found


def row_to_dict(row: Row) -> dict[str, Any]:
    """A message or note in the shape that users of such systems know."""
    shown: dict[str, Any] = {
        "id": row.id,
        "memory": row.content,
        "kind": row.kind,
        "agent_id": row.agent_id,
        "user_id": row.user_id or None,
        "session_id": row.session_id,
        "event_time": to_rfc3339(row.ts),
        "metadata": dict(row.metadata),
    }
    if isinstance(row, Message):
        at = to_rfc3339(row.ingest_time)
        return shown | {"role": row.role, "created_at": at, "updated_at": at, "sources": [row.id]}
    return shown | {
        "memory_type": row.memory_type,
        "created_at": to_rfc3339(row.created),
        "updated_at": to_rfc3339(row.updated),
        "valid_from": to_rfc3339(row.valid_from),
        "valid_until": None if row.valid_until is None else to_rfc3339(row.valid_until),
        "expires_at": None if row.expires is None else to_rfc3339(row.expires),
        "keywords": list(row.keywords),
        "sources": list(row.sources),
        "importance": row.importance,
        "supersedes": row.supersedes,
    }


@dataclass(frozen=True, slots=True)
class Memories(Sequence[It]):
    """Some memories in order; in an f-string they read as part of a prompt."""

    items: tuple[It, ...]
    next_cursor: str | None = None  # leads to the rest of a longer list
    missing: tuple[str, ...] = ()  # signals of a search that could not be asked
    language: Literal["zh", "en"] = "en"
    total: int = 0  # how many a search found that was to count them, those beyond its limit too

    def __str__(self) -> str:
        if not self.items:
            return "（没有相关记忆）" if self.language == "zh" else "(no relevant memories)"
        return "\n".join(str(item) for item in self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[It]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> It: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[It]: ...
    def __getitem__(self, index: int | slice) -> It | Sequence[It]:
        return self.items[index]

    def to_dict(self) -> dict[str, Any]:
        """{"results": [...]}, and beside it what there is to say."""
        found: dict[str, Any] = {"results": [item.to_dict() for item in self.items]}
        if self.missing:
            found["missing"] = list(self.missing)
        if self.next_cursor is not None:
            found["next_cursor"] = self.next_cursor
        if self.total:
            found["total"] = self.total
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fact: a new note, one that replaces another, or nothing new."""

    id: str
    memory: str
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    previous: str | None = None  # the text that is no longer true

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON."""
        shown = {"id": self.id, "memory": self.memory, "event": self.event}
        return {**shown, "previous_memory": self.previous} if self.previous else shown


@dataclass(frozen=True, slots=True)
class Added:
    """What became of the messages that were added."""

    results: tuple[Outcome, ...] = ()
    relations: tuple[Link, ...] = ()
    message_ids: tuple[str, ...] = ()  # stored by this call
    ignored: tuple[str, ...] = ()  # stored before
    truncated: tuple[str, ...] = ()  # cut to the size limit; see the message's metadata
    pending: bool = False  # True: stored and searchable, a job does the rest later
    problems: tuple[str, ...] = ()  # what failed and was left for later, or left out

    def to_dict(self) -> dict[str, Any]:
        """{"results": [...]} with the relations, ids and problems beside it."""
        return {
            "results": [outcome.to_dict() for outcome in self.results],
            "relations": [link.to_dict() for link in self.relations],
            "message_ids": list(self.message_ids),
            "ignored": list(self.ignored),
            "truncated": list(self.truncated),
            "pending": self.pending,
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of the messages that were handed in."""

    inserted: tuple[str, ...]
    ignored: tuple[str, ...]
    failed: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()  # cut to the size limit; see the message's metadata
    pending: bool = False  # True: stored and searchable by words, vectors follow by a job


@dataclass(frozen=True, slots=True)
class Context:
    """What to put into a prompt of a session: summaries of what is older, then what was said."""

    summaries: tuple[str, ...] = ()  # oldest first
    messages: tuple[Message, ...] = ()
    notes: tuple[Note, ...] = ()
    tokens: int = 0  # of the text, estimated
    full_tokens: int = 0  # of the whole session verbatim
    text: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The context as JSON."""
        return {
            "text": self.text,
            "summaries": list(self.summaries),
            "messages": [row_to_dict(message) for message in self.messages],
            "notes": [row_to_dict(note) for note in self.notes],
            "tokens": self.tokens,
            "full_tokens": self.full_tokens,
        }


@dataclass(frozen=True, slots=True)
class Holding:
    """How much of a memory is one user's."""

    user_id: str
    messages: int
    notes: int


@dataclass(frozen=True, slots=True)
class Census:
    """How much of each a memory has, for operators."""

    agents: int
    users: int
    sessions: int
    notes: Mapping[str, int]  # by kind
    entities: int
    relations: int
    largest: tuple[Holding, ...]  # those with the most messages and notes
