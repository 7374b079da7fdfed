"""The one write: what changes together, and the later work that it asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kemem.records import (
    Change,
    Checkpoint,
    Embedded,
    Link,
    Message,
    Micros,
    Note,
    Position,
    Scope,
    Where,
)

JobKind = Literal["embed", "reembed", "extract", "condense", "end", "forget", "mirror"]


@dataclass(frozen=True, slots=True)
class Job:
    """A durable piece of later work, written in the same batch as what asks for it.

    embed: give the rows `ids` their vectors.
    reembed: give a whole scope new vectors, page by page, from `after` on.
    extract: draw notes from the messages `ids`.
    condense: bring the State of a session up to date.
    end: draw the experience of a session and end it.
    forget: apply the policy of forgetting to a scope.
    mirror: bring the notes `ids` up to date in a graph database beside the store; all without ids.
    """

    job_id: str
    kind: JobKind
    scope: Scope
    due: Micros
    ids: tuple[str, ...] = ()
    after: Position | None = None
    attempts: int = 0
    state: Literal["pending", "failed"] = "pending"
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """A session that ends: its State goes, its messages stay.

    It is open again as soon as a later batch has a message, note or checkpoint of it.
    """

    scope: Scope
    at: Micros


@dataclass(frozen=True, slots=True)
class Use:
    """How often a note was found since it was last counted."""

    agent_id: str
    user_id: str
    note_id: str
    count: int
    at: Micros


@dataclass(frozen=True, slots=True)
class Batch:
    """One indivisible write: all of it is stored and indexed, or nothing is.

    Drops come first. A note is new, or changed where its id is known; with other words than before
    it loses its links. A new note that says what an open one of its owner, kind and session says
    already is merged into that one, which gains its sources. Dropped notes leave a line without
    text in the history; with any row of a session its checkpoints go, as they quote it.
    """

    put: tuple[Message, ...] = ()
    notes: tuple[Note, ...] = ()  # new or changed
    links: tuple[Link, ...] = ()  # of the notes in this batch
    changes: tuple[Change, ...] = ()
    vectors: tuple[Embedded, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    used: tuple[Use, ...] = ()
    drop: tuple[Where, ...] = ()
    at: Micros = 0  # when, and
    reason: str | None = None  # why notes are dropped, for their history
    ended: tuple[Ending, ...] = ()
    jobs: tuple[Job, ...] = ()  # new or changed
    done: tuple[str, ...] = ()  # ids of finished jobs
    only_if: str | None = None  # a job that must be open still, else nothing is written
    present: tuple[Note, ...] = ()  # notes that must be there still, else nothing is written


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch changed."""

    inserted: tuple[Message, ...] = ()  # as stored: with their final time and sequence number
    ignored: tuple[str, ...] = ()  # ids that were there already with the same content
    dropped: int = 0
    merged: Mapping[str, str] = field(default_factory=dict)  # new note -> the one it merged into
    refused: bool = False  # what had to be there was gone: nothing was written
