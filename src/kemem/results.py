"""What callers get back: typed, printable as part of a prompt, and as plain dicts on request."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kemem.records import Link, Message, Micros, Note, Row
from kemem.records.listed import Listed
from kemem.records.ontology import OWN_TYPE
from kemem.records.readable import readable_list, short
from kemem.records.serialization import (
    Hidden,
    IfAny,
    OptionalText,
    Record,
    Timestamp,
    adapter,
)
from kemem.records.times import to_rfc3339
from kemem.text.language import is_chinese

It = TypeVar("It", bound="Item", covariant=True)


_DATED = re.compile(r"[(（]\d{4}-\d{2}[^()（）]{0,20}[)）]$")  # the text gives a date itself


def memory_to_dict(row: Row) -> dict[str, Any]:
    """A message or note in the flat form that users of such systems know."""
    if isinstance(row, Note):
        return row.to_dict() | {"memory_type": Item(row).memory_type}
    stored = to_rfc3339(row.ingest_time)
    return {
        "id": row.id,
        "memory": row.content,
        "kind": row.kind,
        "agent_id": row.agent_id,
        "user_id": row.user_id or None,
        "session_id": row.session_id,
        "event_time": to_rfc3339(row.ts),
        "metadata": dict(row.metadata),
        "role": row.role,
        "created_at": stored,
        "updated_at": stored,
        "sources": [row.id],
        **({"withdrawn": True} if row.withdrawn else {}),
        **({"valid_until": to_rfc3339(row.valid_until)} if row.valid_until is not None else {}),
    }


class MemorySchema:
    """Describes in JSON schema what is written by `memory_to_dict`."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        memory = handler.resolve_ref_schema(handler(adapter(Note).core_schema))
        return {name: part for name, part in memory.items() if name != "description"}


def _line(text: str) -> str:
    """One line, so that a text cannot pose as another."""
    return " ".join(text.split())


def ended_text(at: Micros, language_of: str) -> str:
    """When something ceased to be true, in the language of a text.  -> "until 2026-02-01" """
    day = to_rfc3339(at)[:10]
    return f"到 {day} 为止" if is_chinese(language_of) else f"until {day}"


@dataclass(frozen=True, slots=True)
class Item(MemorySchema):
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
    def memory_type(self) -> str:
        """The user's own type, in the metadata, or the one that a note was given."""
        own = self.row.metadata.get(OWN_TYPE)
        if isinstance(own, str):
            return own
        return self.row.memory_type if isinstance(self.row, Note) else "message"

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.row.metadata

    @property
    def user_id(self) -> str | None:
        return self.row.user_id or None

    @property
    def session_id(self) -> str | None:
        return self.row.session_id

    @property
    def event_time(self) -> str:
        """When it was said, or when what it tells happens, as RFC 3339."""
        return to_rfc3339(self.row.ts)

    @property
    def keywords(self) -> tuple[str, ...]:
        return self.row.keywords if isinstance(self.row, Note) else ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The ids of the messages that say it."""
        return self.row.sources if isinstance(self.row, Note) else (self.row.id,)

    @property
    def withdrawn(self) -> bool:
        """Whether it is a message that only transcripts show: a memory of it was deleted."""
        return isinstance(self.row, Message) and self.row.withdrawn

    @property
    def message(self) -> Message:
        """The message; a note is not one."""
        if not isinstance(self.row, Message):
            raise AttributeError(f"{self.id} is a note: see .note, or .row for either")
        return self.row

    @property
    def note(self) -> Note:
        """The note; a message is not one."""
        if not isinstance(self.row, Note):
            raise AttributeError(f"{self.id} is a message: see .message, or .row for either")
        return self.row

    def __str__(self) -> str:
        day, text = to_rfc3339(self.row.ts)[:10], _line(self.memory)
        if isinstance(self.row, Message):
            speaker = _line(self.row.speaker or self.row.role)[:64]
            return f"- [{day}] {speaker}: {text}"
        if _DATED.search(text):
            return f"- {text}"
        return f"- {text}（{day}）" if is_chinese(text) else f"- {text} ({day})"

    def __repr__(self) -> str:
        return f"Item({self._shown()})"

    def _shown(self) -> str:
        """What its repr says of a row."""
        return (
            f"id={self.id!r}, kind={self.kind!r}, memory={short(self.memory)}, "
            f"user_id={self.user_id!r}, event_time='{self.event_time}'"
        )

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON."""
        return memory_to_dict(self.row)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        as_json = core_schema.plain_serializer_function_ser_schema(lambda item: item.to_dict())
        return core_schema.is_instance_schema(cls, serialization=as_json)


@dataclass(frozen=True, slots=True)
class Hit(Item):
    """A message or note that was found, how good it is (0-1) and why."""

    score: float
    why: tuple[str, ...] = ()
    snippets: tuple[str, ...] = ()
    ended: Micros | None = None  # when it ceased to be true
    superseded_by: str | None = None  # id of the note that says what holds instead
    in_reply_to: str = ""  # of a short answer: the assistant's question before it

    @property
    def valid_until(self) -> str | None:
        """When it ceased to be true, as RFC 3339."""
        return None if self.ended is None else to_rfc3339(self.ended)

    @property
    def text(self) -> str:
        """The text after the question that it answers, and until when it was true."""
        asked = f"assistant: {self.in_reply_to} user: " if self.in_reply_to else ""
        until = f" [{ended_text(self.ended, self.memory)}]" if self.ended is not None else ""
        return f"{asked}{self.memory}{until}"

    @property
    def marks(self) -> dict[str, Any]:
        """What a search tells of it beside its own fields, as JSON: until when it was true, and
        what it answers.
        """
        marks: dict[str, Any] = {"in_reply_to": self.in_reply_to} if self.in_reply_to else {}
        if self.ended is not None:
            marks |= {"valid_until": self.valid_until, "superseded_by": self.superseded_by}
        return marks

    def __str__(self) -> str:
        shown = Item.__str__(self)
        if self.in_reply_to:
            day, answer = shown.split("] ", 1)
            shown = f"{day}] assistant: {_line(self.in_reply_to)} {answer}"
        return shown if self.ended is None else f"{shown} [{ended_text(self.ended, self.memory)}]"

    def __repr__(self) -> str:
        why = f", why={self.why!r}" if self.why else ""
        marks = "".join(f", {name}={short(value)}" for name, value in self.marks.items())
        return f"Hit({self._shown()}, score={self.score:.3f}{marks}{why})"

    def to_dict(self) -> dict[str, Any]:
        """The hit as JSON; `why` where it was asked for."""
        shown = {**memory_to_dict(self.row), "score": self.score, **self.marks}
        return {**shown, "why": list(self.why)} if self.why else shown

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        memory = handler.resolve_ref_schema(
            MemorySchema.__get_pydantic_json_schema__(schema, handler)
        )
        own = {"score": {"type": "number"}, "superseded_by": {"type": ["string", "null"]}}
        own |= {"in_reply_to": {"type": "string"}}
        own["why"] = {"type": "array", "items": {"type": "string"}}
        return {
            "type": "object",
            "properties": {**memory["properties"], **own},
            "required": [*memory["required"], "score"],
        }


def next_end(rows: Iterable[Row], now: Micros) -> Micros | None:
    """When the first of some rows will cease to be true or to count, or expire."""
    ends: list[Micros | None] = []
    for row in rows:
        ends += [row.valid_until, row.expires] if isinstance(row, Note) else [row.valid_until]
    return min((end for end in ends if end is not None and end > now), default=None)


def is_over(item: Item) -> bool:
    """Whether an item is a hit that has ended, which no prompt shows unless it asks for that."""
    return isinstance(item, Hit) and item.ended is not None


@dataclass(frozen=True, slots=True)
class Memories(Record, Listed[It], Generic[It]):
    """Some memories in order; in an f-string they read as part of a prompt."""

    items: Annotated[tuple[It, ...], Field(serialization_alias="results")]
    next_cursor: OptionalText = None  # leads to the rest of a longer list
    missing: Annotated[tuple[str, ...], IfAny] = ()  # signals of a search that were unavailable
    language: Annotated[Literal["zh", "en"], Hidden] = "en"
    total: Annotated[int, IfAny] = 0  # of a search with `count`: hits, those beyond its limit too
    past: Annotated[bool, Hidden] = False  # of a search that asks for what has ended
    holds_until: Annotated[Micros | None, Hidden] = None  # when time alone may change them

    def __str__(self) -> str:
        lines = [str(item) for item in self.items if self.past or not is_over(item)]
        if not lines:
            return "（没有相关记忆）" if self.language == "zh" else "(no relevant memories)"
        return "\n".join(lines)

    def __repr__(self) -> str:
        others = {"next_cursor": self.next_cursor, "missing": self.missing, "total": self.total}
        return readable_list("Memories", self.items, **others)

    def to_dict(self) -> dict[str, Any]:
        """{"results": [...]}, and beside it next_cursor, missing and total where there are any."""
        memories = adapter(Memories[Item])
        shown: dict[str, Any] = memories.dump_python(self, mode="json", by_alias=True)
        return shown


@dataclass(frozen=True, slots=True)
class Outcome(Record):
    """The outcome for one fact: a new note, one that replaces another, or nothing new."""

    id: str
    memory: str
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    # the text that is no longer true
    previous: Annotated[OptionalText, Field(serialization_alias="previous_memory")] = None


@dataclass(frozen=True, slots=True)
class Added(Record):
    """The result of adding messages."""

    results: tuple[Outcome, ...] = ()
    relations: tuple[Link, ...] = ()
    message_ids: tuple[str, ...] = ()  # stored by this call
    ignored: tuple[str, ...] = ()  # stored before
    truncated: tuple[str, ...] = ()  # cut to the size limit; see the message's metadata
    pending: bool = False  # True: stored and searchable, a job does the rest later
    problems: tuple[str, ...] = ()  # what failed and was left for later, or left out
    skipped: Annotated[tuple[str, ...], IfAny] = ()  # "messages[2]": without any content


@dataclass(frozen=True, slots=True)
class Deletion(Record):
    """The result of a deletion: the memory and the messages that it cites."""

    deleted: int  # messages and notes that are gone
    withdrawn: tuple[str, ...] = ()  # messages that only transcripts show from now on
    erased: tuple[str, ...] = ()  # messages that are gone


@dataclass(frozen=True, slots=True)
class Ingested(Record):
    """The result of storing messages."""

    inserted: tuple[str, ...]
    ignored: tuple[str, ...]
    failed: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()  # cut to the size limit; see the message's metadata
    pending: bool = False  # True: stored and searchable by words, vectors follow by a job
    problems: Annotated[tuple[str, ...], IfAny] = ()  # what was left out, or kept otherwise
    skipped: Annotated[tuple[str, ...], IfAny] = ()  # "messages[2]": without any content


@dataclass(frozen=True, slots=True)
class Context(Record):
    """The prompt of a session: summaries of what is older, then the newest messages."""

    summaries: tuple[str, ...] = ()  # oldest first
    messages: tuple[Annotated[Message, PlainSerializer(memory_to_dict), MemorySchema], ...] = ()
    notes: tuple[Note, ...] = ()
    tokens: int = 0  # of the text, estimated
    full_tokens: int = 0  # of the whole session verbatim, as counted when it was summarised
    text: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ProfileLine(Record):
    """One fact about a user, with its sources."""

    id: str  # of the note
    memory: str
    sources: tuple[str, ...]  # ids of the messages that say it
    since: Timestamp  # when it became true, as far as is known


@dataclass(frozen=True, slots=True)
class ProfileGroup(Record):
    """The facts about a user under one topic, most important first."""

    name: str  # identity, health, home, work, people, preferences, …
    title: str  # the heading, in the language of the profile
    lines: tuple[ProfileLine, ...]


@dataclass(frozen=True, slots=True)
class Profile(Record):
    """What is true about a user now; as text, a part of a prompt, marked as data."""

    user_id: str
    groups: tuple[ProfileGroup, ...] = ()
    language: Literal["zh", "en"] = "en"  # of most notes
    omitted: int = 0  # notes for which there was no room
    tokens: int = 0  # of the text, estimated
    text: str = field(default="", repr=False)  # empty where nothing is known
    until: Annotated[Micros | None, Hidden] = None  # when a note of it ends, if one does

    def __str__(self) -> str:
        return self.text
