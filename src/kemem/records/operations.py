"""What those who run a memory read: who is known, its state, its counts and its journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from kemem.records.serialization import Hidden, OwnerId, Record, Timestamp
from kemem.records.times import Micros

Level = Literal["agent", "user", "session", "owner"]
MOST_COUNTED = 10_000  # jobs, users, … are counted up to this; one more stands for all above


@dataclass(frozen=True, slots=True)
class Health(Record):
    """The state of a store, for operators; 10,001 jobs are more than 10,000."""

    backend: str
    schema_version: int
    messages: int
    notes: int
    vectors: int
    pending_jobs: int
    failed_jobs: int
    oldest_error: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the journal: what the system did, for those who run it; no memory."""

    kind: str
    id: str  # unique within its kind
    ts: Micros
    body: Mapping[str, Any]  # JSON
    user_id: str = ""  # whose data it tells of; empty: nobody's


@dataclass(frozen=True, slots=True)
class Holding:
    """How much of a memory is one user's; 10,001 are more than 10,000."""

    user_id: str
    messages: int
    notes: int
    sessions: int = 0  # counted of single owners only


@dataclass(frozen=True, slots=True)
class Census:
    """How much of each a memory has, for operators; 10,001 are more than 10,000, but for notes."""

    agents: int
    users: int
    sessions: int
    notes: Mapping[str, int]  # by kind
    entities: int
    relations: int
    # Those with the most messages and notes of the 1,000 who wrote last.
    largest: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Inventory(Record):
    """The amount of data of one user."""

    user_id: str
    agents: tuple[str, ...]  # whose conversations it has
    messages: int
    notes: Mapping[str, int]  # by kind
    sessions: int
    summaries: int  # saved states of sessions
    changes: int  # lines in the histories of notes
    entities: int
    relations: int
    vectors: int
    jobs: int
    journal: Mapping[str, int]  # lines by kind: traces of recalls, imports
    size: int  # bytes of texts and vectors, without indexes
    first_message: Timestamp | None
    last_message: Timestamp | None
    backend: str


@dataclass(frozen=True, slots=True)
class Entry(Record):
    """An agent, user or session; an "owner" is an (agent, user) pair that has rows."""

    level: Annotated[Level, Hidden]
    id: str
    agent_id: str
    user_id: OwnerId | None
    name: str | None
    active: bool  # neither ended nor disabled
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    updated: Annotated[Timestamp, Field(serialization_alias="updated_at")]
    ended: Annotated[Timestamp | None, Field(serialization_alias="ended_at")] = None
    type: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    disabled: bool = False  # it takes no new messages, and no search serves what it has

    @property
    def place(self) -> tuple[str, str, str]:
        """What entries are ordered by."""
        return (self.id, self.agent_id, self.user_id or "")
