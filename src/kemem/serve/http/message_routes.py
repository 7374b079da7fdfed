"""The message log over HTTP: the Query API, version 1."""

from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, cast

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.records import Message, Page
from kemem.records.serialization import Share, to_dict
from kemem.results import Hit, Ingested
from kemem.serve.http.requests import (
    ID_LIMITS,
    Id,
    Items,
    NotBlank,
    QueryString,
    Role,
    Size,
    StrictModel,
    Time,
    also_named,
    limited,
)
from kemem.serve.http.routing import GuardedRoute, Memory

IdInPath = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["messages"])


class SelectedMessage(TypedDict, total=False):
    """A message, or the fields of it that `return_fields` names."""

    message_id: str
    ts: Time
    user_id: str
    role: str
    content: str
    session_id: str
    agent_id: str
    content_type: str
    parent_message_id: str | None
    metadata: dict[str, Any]


FIELD_NAMES = tuple(SelectedMessage.__annotations__)


def _check_field(name: str) -> str:
    if name not in FIELD_NAMES:
        raise ValueError(f"must be one of {', '.join(FIELD_NAMES)}")
    return name


FieldName = Annotated[str, AfterValidator(_check_field), limited(enum=list(FIELD_NAMES))]


class TimeRange(StrictModel):
    """From `since` on and before `until`."""

    since: Time | None = None
    until: Time | None = None


class Filter(StrictModel):
    """Which messages a search may see."""

    time_range: TimeRange | None = None
    role: Role | None = None


class MessageSearch(StrictModel):
    """What every search of messages takes."""

    user_id: Id
    filter: Filter | None = None
    return_fields: Annotated[list[FieldName], Field(fail_fast=True)] | None = None

    def arguments(self) -> dict[str, Any]:
        """The fields by their names, those of the filter among them."""
        arguments = super().arguments()
        del arguments["return_fields"]
        chosen = arguments.pop("filter") or Filter()
        return {**arguments, **(chosen.time_range or TimeRange()).arguments(), "role": chosen.role}


class LexicalSearch(MessageSearch):
    """A search by words: plain, "phrases", AND, OR, NOT, prefix* and ( )."""

    query_text: Annotated[str, also_named("query_text", "query")]
    page_size: Size = 50
    cursor: str | None = None


class SemanticSearch(MessageSearch):
    """A search by meaning, for a text or for a vector: one of the two."""

    query_text: Annotated[NotBlank | None, also_named("query_text", "query")] = None
    query_embedding: Annotated[list[float], Field(fail_fast=True)] | None = None
    top_k: Annotated[Size, also_named("top_k", "limit")] = 20
    min_score: Annotated[Share | None, also_named("min_score", "threshold")] = None


class HybridSearch(MessageSearch):
    """A search by words and meaning together."""

    query_text: Annotated[NotBlank, also_named("query_text", "query")]
    limit: Annotated[Size, also_named("limit", "top_k")] = 10


class NewMessage(StrictModel):
    """A message to store."""

    role: Role
    content: NotBlank
    message_id: Id | None = None
    ts: Time | None = None
    session_id: Id | None = None
    agent_id: Id | None = None
    content_type: Annotated[str, limited(minLength=1, maxLength=50)] | None = None
    parent_message_id: Id | None = None
    metadata: dict[str, Any] | None = None


class NewMessages(StrictModel):
    """Messages that are stored all or none."""

    messages: Annotated[list[NewMessage], Field(fail_fast=True, json_schema_extra={"minItems": 1})]


class RangeQuery(QueryString):
    """The query string of a range read."""

    since: Time | None = None
    until: Time | None = None
    role: Role | None = None
    page_size: Size = 50
    cursor: str | None = None


class NeighborsQuery(QueryString):
    """The query string of a look around a message."""

    before: Annotated[int, limited(minimum=0, maximum=1000)] = 20
    after: Annotated[int, limited(minimum=0, maximum=1000)] = 0


class Highlight(TypedDict):
    """Where a message matches."""

    message_id: str
    snippets: list[str]


class Score(TypedDict):
    """How well a message matches."""

    message_id: str
    score: float


class LexicalHits(TypedDict):
    """Messages by their words, best first."""

    items: list[SelectedMessage]
    next_cursor: NotRequired[str]
    highlights: list[Highlight]
    scores: list[Score]


class SemanticHit(SelectedMessage):
    """A message and how near its meaning is."""

    semantic_score: float


class HybridHit(SelectedMessage):
    """A message, how good it is, why, and where it matches."""

    score: float
    why: list[str]
    highlights: list[str]


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


def _selected(hit: Hit, names: Sequence[str] | None) -> SelectedMessage:
    """The fields of a message that the request names; without names, all of them."""
    message = to_dict(hit.message)
    wanted = FIELD_NAMES if names is None else names
    return cast(SelectedMessage, {name: message[name] for name in wanted})
