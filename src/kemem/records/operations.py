"""What those who run a memory read: its state, its counts and its journal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kemem.records.serialization import Record
from kemem.records.times import Micros


@dataclass(frozen=True, slots=True)
class Health(Record):
    """The state of a store, for operators."""

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
