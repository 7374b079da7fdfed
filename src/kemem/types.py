"""The vocabulary: frozen records that every room speaks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from kemem.errors import InvalidArgument

Micros = int  # a point in time: UTC microseconds since 1970
Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]
T = TypeVar("T")

ROLES = ("user", "assistant", "system", "tool")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose data: what carries all the ids that are given. At least one must be."""

    agent_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        if self.agent_id is None and self.user_id is None and self.session_id is None:
            raise InvalidArgument("a scope needs at least one of agent_id, user_id, session_id")


@dataclass(frozen=True, slots=True)
class Message:
    """What was said, verbatim."""

    message_id: str
    agent_id: str
    user_id: str
    session_id: str
    role: str
    content: str
    ts: Micros  # when it was said
    ingest_time: Micros  # when we were told
    content_type: str = "text"
    parent_message_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sequence_no: int = 0  # place in its session, given by the store

    @property
    def words(self) -> str:
        """The text to index: what was said and, where it is known, by whom."""
        speaker = self.metadata.get("speaker")
        return f"{speaker} {self.content}" if isinstance(speaker, str) else self.content


@dataclass(frozen=True, slots=True)
class Where:
    """What may be seen. This method is the definition; every store must agree with it."""

    scope: Scope
    since: Micros | None = None  # inclusive
    until: Micros | None = None  # exclusive
    role: str | None = None
    ids: frozenset[str] | None = None

    def matches(self, message: Message) -> bool:
        """Whether a message is visible."""
        return (
            self.scope.agent_id in (None, message.agent_id)
            and self.scope.user_id in (None, message.user_id)
            and self.scope.session_id in (None, message.session_id)
            and (self.since is None or message.ts >= self.since)
            and (self.until is None or message.ts < self.until)
            and self.role in (None, message.role)
            and (self.ids is None or message.message_id in self.ids)
        )


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the transcript: messages are ordered by time, then by id."""

    ts: Micros
    message_id: str


@dataclass(frozen=True, slots=True)
class Rank:
    """A place in a ranking: best score first, then newest, then by id.

    `mark` names the state of the store that was ranked, so that later pages rank the same rows.
    """

    score: float
    ts: Micros
    message_id: str
    mark: str


@dataclass(frozen=True, slots=True)
class Match:
    """What an index finds: which message, when it was said, and how good it is (0-1)."""

    agent_id: str
    user_id: str
    message_id: str
    ts: Micros
    score: float

    @classmethod
    def of(cls, message: Message, score: float) -> "Match":
        """A message with its score."""
        return cls(message.agent_id, message.user_id, message.message_id, message.ts, score)


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found, how good it is (0-1) and why."""

    message: Message
    score: float
    why: tuple[str, ...] = ()
    snippets: tuple[str, ...] = ()

    @property
    def message_id(self) -> str:
        return self.message.message_id


@dataclass(frozen=True, slots=True)
class Found:
    """What the word index answers: the best rows, how many matched in all, the mark to go on."""

    matches: tuple[Match, ...]
    total: int
    mark: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A slice of a longer answer; `next_cursor` leads to the rest."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """The fingerprint of an embedder; vectors of different fingerprints are never compared."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of some messages, one row of the matrix for each id."""

    scope: Scope
    model: Model
    message_ids: tuple[str, ...]
    matrix: Matrix


JobKind = Literal["embed", "reembed"]


@dataclass(frozen=True, slots=True)
class Job:
    """A durable piece of later work, written in the same batch as what asks for it.

    embed: give `message_ids` their vectors.
    reembed: give a whole scope new vectors, page by page, from `after` on.
    """

    job_id: str
    kind: JobKind
    scope: Scope
    due: Micros
    message_ids: tuple[str, ...] = ()
    after: Position | None = None
    attempts: int = 0
    state: Literal["pending", "failed"] = "pending"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One indivisible write: all of it is stored and indexed, or nothing is."""

    put: tuple[Message, ...] = ()
    vectors: tuple[Embedded, ...] = ()
    drop: tuple[Where, ...] = ()
    jobs: tuple[Job, ...] = ()  # new or changed
    done: tuple[str, ...] = ()  # ids of finished jobs


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch changed."""

    inserted: tuple[Message, ...] = ()  # as stored: with their final time and sequence number
    ignored: tuple[str, ...] = ()  # ids that were there already with the same content
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of the messages that were handed in."""

    inserted: tuple[str, ...]
    ignored: tuple[str, ...]
    failed: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()  # cut to the size limit; see the message's metadata
    pending: bool = False  # True: stored and searchable by words, vectors follow by a job


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a store, for operators."""

    backend: str
    schema_version: int
    messages: int
    vectors: int
    pending_jobs: int
    failed_jobs: int
    oldest_error: str | None = None


Messages = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
