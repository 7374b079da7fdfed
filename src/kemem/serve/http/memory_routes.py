"""Memories over HTTP: added, searched, listed, changed and erased."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Query

from kemem.errors import InvalidArgument
from kemem.serve.http.guarded import GuardedRoute, Memory, parse_object
from kemem.serve.http.memory_schemas import (
    Answer,
    Deleted,
    EraseQuery,
    Extraction,
    Forgetting,
    Forgotten,
    ForgottenQuery,
    History,
    HistoryQuery,
    ListQuery,
    MemoryItem,
    MemoryList,
    MemorySearch,
    NewMemories,
    NewWords,
    OneQuery,
    Remembered,
    history_line,
)
from kemem.serve.http.schemas import ID_LIMITS

MemoryId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["memories"])


@router.post("/v1/memories")
async def add_memories(given: NewMemories, memory: Memory) -> Remembered:
    """Store messages and remember what they say."""
    added = await memory.add(
        given.messages,
        **given.ids,
        metadata=given.metadata,
        infer=given.infer,
        memory_type=given.memory_type,
        prompt=given.prompt,
        timestamp=given.timestamp,
        expires_at=given.expires_at,
        sensitive=given.sensitive,
    )
    return cast(Remembered, added.to_dict())


@router.get("/v1/memories")
async def list_memories(asked: Annotated[ListQuery, Query()], memory: Memory) -> MemoryList:
    """Notes, newest first; with kinds=message the messages."""
    page = await memory.get_all(
        **asked.ids,
        filters=_conditions(asked.filters),
        limit=asked.limit,
        top_k=asked.top_k,
        kinds=asked.kinds,
        as_of=asked.as_of,
        cursor=asked.cursor,
    )
    return cast(MemoryList, page.to_dict())


@router.delete("/v1/memories")
async def erase_memories(asked: Annotated[EraseQuery, Query()], memory: Memory) -> Deleted:
    """Erase all that carries the ids; with filters only notes, with kinds those kinds."""
    filters = _conditions(asked.filters)
    count = await memory.delete_all(**asked.ids, filters=filters, kinds=asked.kinds)
    return Deleted(deleted=count)


@router.post("/v1/memories/search")
async def search_memories(asked: MemorySearch, memory: Memory) -> Answer:
    """Notes and messages that answer a question, best first."""
    found = await memory.search(
        asked.query,
        **asked.ids,
        limit=asked.limit,
        top_k=asked.top_k,
        filters=asked.filters,
        threshold=asked.threshold,
        rerank=asked.rerank,
        kinds=asked.kinds,
        as_of=asked.as_of,
        since=asked.since,
        until=asked.until,
        keywords=asked.keywords,
        mode=asked.mode,
        explain=asked.explain,
        count=asked.count,
    )
    return cast(Answer, found.to_dict())


@router.post("/v1/memories/extract")
async def extract_memories(asked: Extraction, memory: Memory) -> Remembered:
    """Draw facts and relations anew from stored messages."""
    added = await memory.extract(**asked.ids, prompt=asked.prompt)
    return cast(Remembered, added.to_dict())


@router.post("/v1/memories/forget")
async def forget_memories(asked: Forgetting, memory: Memory) -> Forgotten:
    """Apply the policy of forgetting now."""
    return Forgotten(forgotten=await memory.forget(asked.user_id, asked.agent_id))


@router.get("/v1/memories/forgotten")
async def read_forgotten(asked: Annotated[ForgottenQuery, Query()], memory: Memory) -> History:
    """Notes that were deleted or forgotten, newest first, without their text."""
    lines = await memory.forgotten(asked.user_id, asked.agent_id, limit=asked.limit)
    return History(items=[history_line(line) for line in lines])


@router.get("/v1/memories/{memory_id}")
async def read_memory(
    memory_id: MemoryId, asked: Annotated[OneQuery, Query()], memory: Memory
) -> MemoryItem:
    """One note or message."""
    item = await memory.get(memory_id, **asked.owner)
    return cast(MemoryItem, item.to_dict())


@router.patch("/v1/memories/{memory_id}")
async def change_memory(
    memory_id: MemoryId, asked: Annotated[OneQuery, Query()], given: NewWords, memory: Memory
) -> MemoryItem:
    """A note with other words or metadata; messages never change."""
    if given.content is None and given.metadata is None:
        raise InvalidArgument("give content or metadata: what is to change", field="content")
    item = await memory.update(memory_id, given.content, given.metadata, **asked.owner)
    return cast(MemoryItem, item.to_dict())


@router.delete("/v1/memories/{memory_id}")
async def erase_memory(
    memory_id: MemoryId, asked: Annotated[OneQuery, Query()], memory: Memory
) -> Deleted:
    """Erase one memory; of a message also the notes that were drawn from it alone."""
    await memory.delete(memory_id, **asked.owner)
    return Deleted(deleted=1)


@router.get("/v1/memories/{memory_id}/history")
async def read_history(
    memory_id: MemoryId, asked: Annotated[HistoryQuery, Query()], memory: Memory
) -> History:
    """What became of a note, newest first."""
    asked.check_owner()
    lines = await memory.history(
        memory_id, user_id=asked.user_id, agent_id=asked.agent_id, limit=asked.limit
    )
    return History(items=[history_line(line) for line in lines])


def _conditions(filters: str | None) -> dict[str, Any] | None:
    """The filters of a query string."""
    return None if filters is None else parse_object(filters.encode(), "filters", field="filters")
