"""Sessions and the graph over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from kemem.records import Checkpoint, Entry, Page
from kemem.results import Added, Context
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import (
    ID_LIMITS,
    ContextQuery,
    GraphQuery,
    Relations,
    RestoreRequest,
    SessionRequest,
    SessionsQuery,
    Summary,
)

SessionId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["sessions"])


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
