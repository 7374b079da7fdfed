"""Sessions and the graph over HTTP."""

from typing import Annotated, cast

from fastapi import APIRouter, Path, Query

from kemem.serve.http.guarded import GuardedRoute, Memory
from kemem.serve.http.memory_schemas import Remembered
from kemem.serve.http.schemas import ID_LIMITS
from kemem.serve.http.session_schemas import (
    CheckpointItem,
    ContextQuery,
    Directory,
    GraphQuery,
    OneSession,
    Relations,
    Restoring,
    SessionContext,
    SessionsQuery,
    Summary,
    checkpoint_item,
    directory_of,
    relation_item,
)

SessionId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["sessions"])


@router.get("/v1/sessions")
async def list_sessions(asked: Annotated[SessionsQuery, Query()], memory: Memory) -> Directory:
    """The sessions of a user or agent, in the order of their ids."""
    return directory_of(
        await memory.sessions(asked.user_id, asked.agent_id, limit=asked.limit, cursor=asked.cursor)
    )


@router.get("/v1/sessions/{session_id}/context")
async def read_context(
    session_id: SessionId, asked: Annotated[ContextQuery, Query()], memory: Memory
) -> SessionContext:
    """What to put into a prompt: summaries of what is older, then the newest messages."""
    found = await memory.context(
        session_id, asked.user_id, asked.agent_id, max_tokens=asked.max_tokens
    )
    return cast(SessionContext, found.to_dict())


@router.post("/v1/sessions/{session_id}/summarize")
async def summarize_session(session_id: SessionId, asked: OneSession, memory: Memory) -> Summary:
    """Bring the State of a session up to date."""
    state = await memory.summarize(session_id, asked.user_id, asked.agent_id)
    return Summary(checkpoint=checkpoint_item(state) if state else None)


@router.post("/v1/sessions/{session_id}/checkpoint")
async def save_checkpoint(
    session_id: SessionId, asked: OneSession, memory: Memory
) -> CheckpointItem:
    """Keep a session's short-term memory as it is now."""
    return checkpoint_item(await memory.checkpoint(session_id, asked.user_id, asked.agent_id))


@router.post("/v1/sessions/{session_id}/checkpoint/restore")
async def restore_checkpoint(
    session_id: SessionId, asked: Restoring, memory: Memory
) -> CheckpointItem:
    """Bring short-term memory back as it was at a checkpoint; messages stay."""
    return checkpoint_item(
        await memory.restore_checkpoint(
            session_id, asked.checkpoint_id, asked.user_id, asked.agent_id
        )
    )


@router.post("/v1/sessions/{session_id}/end")
async def end_session(session_id: SessionId, asked: OneSession, memory: Memory) -> Remembered:
    """End a session: its experience becomes a note, its short-term memory goes."""
    added = await memory.end_session(session_id, asked.user_id, asked.agent_id)
    return cast(Remembered, added.to_dict())


@router.get("/v1/graph")
async def read_graph(asked: Annotated[GraphQuery, Query()], memory: Memory) -> Relations:
    """Relations near some entities, or the newest ones."""
    found = await memory.graph(
        **asked.ids,
        around=asked.around,
        hops=asked.hops,
        limit=asked.limit,
        as_of=asked.as_of,
    )
    return Relations(relations=[relation_item(relation) for relation in found])
