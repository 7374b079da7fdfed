"""Sessions and the graph over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.records import Checkpoint, Entry, Page, Relation
from kemem.results import Added, Context
from kemem.serve.http.requests import (
    ID_LIMITS,
    Id,
    Ids,
    OwnerIds,
    PageQuery,
    QueryString,
    Size,
    StrictModel,
    Time,
    limited,
)
from kemem.serve.http.routing import GuardedRoute, Memory

SessionId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]


router = APIRouter(route_class=GuardedRoute, tags=["sessions"])


class SessionsQuery(PageQuery):
    """The query string of a list of sessions."""

    user_id: Id | None = None
    agent_id: Id | None = None


class ContextQuery(QueryString, OwnerIds):
    """The query string of a session's context."""

    max_tokens: Annotated[int, limited(minimum=50)] = 2000


class SessionRequest(StrictModel, OwnerIds):
    """Whose session an id means; required where several users or agents have one of that id."""


class RestoreRequest(SessionRequest):
    """Which checkpoint to go back to; the newest if none is named."""

    checkpoint_id: Id | None = None


class GraphQuery(QueryString, Ids):
    """The query string of a look at the graph."""

    around: (
        Annotated[list[str], Field(description="Entities, each with a parameter of its own.")]
        | None
    ) = None
    hops: Size = 1
    limit: Size = 100
    as_of: Time | None = None


class Summary(TypedDict):
    """The State of a session; null while all of it still fits verbatim."""

    checkpoint: Checkpoint | None


class Relations(TypedDict):
    """Some relations of the graph."""

    relations: list[Relation]


@router.get("/v1/sessions")
async def list_sessions(query: Annotated[SessionsQuery, Query()], memory: Memory) -> Page[Entry]:
    """The sessions of a user or agent, in the order of their ids."""
    return await memory.sessions(**query.arguments())


@router.get("/v1/sessions/{session_id}/context")
async def read_context(
    session_id: SessionId, query: Annotated[ContextQuery, Query()], memory: Memory
) -> Context:
    """What to put into a prompt: summaries of what is older, then the newest messages."""
    return await memory.context(session_id, **query.arguments())


@router.post("/v1/sessions/{session_id}/summarize")
async def summarize_session(session_id: SessionId, body: SessionRequest, memory: Memory) -> Summary:
    """Bring the State of a session up to date."""
    return Summary(checkpoint=await memory.summarize(session_id, **body.arguments()))


@router.post("/v1/sessions/{session_id}/checkpoint")
async def save_checkpoint(
    session_id: SessionId, body: SessionRequest, memory: Memory
) -> Checkpoint:
    """Keep a session's short-term memory as it is now."""
    return await memory.checkpoint(session_id, **body.arguments())


@router.post("/v1/sessions/{session_id}/checkpoint/restore")
async def restore_checkpoint(
    session_id: SessionId, body: RestoreRequest, memory: Memory
) -> Checkpoint:
    """Bring short-term memory back as it was at a checkpoint; messages stay."""
    return await memory.restore_checkpoint(session_id, **body.arguments())


@router.post("/v1/sessions/{session_id}/end")
async def end_session(session_id: SessionId, body: SessionRequest, memory: Memory) -> Added:
    """End a session: its experience becomes a note, its short-term memory goes."""
    return await memory.end_session(session_id, **body.arguments())


@router.get("/v1/graph")
async def read_graph(query: Annotated[GraphQuery, Query()], memory: Memory) -> Relations:
    """Relations near some entities, or the newest ones."""
    return Relations(relations=await memory.graph(**query.arguments()))
