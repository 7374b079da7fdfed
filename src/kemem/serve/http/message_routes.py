"""The message log over HTTP: the Query API, version 1."""

from collections.abc import Sequence
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query

from kemem.records import Message, Page
from kemem.results import Hit, Ingested
from kemem.serialization import to_dict
from kemem.serve.http.message_schemas import (
    FIELD_NAMES,
    FieldName,
    Highlight,
    HybridHit,
    HybridSearch,
    LexicalHits,
    LexicalSearch,
    NeighborsQuery,
    NewMessages,
    RangeQuery,
    Score,
    SelectedMessage,
    SemanticHit,
    SemanticSearch,
)
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import ID_LIMITS, Items

IdInPath = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["messages"])


@router.get("/v1/users/{user_id}/messages")
async def read_messages(
    user_id: IdInPath, query: Annotated[RangeQuery, Query()], memory: Memory
) -> Page[Message]:
    """A user's messages of a time range, newest first."""
    return await memory.messages(user_id, **query.arguments())


@router.post("/v1/users/{user_id}/messages")
async def store_messages(user_id: IdInPath, body: NewMessages, memory: Memory) -> Ingested:
    """Store messages: all or none, and each message_id once."""
    messages = [message.model_dump(exclude_none=True) for message in body.messages]
    return await memory.ingest(messages, user_id)


@router.get("/v1/users/{user_id}/messages/{message_id}/neighbors")
async def read_neighbors(
    user_id: IdInPath,
    message_id: IdInPath,
    query: Annotated[NeighborsQuery, Query()],
    memory: Memory,
) -> Items[Message]:
    """A message and what was said around it, oldest first."""
    return Items(items=await memory.neighbors(message_id, user_id, **query.arguments()))


@router.post("/v1/messages/lexical_search")
async def lexical_search(body: LexicalSearch, memory: Memory) -> LexicalHits:
    """Messages by their words, best first."""
    page = await memory.lexical_search(**body.arguments())
    answer = LexicalHits(
        items=[_selected(hit, body.return_fields) for hit in page.items],
        highlights=[
            Highlight(message_id=hit.id, snippets=list(hit.snippets)) for hit in page.items
        ],
        scores=[Score(message_id=hit.id, score=hit.score) for hit in page.items],
    )
    if page.next_cursor:
        answer["next_cursor"] = page.next_cursor
    return answer


@router.post("/v1/messages/semantic_search")
async def semantic_search(body: SemanticSearch, memory: Memory) -> Items[SemanticHit]:
    """Messages by their meaning, nearest first."""
    hits = await memory.semantic_search(**body.arguments())
    return Items(
        items=[
            SemanticHit(**_selected(hit, body.return_fields), semantic_score=hit.score)
            for hit in hits
        ]
    )


@router.post("/v1/messages/hybrid_search")
async def hybrid_search(body: HybridSearch, memory: Memory) -> Items[HybridHit]:
    """Messages by words and meaning together, with the reasons for each."""
    hits = await memory.hybrid_search(**body.arguments())
    return Items(
        items=[
            HybridHit(
                **_selected(hit, body.return_fields),
                score=hit.score,
                why=list(hit.why),
                highlights=list(hit.snippets),
            )
            for hit in hits
        ]
    )


def _selected(hit: Hit, names: Sequence[FieldName] | None) -> SelectedMessage:
    """The fields of a message that the request names; without names, all of them."""
    message = to_dict(hit.message)
    wanted = FIELD_NAMES if names is None else names
    return cast(SelectedMessage, {name: message[name] for name in wanted})
