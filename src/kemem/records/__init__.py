"""The vocabulary: frozen records, whose annotations also say how they look in JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, WithJsonSchema

from kemem.errors import InvalidArgument
from kemem.records.filters import Filter
from kemem.records.listed import Listed
from kemem.records.operations import MOST_COUNTED as MOST_COUNTED
from kemem.records.operations import Census as Census
from kemem.records.operations import Entry as Entry
from kemem.records.operations import Health as Health
from kemem.records.operations import Holding as Holding
from kemem.records.operations import Inventory as Inventory
from kemem.records.operations import Level as Level
from kemem.records.operations import Line as Line
from kemem.records.readable import readable_list
from kemem.records.serialization import (
    Hidden,
    IfAny,
    OptionalText,
    OptionalTimestamp,
    OwnerId,
    Record,
    Timestamp,
    as_memory,
)
from kemem.records.times import Micros as Micros

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]
T = TypeVar("T")
ROLES = ("user", "assistant", "system", "tool")
NOTE_KINDS = ("user_info", "knowledge", "experience", "short_term")
MESSAGES = frozenset({"message"})
NOTES = frozenset(NOTE_KINDS)
SHORT_TERM = frozenset({"short_term"})
CHECKPOINTS_KEPT = 10  # of each session


@dataclass(frozen=True, slots=True)
class Scope(Record):
    """Whose data: what carries all the ids that are given. At least one must be."""

    agent_id: str | None = None
    user_id: OwnerId | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        if self.agent_id is None and self.user_id is None and self.session_id is None:
            raise InvalidArgument("a scope needs at least one of agent_id, user_id, session_id")


class _Row(Record):
    """What messages and notes have in common."""

    __slots__ = ()

    @property
    def position(self: Any) -> "Position":
        return Position(self.ts, self.arrival)

    def field(self: Any, name: str) -> Any:
        """What a filter sees under a name; names that are no fields are keys of the metadata."""
        names = _OF_NOTES if isinstance(self, Note) else _OF_MESSAGES
        if name not in names:
            return self.metadata.get(name.removeprefix("metadata."))
        value = getattr(self, names[name], None)
        if name == "memory_type" and name in self.metadata:  # a note also has the user's own type
            return [value, self.metadata[name]]
        return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Message(_Row):
    """One message of a conversation, stored verbatim."""

    message_id: str
    agent_id: str
    user_id: str  # empty: said to all users of the agent
    session_id: str
    role: str
    content: str
    ts: Timestamp  # when it was said
    ingest_time: Annotated[Micros, Hidden]  # when it was stored; equal to ts if no time was given
    content_type: str = "text"
    parent_message_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sequence_no: Annotated[int, Hidden] = 0  # place in its session, given by the store
    sensitive: Annotated[bool, Hidden] = False
    withdrawn: Annotated[bool, IfAny] = False  # its note was deleted: only transcripts show it
    # Given by the store: when its session went on from another message in its place.
    valid_until: Annotated[OptionalTimestamp, IfAny] = None
    arrival: Annotated[int, Hidden] = field(default=0, compare=False)  # assigned by the store

    @property
    def id(self) -> str:
        return self.message_id

    @property
    def kind(self) -> str:
        return "message"

    @property
    def words(self) -> str:
        """The text to index: what was said and, where it is known, by whom."""
        speaker = self.metadata.get("speaker")
        return f"{speaker} {self.content}" if isinstance(speaker, str) else self.content

    @property
    def speaker(self) -> str:
        """The name of who said it, where it is known; "assistant" names nobody."""
        name = self.metadata.get("speaker")
        name = name.strip() if isinstance(name, str) else ""
        return "" if name.casefold() == self.role else name

    def ended(self, at: Micros) -> bool:
        """Whether its session had gone on from another message in its place at a time."""
        return self.valid_until is not None and self.valid_until <= at


@dataclass(frozen=True, slots=True)
class Note(_Row):
    """A note: extracted from messages, or stored directly."""

    __pydantic_config__ = ConfigDict(json_schema_extra=as_memory)
    note_id: Annotated[str, Field(serialization_alias="id")]
    agent_id: str
    user_id: OwnerId  # empty: shared by all users of the agent
    session_id: str | None
    kind: Annotated[str, WithJsonSchema({"type": "string", "enum": [*MESSAGES, *NOTE_KINDS]})]
    content: Annotated[str, Field(serialization_alias="memory")]
    digest: Annotated[str, Hidden]  # equal for texts that say the same in the same words
    ts: Annotated[Timestamp, Field(serialization_alias="event_time")]  # of what it is about
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    updated: Annotated[Timestamp, Field(serialization_alias="updated_at")]
    valid_from: Timestamp
    valid_until: Timestamp | None = None  # set when a newer note made it untrue
    expires: Annotated[Timestamp | None, Field(serialization_alias="expires_at")] = None
    memory_type: str = "general"
    summary: Annotated[str | None, Hidden] = None
    keywords: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()  # ids of messages
    topic: Annotated[str | None, Hidden] = None  # a newer note of the same topic replaces it
    supersedes: str | None = None  # id of the note that it replaced, or likely did
    importance: float = 0.5
    sensitive: Annotated[bool, Hidden] = False
    uses: Annotated[int, Hidden] = 0
    used: Annotated[Micros | None, Hidden] = None
    arrival: Annotated[int, Hidden] = field(default=0, compare=False)  # assigned by the store

    @property
    def id(self) -> str:
        return self.note_id

    @property
    def words(self) -> str:
        """The text to index."""
        return " ".join(filter(None, (self.content, self.summary, *self.keywords)))

    def ended(self, at: Micros) -> bool:
        """Whether it was no longer true, or expired, at a time."""
        return any(end is not None and end <= at for end in (self.valid_until, self.expires))


Row = Message | Note

TIME_FIELDS = frozenset({"created_at", "updated_at", "ts", "timestamp"})
_FIELDS = {  # what filters call the attributes of rows
    **{name: name for name in ("id", "user_id", "agent_id", "session_id", "kind", "ts", "role")},
    **{"memory_id": "id", "run_id": "session_id", "timestamp": "ts", "sensitive": "sensitive"},
    **{"content": "content", "memory": "content", "data": "content"},
}
_OF_MESSAGES = {**_FIELDS, "created_at": "ingest_time", "updated_at": "ingest_time"}
_OF_NOTES = {
    **_FIELDS,
    **{name: name for name in ("memory_type", "importance", "topic", "keywords", "sources")},
    **{"created_at": "created", "updated_at": "updated"},
}


@dataclass(frozen=True, slots=True)
class Where:
    """Which rows may be seen; `matches` is the definition that every store must agree with."""

    scope: Scope
    since: Micros | None = None  # inclusive
    until: Micros | None = None  # exclusive
    role: str | None = None
    ids: frozenset[str] | None = None
    kinds: frozenset[str] = MESSAGES
    shared: str | None = None  # an agent whose shared notes are seen besides the scope's
    valid_at: Micros | None = None  # notes and messages that had not ended by then
    known_by: Micros | None = None  # notes that had begun, messages that were said by then
    marks: frozenset[str] | None = None  # notes with one of these digests or topics
    sources: frozenset[str] | None = None  # notes that cite one of these messages
    beyond: int | None = None  # messages that have a greater sequence number in their session
    filters: Filter | None = None
    sensitive: bool = True  # whether sensitive rows are seen
    withdrawn: bool = False  # whether withdrawn messages are read; no search finds them

    @property
    def everything(self) -> bool:
        """Whether all that its scope has is meant: to drop it is to erase the scope."""
        return replace(self, withdrawn=False) == Where(self.scope, kinds=MESSAGES | NOTES)

    def matches(self, row: Row) -> bool:
        """Whether a row is visible."""
        return (
            self._reaches(row)
            and row.kind in self.kinds
            and (self.sensitive or not row.sensitive)
            and (self.since is None or row.ts >= self.since)
            and (self.until is None or row.ts < self.until)
            and (self.ids is None or row.id in self.ids)
            and self._admits(row)
            and (self.filters is None or self.filters.matches(row))
        )

    def _reaches(self, row: Row) -> bool:
        if self.shared is not None and (row.agent_id, row.user_id) == (self.shared, ""):
            return isinstance(row, Note)
        return (
            self.scope.agent_id in (None, row.agent_id)
            and self.scope.user_id in (None, row.user_id)
            and self.scope.session_id in (None, row.session_id)
        )

    def _admits(self, row: Row) -> bool:
        if isinstance(row, Message):
            said = self.known_by is None or row.ts <= self.known_by
            is_note_asked = self.marks is not None or self.sources is not None
            is_beyond = self.beyond is None or row.sequence_no > self.beyond
            if row.withdrawn and not self.withdrawn:
                return False
            if self.valid_at is not None and row.ended(self.valid_at):
                return False
            return said and is_beyond and self.role in (None, row.role) and not is_note_asked
        return (
            self.role is None
            and (self.valid_at is None or not row.ended(self.valid_at))
            and (self.known_by is None or row.valid_from <= self.known_by)
            and (self.marks is None or bool(self.marks & {row.digest, row.topic}))
            and (self.sources is None or not self.sources.isdisjoint(row.sources))
        )


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the order of time; rows with equal times are in the order of their arrival."""

    ts: Micros
    arrival: int

    def is_beyond(self, after: "Position | None", newest_first: bool) -> bool:
        """Whether a page that continues after a place contains this one."""
        return after is None or (self < after if newest_first else self > after)


@dataclass(frozen=True, slots=True)
class Rank:
    """A place in a ranking by score, then newest, then id; `mark` names the state of the store."""

    score: float
    ts: Micros
    id: str
    mark: str


class Match(NamedTuple):
    """What an index finds: which row, its time, and how good it is (0-1)."""

    agent_id: str
    user_id: str
    id: str
    ts: Micros
    score: float

    @classmethod
    def of(cls, row: Row, score: float) -> "Match":
        """A row with its score."""
        return cls(row.agent_id, row.user_id, row.id, row.ts, score)


@dataclass(frozen=True, slots=True)
class Page(Record, Listed[T], Generic[T]):
    """One page of a list; `next_cursor` leads to the next one."""

    items: tuple[T, ...]
    next_cursor: OptionalText = None

    def __repr__(self) -> str:
        return readable_list("Page", self.items, next_cursor=self.next_cursor)


@dataclass(frozen=True, slots=True)
class Model:
    """The fingerprint of an embedder; vectors of different fingerprints are never compared."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of some rows, one row of the matrix for each id."""

    scope: Scope
    model: Model
    ids: tuple[str, ...]
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Link(Record):
    """One relation of the graph as a note supports it."""

    note_id: Annotated[str, Hidden]
    source: str
    relationship: str
    destination: str
    source_type: Annotated[str, Hidden] = "thing"
    destination_type: Annotated[str, Hidden] = "thing"


@dataclass(frozen=True, slots=True)
class Relation(Record):
    """One relation of the graph with the notes that support it; it is true while one of them is."""

    agent_id: str
    user_id: OwnerId
    source: str
    relationship: str
    destination: str
    source_type: str
    destination_type: str
    note_ids: tuple[str, ...]
    valid_from: Timestamp
    valid_until: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Change(Record):
    """One line of a note's history. What was deleted leaves a line without its text."""

    agent_id: str
    user_id: OwnerId
    note_id: Annotated[str, Field(serialization_alias="memory_id")]
    event: Literal["add", "update", "delete"]
    at: Timestamp
    before: str | None = None
    after: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Layer(Record):
    """A summary of a run of a session's messages; higher levels are coarser."""

    level: int
    text: str
    first: int  # sequence numbers
    last: int
    tokens: Annotated[int, Hidden] = 0  # of the messages verbatim; 0: written before it was counted


@dataclass(frozen=True, slots=True)
class Checkpoint(Record):
    """A session's short-term memory at one moment: its State in layers, and its notes."""

    checkpoint_id: str
    agent_id: str
    user_id: OwnerId
    session_id: str
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    layers: tuple[Layer, ...] = ()  # oldest first
    notes: tuple[Note, ...] = ()

    @property
    def reach(self) -> int:
        """The sequence number up to which messages are summarised."""
        return self.layers[-1].last if self.layers else 0


Messages = object  # a text, a message, or many, of any shape that `kemem.text.shapes` reads
