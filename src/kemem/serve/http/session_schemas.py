"""What travels over HTTP about sessions, the graph, the directory and jobs."""

from typing import Annotated, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.batch import Job, JobKind
from kemem.records import Checkpoint, Entry, Micros, Page, Relation
from kemem.results import row_to_dict
from kemem.serve.http.memory_schemas import Ids, MemoryItem
from kemem.serve.http.schemas import Asked, Body, Id, Size, Time
from kemem.text.times import to_rfc3339

Hops = Annotated[int, Field(json_schema_extra={"minimum": 1})]
Tokens = Annotated[int, Field(json_schema_extra={"minimum": 50})]
Names = Annotated[list[str], Field(description="Entities, each with a parameter of its own.")]


class PageQuery(Asked):
    """The query string of a list of agents."""

    limit: Size = 100
    cursor: str | None = None


class UsersQuery(PageQuery):
    """The query string of a list of users."""

    agent_id: Id | None = None


class SessionsQuery(PageQuery):
    """The query string of a list of sessions."""

    user_id: Id | None = None
    agent_id: Id | None = None


class ContextQuery(Asked):
    """The query string of a session's context."""

    user_id: Id | None = None
    agent_id: Id | None = None
    max_tokens: Tokens = 2000


class OneSession(Body):
    """Whose session an id means; to be named where several users or agents have one of that id."""

    user_id: Id | None = None
    agent_id: Id | None = None


class Restoring(OneSession):
    """Which checkpoint to go back to; the newest if none is named."""

    checkpoint_id: Id | None = None


class GraphQuery(Asked, Ids):
    """The query string of a look at the graph."""

    around: Names | None = None
    hops: Hops = 1
    limit: Size = 100
    as_of: Time | None = None


class JobsQuery(Asked):
    """The query string of a list of jobs."""

    limit: Size = 100


class SessionContext(TypedDict):
    """What to put into a prompt: `text`, and what it is made of."""

    text: str
    summaries: list[str]
    messages: list[MemoryItem]
    notes: list[MemoryItem]
    tokens: int
    full_tokens: int


class LayerItem(TypedDict):
    """A summary of some messages of a session."""

    level: int
    text: str
    first: int
    last: int


class CheckpointItem(TypedDict):
    """A session's short-term memory at one moment."""

    checkpoint_id: str
    agent_id: str
    user_id: str | None
    session_id: str
    created_at: Time
    layers: list[LayerItem]
    notes: list[MemoryItem]


class Summary(TypedDict):
    """The State of a session; null while all of it still fits verbatim."""

    checkpoint: CheckpointItem | None


class RelationItem(TypedDict):
    """A relation with the notes that support it."""

    agent_id: str
    user_id: str | None
    source: str
    source_type: str
    relationship: str
    destination: str
    destination_type: str
    note_ids: list[str]
    valid_from: Time
    valid_until: Time | None


class Relations(TypedDict):
    """Some relations of the graph."""

    relations: list[RelationItem]


class EntryItem(TypedDict):
    """An agent, a user or a session."""

    id: str
    agent_id: str
    user_id: str | None
    name: str | None
    active: bool
    created_at: Time
    updated_at: Time
    ended_at: Time | None


class Directory(TypedDict):
    """Some of the entries; `next_cursor` is there when there are more."""

    items: list[EntryItem]
    next_cursor: NotRequired[str]


class JobItem(TypedDict):
    """A piece of later work."""

    id: str
    kind: JobKind
    state: Literal["pending", "failed"]
    attempts: int
    due: Time
    error: str | None
    agent_id: str | None
    user_id: str | None
    session_id: str | None


class Jobs(TypedDict):
    """Work that waits or has failed."""

    items: list[JobItem]


class Worked(TypedDict):
    """How many steps were done."""

    done: int


def checkpoint_item(saved: Checkpoint) -> CheckpointItem:
    """A checkpoint as HTTP shows it."""
    return CheckpointItem(
        checkpoint_id=saved.checkpoint_id,
        agent_id=saved.agent_id,
        user_id=saved.user_id or None,
        session_id=saved.session_id,
        created_at=to_rfc3339(saved.created),
        layers=[
            LayerItem(level=it.level, text=it.text, first=it.first, last=it.last)
            for it in saved.layers
        ],
        notes=[cast(MemoryItem, row_to_dict(note)) for note in saved.notes],
    )


def relation_item(relation: Relation) -> RelationItem:
    """A relation as HTTP shows it."""
    return RelationItem(
        agent_id=relation.agent_id,
        user_id=relation.user_id or None,
        source=relation.source,
        source_type=relation.source_type,
        relationship=relation.relationship,
        destination=relation.destination,
        destination_type=relation.destination_type,
        note_ids=list(relation.note_ids),
        valid_from=to_rfc3339(relation.valid_from),
        valid_until=_time(relation.valid_until),
    )


def directory_of(page: Page[Entry]) -> Directory:
    """A page of entries as HTTP shows it."""
    answer = Directory(
        items=[
            EntryItem(
                id=entry.id,
                agent_id=entry.agent_id,
                user_id=entry.user_id or None,
                name=entry.name,
                active=entry.active,
                created_at=to_rfc3339(entry.created),
                updated_at=to_rfc3339(entry.updated),
                ended_at=_time(entry.ended),
            )
            for entry in page.items
        ]
    )
    if page.next_cursor:
        answer["next_cursor"] = page.next_cursor
    return answer


def job_item(job: Job) -> JobItem:
    """A job as HTTP and the command line show it; its details may quote what was said."""
    return JobItem(
        id=job.job_id,
        kind=job.kind,
        state=job.state,
        attempts=job.attempts,
        due=to_rfc3339(job.due),
        error=job.error,
        agent_id=job.scope.agent_id,
        user_id=job.scope.user_id or None,
        session_id=job.scope.session_id,
    )


def _time(at: Micros | None) -> str | None:
    return None if at is None else to_rfc3339(at)
