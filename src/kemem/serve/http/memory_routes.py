"""Memories over HTTP: added, searched, recalled, listed, changed and erased."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, Json, WithJsonSchema, create_model

from kemem.errors import InvalidArgument
from kemem.recall import Recalled
from kemem.records import MESSAGES, NOTE_KINDS, Change
from kemem.records.feedback import Feedback
from kemem.records.serialization import Share
from kemem.results import Added, Deletion, Hit, Item, Memories, Profile
from kemem.serve.http import responses, schemas
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import (
    Ids,
    Items,
    OwnerIds,
    Past,
    PathId,
    QueryString,
    StrictModel,
    limited,
)

Kind = Annotated[str, limited(enum=[*MESSAGES, *NOTE_KINDS])]
Kinds = Annotated[list[Kind], schemas.many(minItems=1)]
Keyword = Annotated[str, limited(pattern=r"\S", maxLength=256)]
Keywords = Annotated[list[Keyword], schemas.many(minItems=1, maxItems=20)]
TopK = Annotated[schemas.Size | None, Field(description="An alias of `limit`.")]
_FILTERS = {"description": 'Conditions as JSON: {"tag": "work"}'}
_FILTERS_SCHEMA = {"type": "string", **_FILTERS, "format": "json"}
FiltersInUrl = Annotated[Json[dict[str, Any]], WithJsonSchema(_FILTERS_SCHEMA), Field(**_FILTERS)]

router = APIRouter(route_class=GuardedRoute, tags=["memories"])


class AddRequest(StrictModel, Ids):
    """Messages to store and to extract facts from."""

    messages: schemas.Messages
    metadata: dict[str, Any] | None = None
    infer: bool = True
    memory_type: Literal["short", "long"] | None = None
    prompt: schemas.NotBlank | None = None
    timestamp: schemas.Time | None = None
    expires_at: schemas.Time | None = None
    sensitive: bool = False
    wait: Annotated[bool, Field(description="False: a job extracts the facts later.")] = True


class SearchRequest(StrictModel, Ids):
    """A question to the memory."""

    query: schemas.NotBlank
    limit: schemas.Size = 10
    top_k: TopK = None
    filters: dict[str, Any] | None = None
    threshold: Share | None = None
    rerank: bool = True
    kinds: Kinds | None = None
    as_of: schemas.Time | None = None
    past: Past = False
    since: schemas.Time | None = None
    until: schemas.Time | None = None
    keywords: Keywords | None = None
    mode: Literal["hybrid", "lexical", "semantic"] = "hybrid"
    explain: bool = False
    count: bool = False


class MemoryQuery(QueryString, Ids): ...


class EraseQuery(MemoryQuery):
    sources: Annotated[
        bool, Field(description="Erase the messages that it cites instead of withdrawing them.")
    ] = False


class DeleteQuery(MemoryQuery):
    kinds: Kinds | None = None
    filters: FiltersInUrl | None = None


class ListQuery(MemoryQuery):
    kinds: Kinds | None = None
    limit: Annotated[schemas.Size, schemas.also_named("limit", "page_size")] = 100
    top_k: TopK = None
    cursor: str | None = None
    as_of: schemas.Time | None = None
    filters: FiltersInUrl | None = None


class ChangesQuery(schemas.LimitQuery, OwnerIds): ...


class OwnerQuery(QueryString, OwnerIds): ...


class EndedQuery(ChangesQuery):
    model: (
        Annotated[
            str,
            Field(min_length=1, description="The name of the model, if it is not the current one."),
        ]
        | None
    ) = None


class ProfileQuery(QueryString):
    agent_id: schemas.Id | None = None
    max_tokens: Annotated[int, limited(minimum=50)] = 1000
    sensitive: schemas.Granted = False


class FeedbackRequest(StrictModel, OwnerIds):
    """Whether a memory answered a question."""

    memory_id: schemas.Id
    vote: Literal["up", "down"]
    query: schemas.NotBlank


class UpdateRequest(StrictModel):
    """The new text or metadata of a note."""

    content: Annotated[schemas.NotBlank | None, schemas.also_named("content", "memory")] = None
    metadata: dict[str, Any] | None = None


class ExtractRequest(StrictModel, Ids):
    """The user, agent or session to extract facts from again."""

    prompt: schemas.NotBlank | None = None


class ForgetRequest(StrictModel, OwnerIds):
    """The user or agent to apply the forgetting policy to."""


class RecallRequest(StrictModel, Ids):
    """A question to one user's memories; a session is the conversation that it comes from."""

    question: Annotated[schemas.NotBlank, schemas.also_named("question", "query")]
    user_id: schemas.Id
    past: Past = False
    max_iterations: Annotated[int, limited(minimum=1, maximum=10)] | None = None
    sensitive: schemas.Granted = False


Deleted = create_model("Deleted", __doc__="The number of erased messages and notes.", deleted=int)
Forgotten = create_model(
    "Forgotten",
    __doc__="The ids of removed notes, each with the reason.",
    forgotten=dict[str, str],
)
Owner = Annotated[MemoryQuery, Query()]
Changes = Annotated[ChangesQuery, Query()]


@router.post("/v1/memories")
async def add_memories(body: AddRequest, memory: Memory, request: Request) -> Added:
    """Store messages and extract facts from them."""
    added = await memory.add(**body.arguments())
    if not body.wait:
        request.app.state.wake_worker()
    return added


@router.get("/v1/memories")
async def list_memories(query: Annotated[ListQuery, Query()], memory: Memory) -> Memories[Item]:
    """Notes, newest first; with kinds=message the messages."""
    return await memory.get_all(**query.arguments())


@router.delete("/v1/memories", response_model=Deleted)
async def erase_memories(query: Annotated[DeleteQuery, Query()], memory: Memory) -> object:
    """Erase everything with these ids; with `filters` only notes, with `kinds` only those."""
    return {"deleted": await memory.delete_all(**query.arguments())}


@router.post("/v1/memories/search")
async def search_memories(body: SearchRequest, memory: Memory) -> Memories[Hit]:
    """Notes and messages that answer a question, best first."""
    return await memory.search(**body.arguments())


@router.post("/v1/memories/extract")
async def extract_memories(body: ExtractRequest, memory: Memory) -> Added:
    """Extract facts and relations again from stored messages."""
    return await memory.extract(**body.arguments())


@router.post("/v1/memories/forget", response_model=Forgotten)
async def forget_memories(body: ForgetRequest, memory: Memory) -> object:
    """Apply the forgetting policy now."""
    return {"forgotten": await memory.forget(**body.arguments())}


@router.get("/v1/memories/forgotten")
async def read_forgotten(query: Changes, memory: Memory) -> Items[Change]:
    """Notes that were deleted or forgotten, newest first, without their text."""
    return Items(items=await memory.forgotten(**query.arguments()))


@router.get("/v1/memories/ended")
async def read_ended(query: Annotated[EndedQuery, Query()], memory: Memory) -> Items[Change]:
    """Notes that an LLM ended, newest first; `reopen` makes one valid again."""
    return Items(items=await memory.ended(**query.arguments()))


@router.post("/v1/memories/{memory_id}/reopen")
async def reopen_memory(
    memory_id: PathId, query: Annotated[OwnerQuery, Query()], memory: Memory
) -> Item:
    """Make an ended note valid again."""
    return await memory.reopen(memory_id, **_with_owner(query))


@router.get("/v1/memories/{memory_id}")
async def read_memory(memory_id: PathId, ids: Owner, memory: Memory) -> Item:
    """One note or message."""
    return await memory.get(memory_id, **_with_owner(ids))


@router.patch("/v1/memories/{memory_id}")
async def change_memory(memory_id: PathId, ids: Owner, body: UpdateRequest, memory: Memory) -> Item:
    """Change the text or metadata of a note; messages never change."""
    if body.content is None and body.metadata is None:
        raise InvalidArgument("content or metadata is required", field="content")
    return await memory.update(memory_id, **body.arguments(), **_with_owner(ids))


@router.delete("/v1/memories/{memory_id}")
async def erase_memory(
    memory_id: PathId, query: Annotated[EraseQuery, Query()], memory: Memory
) -> Deletion:
    """Erase one memory; the messages that a note cites are withdrawn, or erased with `sources`."""
    return await memory.delete(memory_id, **_with_owner(query))


@router.get("/v1/memories/{memory_id}/history")
async def read_history(memory_id: PathId, query: Changes, memory: Memory) -> Items[Change]:
    """The changes of a note, newest first."""
    return Items(items=await memory.history(memory_id, **_with_owner(query)))


@router.post("/v1/feedback")
async def give_feedback(body: FeedbackRequest, memory: Memory) -> Feedback:
    """Vote on a hit: it rises or sinks for similar questions of this user."""
    return await memory.feedback(**body.arguments())


@router.get("/v1/users/{user_id}/profile")
async def read_profile(
    user_id: PathId, query: Annotated[ProfileQuery, Query()], request: Request, memory: Memory
) -> Profile:
    """What is true about a user now, by topic, most important first; `text` is for a prompt."""
    arguments = query.arguments()
    request.state.is_sensitive = request.state.caller.grant(arguments.pop("sensitive"))
    if request.state.is_sensitive:
        memory = memory.for_user(user_id, agent_id=query.agent_id, sensitive=True)
    return await memory.profile(user_id, **arguments)


@router.post("/v1/recall", response_model=Recalled, responses=schemas.events("recall"))
async def recall(body: RecallRequest, request: Request, memory: Memory) -> Response:
    """Collect the evidence for a question; as server-sent events if you accept them."""
    arguments = body.arguments()
    granted = request.state.caller.grant(arguments.pop("sensitive"))
    user_id, agent_id = arguments.pop("user_id"), arguments.pop("agent_id")
    handle = memory.for_user(user_id, agent_id=agent_id, sensitive=granted)
    if not responses.wants_events(request):
        return responses.json_response((await handle.recall(**arguments)).to_dict())

    async def work(emit: responses.Emit) -> None:
        recalled = await handle.recall(**arguments, on_step=lambda it: emit("step", it.to_dict()))
        emit("result", recalled.to_dict())

    return responses.EventStream(work)


def _with_owner(query: MemoryQuery | ChangesQuery | OwnerQuery) -> dict[str, Any]:
    """The arguments of a call about one memory; over HTTP an id alone is never enough."""
    arguments = query.arguments()
    if arguments["user_id"] is None and arguments["agent_id"] is None:
        raise InvalidArgument("user_id or agent_id is required beside the id", field="user_id")
    return arguments
