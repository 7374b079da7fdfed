"""The one write: what changes together, and the later work that it asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kemem.records import (
    Change,
    Checkpoint,
    Embedded,
    Line,
    Link,
    Message,
    Micros,
    Model,
    Note,
    Position,
    Row,
    Scope,
    Where,
)
from kemem.records.serialization import Hidden, Record, Timestamp, without_defaults

Refusal = Literal["job", "row", "source", "changed"]
ConfiguredLevel = Literal["agent", "user", "session"]
MAX_NAME, MAX_TYPE = 255, 50  # characters
JobKind = Literal[
    "embed", "reembed", "extract", "condense", "end", "forget", "mirror", "import", "webhook"
]


def _flat_scope(schema: dict[str, Any]) -> None:
    without_defaults(schema)
    text_or_null = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    names = ("agent_id", "user_id", "session_id")
    counts = {"done": {"type": "integer"}, "total": {"type": "integer"}}
    progress = {"type": "object", "properties": counts, "required": ["done", "total"]}
    schema["properties"] |= dict.fromkeys(names, text_or_null)
    schema["properties"]["progress"] = {"anyOf": [progress, {"type": "null"}]}
    schema["required"] += (*names, "progress")


@dataclass(frozen=True, slots=True)
class Job(Record):
    """A durable piece of later work, written in the same batch as what asks for it.

    embed: give the rows `ids` their vectors.
    reembed: give a whole scope new vectors, page by page, from `after` on; it has a `progress`.
    extract: draw notes from the messages `ids`.
    condense: bring the State of a session up to date.
    end: draw the experience of a session and end it.
    forget: apply the policy of forgetting to a scope.
    mirror: bring the notes `ids` up to date in a graph database beside the store; all without ids.
    import: take one step of an upload that `details` describe.
    webhook: deliver an event to an endpoint; `details` have both.
    """

    __pydantic_config__ = ConfigDict(
        json_schema_serialization_defaults_required=True, json_schema_extra=_flat_scope
    )

    job_id: Annotated[str, Field(serialization_alias="id")]
    kind: JobKind
    scope: Annotated[Scope, Hidden]  # its ids are
    due: Timestamp
    ids: Annotated[tuple[str, ...], Hidden] = ()
    after: Annotated[Position | None, Hidden] = None
    attempts: int = 0
    state: Literal["pending", "failed"] = "pending"
    error: str | None = None
    details: Annotated[Mapping[str, Any], Hidden] = field(default_factory=dict)

    @property
    def progress(self) -> Mapping[str, int] | None:
        """How many of a `total` of rows are `done`; None for jobs that do not count."""
        counts = {name: self.details[name] for name in ("done", "total") if name in self.details}
        return counts if len(counts) == 2 else None

    @model_serializer(mode="wrap")
    def _serialize(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**handler(self), **self.scope.to_dict(), "progress": self.progress}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler({name: part for name, part in schema.items() if name != "serialization"})


@dataclass(frozen=True, slots=True)
class Ending:
    """A session that ends: its State goes, its messages stay.

    It is open again as soon as a later batch has a message, note or checkpoint of it.
    """

    scope: Scope
    at: Micros


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an agent, user or session is to be from now on; None leaves a value as it is.

    An empty name or type is none; the name of an agent is then its id.
    """

    level: ConfiguredLevel
    scope: Scope  # the id of an agent or user alone, all three of a session
    at: Micros
    name: str | None = None
    type: str | None = None
    config: Mapping[str, Any] | None = None  # in the place of the one before
    disabled: bool | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """How often a note was found since it was last counted."""

    agent_id: str
    user_id: str
    note_id: str
    count: int
    at: Micros


@dataclass(frozen=True, slots=True)
class Expected:
    """What a decision was based on: the newest `limit` notes that a Where admitted, as read."""

    where: Where
    notes: tuple[Note, ...]
    limit: int

    def holds(self, now: Sequence[Note]) -> bool:
        """Whether the same read still answers the same; how often notes were used is no change."""
        return _versions(self.notes) == _versions(now)


# What changes with a note: all that two notes are compared by, but how often it was used.
_version = attrgetter(
    *(it.name for it in fields(Note) if it.compare and it.name not in ("uses", "used"))
)


def _versions(notes: Sequence[Note]) -> dict[tuple[str, str, str], Any]:
    return {(it.agent_id, it.user_id, it.note_id): _version(it) for it in notes}


@dataclass(frozen=True, slots=True)
class Trim:
    """Journal lines to erase: those of a kind from before a time, and all but the newest `keep`."""

    kind: str
    before: Micros | None = None
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One indivisible write: all of it is stored and indexed, or nothing is.

    Drops come first. A note is new, or changed where its id is known; with other words than before
    it loses its links. A new note that says what an open one of its owner, kind and session says
    already is merged into that one, which gains its sources. Dropped notes leave a line without
    text in the history; with any row of a session its checkpoints go, as they quote it. Jobs of the
    owner no longer name a dropped message, and a job that named no other is gone; so it is with
    jobs of the batch that name messages of it which were there already. What a Where drops includes
    withdrawn messages.

    A withdrawn message stays for transcripts: a Where reads it only if it says so, and no search
    finds it. The checkpoints of its session go, and no precondition takes it for present.

    A message of an agent, user or session that is disabled is PermissionDenied. All else can be
    written: what is drawn from messages that were there before, and what is deleted.

    A note cites messages of its own agent and user. One that is deleted is no longer cited; a new
    note that cites one which is not there refuses the batch.

    Preconditions are checked in the transaction that writes, after the owners have been locked:
    where one does not hold, nothing is written and `Applied.refused` tells which.
    """

    put: tuple[Message, ...] = ()
    notes: tuple[Note, ...] = ()  # new or changed
    links: tuple[Link, ...] = ()  # of the notes in this batch
    changes: tuple[Change, ...] = ()
    vectors: tuple[Embedded, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    used: tuple[Use, ...] = ()
    drop: tuple[Where, ...] = ()
    at: Micros = 0  # when notes are dropped or a job fails, and
    reason: str | None = None  # why notes are dropped, for their history
    withdraw: tuple[Where, ...] = ()  # messages, after the drops
    ended: tuple[Ending, ...] = ()
    configured: tuple[Configuration, ...] = ()  # of those that are there
    jobs: tuple[Job, ...] = ()  # new or changed
    done: tuple[str, ...] = ()  # ids of finished jobs
    only_if: tuple[Job, ...] = ()  # that must be open still, and name nothing besides their ids
    # Rows that must be there still, messages not withdrawn, and checkpoints that must be the newest
    # of their session still.
    present: tuple[Row | Checkpoint, ...] = ()
    expects: tuple[Expected, ...] = ()  # reads that must still answer the same
    journal: tuple[Line, ...] = ()  # new, or in the place of lines of the same kind and id
    trim: tuple[Trim, ...] = ()
    model: Model | None = None  # the embedding model in use, to be recorded
    rebuild_words: bool = False  # derive the word index again from messages and notes

    def jobs_of(self, inserted: Sequence[Message]) -> tuple[Job, ...]:
        """The jobs to write where these of its messages are new: the others have had theirs."""
        new = {(it.user_id, it.message_id) for it in inserted}
        known = {(it.user_id, it.message_id) for it in self.put} - new
        jobs = [
            replace(job, ids=tuple(it for it in job.ids if (job.scope.user_id, it) not in known))
            for job in self.jobs
        ]
        return tuple(
            it for it, before in zip(jobs, self.jobs, strict=True) if it.ids or not before.ids
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch changed."""

    inserted: tuple[Message, ...] = ()  # as stored: with their final time and sequence number
    ignored: tuple[str, ...] = ()  # ids that were there already with the same content
    dropped: int = 0  # rows and journal lines
    merged: Mapping[str, str] = field(default_factory=dict)  # new note -> the one it merged into
    refused: Refusal | None = None  # the precondition that did not hold: nothing was written


def merge_notes(old: Note, new: Note) -> Note:
    """A stored note that is said again: its sources grow, and it lasts as long as either."""
    lasts = old.expires is None or new.expires is None
    return replace(
        old,
        sources=tuple(dict.fromkeys((*old.sources, *new.sources))),
        importance=max(old.importance, new.importance),
        sensitive=old.sensitive or new.sensitive,
        updated=max(old.updated, new.updated),
        expires=None if lasts else max(old.expires or 0, new.expires or 0),
    )
