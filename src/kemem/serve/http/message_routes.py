"""The Query API of the message log, version 1."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from kemem.serve.http.guarded import GuardedRoute, Memory
from kemem.serve.http.schemas import (
    ID_LIMITS,
    Context,
    Highlight,
    HybridAnswer,
    HybridItem,
    HybridSearch,
    LexicalAnswer,
    LexicalSearch,
    MessagePage,
    NeighborsQuery,
    NewMessages,
    RangeQuery,
    Score,
    SemanticAnswer,
    SemanticItem,
    SemanticSearch,
    Stored,
    chat_message,
    selected,
)

IdInPath = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["messages"])


@router.get("/v1/users/{user_id}/messages")
async def read_messages(
    user_id: IdInPath, asked: Annotated[RangeQuery, Query()], memory: Memory
) -> MessagePage:
    """A user's messages of a time range, newest first."""
    page = await memory.messages(
        user_id, asked.since, asked.until, asked.role, asked.page_size, asked.cursor
    )
    answer = MessagePage(items=[chat_message(message) for message in page.items])
    if page.next_cursor:
        answer["next_cursor"] = page.next_cursor
    return answer


@router.post("/v1/users/{user_id}/messages")
async def store_messages(user_id: IdInPath, given: NewMessages, memory: Memory) -> Stored:
    """Store messages: all or none, and each message_id once."""
    messages = [message.model_dump(exclude_none=True) for message in given.messages]
    stored = await memory.ingest(messages, user_id)
    return Stored(
        inserted=list(stored.inserted),
        ignored=list(stored.ignored),
        failed=list(stored.failed),
        truncated=list(stored.truncated),
        pending=stored.pending,
    )


@router.get("/v1/users/{user_id}/messages/{message_id}/neighbors")
async def read_neighbors(
    user_id: IdInPath,
    message_id: IdInPath,
    asked: Annotated[NeighborsQuery, Query()],
    memory: Memory,
) -> Context:
    """A message and what was said around it, oldest first."""
    found = await memory.neighbors(message_id, user_id, asked.before, asked.after)
    return Context(items=[chat_message(message) for message in found])


@router.post("/v1/messages/lexical_search")
async def lexical_search(asked: LexicalSearch, memory: Memory) -> LexicalAnswer:
    """Messages by their words, best first."""
    page = await memory.lexical_search(
        asked.query_text,
        asked.user_id,
        since=asked.since,
        until=asked.until,
        role=asked.role,
        page_size=asked.page_size,
        cursor=asked.cursor,
    )
    hits = page.items
    answer = LexicalAnswer(
        items=[selected(hit, asked.return_fields) for hit in hits],
        highlights=[Highlight(message_id=h.id, snippets=list(h.snippets)) for h in hits],
        scores=[Score(message_id=hit.id, score=hit.score) for hit in hits],
    )
    if page.next_cursor:
        answer["next_cursor"] = page.next_cursor
    return answer


@router.post("/v1/messages/semantic_search")
async def semantic_search(asked: SemanticSearch, memory: Memory) -> SemanticAnswer:
    """Messages by their meaning, nearest first."""
    hits = await memory.semantic_search(
        asked.query_text,
        asked.user_id,
        query_embedding=asked.query_embedding,
        since=asked.since,
        until=asked.until,
        role=asked.role,
        top_k=asked.top_k,
        min_score=asked.min_score,
    )
    return SemanticAnswer(
        items=[
            SemanticItem(**selected(hit, asked.return_fields), semantic_score=hit.score)
            for hit in hits
        ]
    )


@router.post("/v1/messages/hybrid_search")
async def hybrid_search(asked: HybridSearch, memory: Memory) -> HybridAnswer:
    """Messages by words and meaning together, with the reasons for each."""
    hits = await memory.hybrid_search(
        asked.query_text, asked.user_id, asked.limit, asked.since, asked.until, asked.role
    )
    return HybridAnswer(
        items=[
            HybridItem(
                **selected(hit, asked.return_fields),
                score=hit.score,
                why=list(hit.why),
                highlights=list(hit.snippets),
            )
            for hit in hits
        ]
    )
