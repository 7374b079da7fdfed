"""Memories over HTTP: added, searched, listed, changed and erased."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from kemem.records import Change
from kemem.results import Added, Hit, Item, Memories
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import (
    ID_LIMITS,
    AddRequest,
    Deleted,
    DeleteQuery,
    ExtractRequest,
    ForgetRequest,
    Forgotten,
    ForgottenQuery,
    HistoryQuery,
    Items,
    ListQuery,
    MemoryQuery,
    SearchRequest,
    UpdateRequest,
)
from kemem.serve.http.strict import parse_object

MemoryId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["memories"])


@router.post("/v1/memories")
async def add_memories(body: AddRequest, memory: Memory) -> Added:
    """Store messages and remember what they say."""
    return await memory.add(**body.arguments())


@router.get("/v1/memories")
async def list_memories(query: Annotated[ListQuery, Query()], memory: Memory) -> Memories[Item]:
    """Notes, newest first; with kinds=message the messages."""
    return await memory.get_all(**_with_filters(query))


@router.delete("/v1/memories")
async def erase_memories(query: Annotated[DeleteQuery, Query()], memory: Memory) -> Deleted:
    """Erase all that carries the ids; with filters only notes, with kinds those kinds."""
    return Deleted(deleted=await memory.delete_all(**_with_filters(query)))


@router.post("/v1/memories/search")
async def search_memories(body: SearchRequest, memory: Memory) -> Memories[Hit]:
    """Notes and messages that answer a question, best first."""
    return await memory.search(**body.arguments())


@router.post("/v1/memories/extract")
async def extract_memories(body: ExtractRequest, memory: Memory) -> Added:
    """Draw facts and relations anew from stored messages."""
    return await memory.extract(**body.arguments())


@router.post("/v1/memories/forget")
async def forget_memories(body: ForgetRequest, memory: Memory) -> Forgotten:
    """Apply the policy of forgetting now."""
    return Forgotten(forgotten=await memory.forget(**body.arguments()))


@router.get("/v1/memories/forgotten")
async def read_forgotten(
    query: Annotated[ForgottenQuery, Query()], memory: Memory
) -> Items[Change]:
    """Notes that were deleted or forgotten, newest first, without their text."""
    return Items(items=await memory.forgotten(**query.arguments()))


@router.get("/v1/memories/{memory_id}")
async def read_memory(
    memory_id: MemoryId, query: Annotated[MemoryQuery, Query()], memory: Memory
) -> Item:
    """One note or message."""
    return await memory.get(memory_id, **query.arguments())


@router.patch("/v1/memories/{memory_id}")
async def change_memory(
    memory_id: MemoryId, query: Annotated[MemoryQuery, Query()], body: UpdateRequest, memory: Memory
) -> Item:
    """A note with other words or metadata; messages never change."""
    return await memory.update(memory_id, **body.arguments(), **query.arguments())


@router.delete("/v1/memories/{memory_id}")
async def erase_memory(
    memory_id: MemoryId, query: Annotated[MemoryQuery, Query()], memory: Memory
) -> Deleted:
    """Erase one memory; of a message also the notes that were drawn from it alone."""
    await memory.delete(memory_id, **query.arguments())
    return Deleted(deleted=1)


@router.get("/v1/memories/{memory_id}/history")
async def read_history(
    memory_id: MemoryId, query: Annotated[HistoryQuery, Query()], memory: Memory
) -> Items[Change]:
    """What became of a note, newest first."""
    return Items(items=await memory.history(memory_id, **query.arguments()))


def _with_filters(query: ListQuery | DeleteQuery) -> dict[str, Any]:
    """The arguments of a query string, whose filters are JSON."""
    arguments = query.arguments()
    if query.filters is not None:
        arguments["filters"] = parse_object(query.filters.encode(), "filters", field="filters")
    return arguments
