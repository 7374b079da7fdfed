"""The message log over HTTP (the Query API, version 1), its sessions and its graph."""

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Query
from pydantic import AfterValidator, Field, create_model
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.records import Checkpoint, Entry, Message, Page, Relation
from kemem.records.serialization import Share
from kemem.results import Added, Context, Hit, Ingested
from kemem.serve.http import schemas
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import (
    Id,
    Items,
    OwnerIds,
    PathId,
    QueryString,
    Size,
    StrictModel,
    Time,
)

router = APIRouter(route_class=GuardedRoute, tags=["messages"])
sessions = APIRouter(route_class=GuardedRoute, tags=["sessions"])

PageSize = Annotated[Size, schemas.also_named("page_size", "limit", "top_k")]
Entities = Annotated[list[str], Field(description="Entities; repeat the parameter for several.")]
Relationships = Annotated[
    list[str],
    Field(description="Types of relations, own or built-in; repeat the parameter for several."),
]


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


FieldName = Annotated[str, AfterValidator(_check_field), schemas.limited(enum=list(FIELD_NAMES))]


class TimeRange(StrictModel):
    """From `since` on and before `until`."""

    since: Time | None = None
    until: Time | None = None


class Filter(StrictModel):
    """Restricts the messages of a search."""

    time_range: TimeRange | None = None
    role: schemas.Role | None = None


class MessageSearch(StrictModel):
    """What every search of messages takes."""

    user_id: Id
    filter: Filter | None = None
    return_fields: Annotated[list[FieldName], schemas.many()] | None = None

    def arguments(self) -> dict[str, Any]:  # those of the filter among them
        fields = {name: it for name, it in self if name not in ("filter", "return_fields")}
        chosen = self.filter or Filter()
        return {**fields, **dict(chosen.time_range or TimeRange()), "role": chosen.role}


class LexicalSearch(MessageSearch):
    """A search by words: plain, "phrases", AND, OR, NOT, prefix* and ( )."""

    query_text: Annotated[str, schemas.also_named("query_text", "query")]
    page_size: PageSize = 50
    cursor: str | None = None


class SemanticSearch(MessageSearch):
    """A search by meaning, for a text or for a vector: one of the two."""

    query_text: Annotated[schemas.NotBlank | None, schemas.also_named("query_text", "query")] = None
    query_embedding: Annotated[list[float], schemas.many()] | None = None
    top_k: Annotated[Size, schemas.also_named("top_k", "limit")] = 20
    min_score: Annotated[Share | None, schemas.also_named("min_score", "threshold")] = None


class HybridSearch(MessageSearch):
    """A search by words and meaning together."""

    query_text: Annotated[schemas.NotBlank, schemas.also_named("query_text", "query")]
    limit: Annotated[Size, schemas.also_named("limit", "top_k")] = 10
    past: schemas.Past = False


class NewMessages(StrictModel):
    """Messages to store, all or none."""

    messages: schemas.Messages


class RangeQuery(QueryString):
    since: Time | None = None
    until: Time | None = None
    role: schemas.Role | None = None
    page_size: PageSize = 50
    cursor: str | None = None
    branch: Annotated[Id | None, Field(description="The last message of a branch.")] = None


class NeighborsQuery(QueryString):
    before: Annotated[int, schemas.limited(minimum=0, maximum=1000)] = 20
    after: Annotated[int, schemas.limited(minimum=0, maximum=1000)] = 0


class Highlight(TypedDict):
    """The matching parts of a message."""

    message_id: str
    snippets: list[str]


class Score(TypedDict):
    """How well a message matches."""

    message_id: str
    score: float


class MarkedMessage(SelectedMessage, total=False):
    """A message; what has ended says when and what replaced it, a reply what was asked."""

    valid_until: Time
    superseded_by: str | None
    in_reply_to: str


class LexicalHits(TypedDict):
    """Search messages by words, best first."""

    items: list[MarkedMessage]
    next_cursor: NotRequired[str]
    highlights: list[Highlight]
    scores: list[Score]


class SemanticHit(MarkedMessage):
    """A message with its similarity."""

    semantic_score: float


class HybridHit(MarkedMessage):
    """A message with its score, the reasons and the matching parts."""

    score: float
    why: list[str]
    highlights: list[str]


Range = Annotated[RangeQuery, Query()]
Neighbors = Annotated[NeighborsQuery, Query()]


@router.get("/v1/users/{user_id}/messages")
async def read_messages(user_id: PathId, query: Range, memory: Memory) -> Page[Message]:
    """A user's messages of a time range, newest first."""
    return await memory.messages(user_id, **query.arguments())


@router.post("/v1/users/{user_id}/messages")
async def store_messages(user_id: PathId, body: NewMessages, memory: Memory) -> Ingested:
    """Store messages, all or none, and each `message_id` once."""
    return await memory.ingest(body.messages, user_id)


@router.get("/v1/users/{user_id}/messages/{message_id}/neighbors")
async def read_neighbors(
    user_id: PathId, message_id: PathId, query: Neighbors, memory: Memory
) -> Items[Message]:
    """A message and the messages around it, oldest first."""
    return Items(items=await memory.neighbors(message_id, user_id, **query.arguments()))


@router.post("/v1/messages/lexical_search", response_model=LexicalHits)
async def lexical_search(body: LexicalSearch, memory: Memory) -> object:
    """Search messages by words, best first."""
    page = await memory.lexical_search(**body.arguments())
    return {
        "items": [_selected(hit, body) for hit in page.items],
        "highlights": [{"message_id": hit.id, "snippets": hit.snippets} for hit in page.items],
        "scores": [{"message_id": hit.id, "score": hit.score} for hit in page.items],
        **({"next_cursor": page.next_cursor} if page.next_cursor else {}),
    }


@router.post("/v1/messages/semantic_search", response_model=Items[SemanticHit])
async def semantic_search(body: SemanticSearch, memory: Memory) -> object:
    """Search messages by meaning, most similar first."""
    hits = await memory.semantic_search(**body.arguments())
    return {"items": [{**_selected(hit, body), "semantic_score": hit.score} for hit in hits]}


@router.post("/v1/messages/hybrid_search", response_model=Items[HybridHit])
async def hybrid_search(body: HybridSearch, memory: Memory) -> object:
    """Search messages by words and meaning, with the reasons for each hit."""
    hits = await memory.hybrid_search(**body.arguments())
    items = [
        {**_selected(hit, body), "score": hit.score, "why": hit.why, "highlights": hit.snippets}
        for hit in hits
    ]
    return {"items": items}


def _selected(hit: Hit, body: MessageSearch) -> dict[str, Any]:
    """The fields of a message that the request names, without names all of them; and its marks."""
    message, names = hit.message.to_dict(), body.return_fields
    fields = {name: message[name] for name in (FIELD_NAMES if names is None else names)}
    return {**fields, **hit.marks}


# Sessions and the graph


class SessionsQuery(OwnerIds, schemas.PageQuery): ...


class ContextQuery(QueryString, OwnerIds):
    max_tokens: Annotated[int, schemas.limited(minimum=50)] = 2000
    leaf: Annotated[Id | None, Field(description="The last message of a branch.")] = None


class GraphQuery(QueryString, schemas.Ids):
    around: Entities | None = None
    relationship: Relationships | None = None
    hops: Annotated[int, schemas.limited(minimum=1, maximum=5)] = 1
    limit: Annotated[Size, schemas.also_named("limit", "top_k")] = 100
    as_of: Time | None = None


class SessionRequest(StrictModel, OwnerIds):
    """The owner of the session; required if several users or agents have a session with this id."""


class RestoreRequest(SessionRequest):
    """The checkpoint to restore; by default the newest."""

    checkpoint_id: Id | None = None


Summary = create_model(
    "Summary",
    __doc__="The State of a session; null while the whole session fits verbatim.",
    checkpoint=Checkpoint | None,
)
Relations = create_model(
    "Relations", __doc__="Some relations of the graph.", relations=list[Relation]
)
ContextSize = Annotated[ContextQuery, Query()]


@sessions.get("/v1/sessions")
async def list_sessions(query: Annotated[SessionsQuery, Query()], memory: Memory) -> Page[Entry]:
    """The sessions of a user or agent, ordered by id."""
    return await memory.sessions(**query.arguments())


@sessions.get("/v1/sessions/{session_id}/context")
async def read_context(session_id: PathId, query: ContextSize, memory: Memory) -> Context:
    """What to put into a prompt: summaries of what is older, then the newest messages."""
    return await memory.context(session_id, **query.arguments())


@sessions.post("/v1/sessions/{session_id}/summarize", response_model=Summary)
async def summarize_session(session_id: PathId, body: SessionRequest, memory: Memory) -> object:
    """Update the State of a session."""
    return {"checkpoint": await memory.summarize(session_id, **body.arguments())}


@sessions.post("/v1/sessions/{session_id}/checkpoint")
async def save_checkpoint(session_id: PathId, body: SessionRequest, memory: Memory) -> Checkpoint:
    """Save the short-term memory of a session."""
    return await memory.checkpoint(session_id, **body.arguments())


@sessions.post("/v1/sessions/{session_id}/checkpoint/restore")
async def restore_checkpoint(
    session_id: PathId, body: RestoreRequest, memory: Memory
) -> Checkpoint:
    """Restore short-term memory from a checkpoint; messages stay."""
    return await memory.restore_checkpoint(session_id, **body.arguments())


@sessions.post("/v1/sessions/{session_id}/end")
async def end_session(session_id: PathId, body: SessionRequest, memory: Memory) -> Added:
    """End a session: its experience becomes a note, and its short-term memory is removed."""
    return await memory.end_session(session_id, **body.arguments())


@sessions.get("/v1/graph", response_model=Relations)
async def read_graph(query: Annotated[GraphQuery, Query()], memory: Memory) -> object:
    """Relations near some entities, or the newest ones."""
    return {"relations": await memory.graph(**query.arguments())}
