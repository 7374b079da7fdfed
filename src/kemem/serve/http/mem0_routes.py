"""The routes of mem0's hosted API and of its own server, for clients that were written for those.

A user's token reaches that user only. The API key reaches everybody's memories: there the id of a
memory names its owner, as mem0's client sends nothing else, unless X-KeMem-User names a user.
"""

import ast
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from kemem.compat.mem0 import AsyncMemory as Mem0
from kemem.compat.mem0_values import to_history, to_memory
from kemem.errors import InvalidArgument, KeMemError, did_you_mean
from kemem.memory import AsyncMemory
from kemem.records import Entry
from kemem.records.ontology import OWN_TYPE
from kemem.runtime import system_clock
from kemem.scope import DEFAULT
from kemem.serve.http.auth import Caller
from kemem.serve.http.responses import error_response, json_response
from kemem.serve.http.routing import GuardedRoute, handle_by_headers, memory_of
from kemem.serve.http.schemas import PathId
from kemem.serve.telemetry.journal import MAX_TEXT, Vote, save_vote

ALL = 1_000_000  # memories that a list counts
PAGE_SIZE = 100
_PAGE = 1000  # entities that are read at once
_VOTES: dict[str, Literal["up", "down"]] = {
    "POSITIVE": "up",
    "NEGATIVE": "down",
    "VERY_NEGATIVE": "down",
}
# Options that ask for what is always so here, or that are about mem0's own service.
_WITHOUT_EFFECT = {"api_version", "async_mode", "enable_graph", "keyword_search", "latest_only"}
_WITHOUT_EFFECT |= {"org_id", "output_format", "project_id", "source", "version"}


class Mem0Route(GuardedRoute):
    """A route of mem0's API; a bound caller need not name their user, whose handle it gets."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except KeMemError as error:
                refused = error_response(error)
                body = json.loads(bytes(refused.body))
                detail = {"detail": body["error"]["message"]}  # what mem0's client shows
                return json_response({**body, **detail}, refused.status_code)

        return answer

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let everybody through who was authenticated."""


router = APIRouter(route_class=Mem0Route, include_in_schema=False)


def _handle(request: Request) -> AsyncMemory:
    """The memory of the token's user or of X-KeMem-User; with the API key alone, everybody's."""
    if request.state.caller.user_id is None and "X-KeMem-User" not in request.headers:
        return memory_of(request)
    return handle_by_headers(request)


Handle = Annotated[AsyncMemory, Depends(_handle)]
EntityId = str | int | None


class Options(BaseModel):
    """The options of a call: those that mean something are fields, others are refused."""

    model_config = ConfigDict(extra="allow", strict=True)

    def arguments(self) -> dict[str, Any]:
        """The fields that were given."""
        for name, value in (self.model_extra or {}).items():
            if value is not None and name not in _WITHOUT_EFFECT:
                advice = did_you_mean(name, type(self).model_fields)
                reason = f"{name[:80]} is not supported{advice}; docs/mem0.md lists options"
                raise InvalidArgument(reason, field=name[:80])
        return {it: each for it, each in self if each is not None and it in type(self).model_fields}


class Entities(Options):
    user_id: EntityId = None
    agent_id: EntityId = None
    run_id: EntityId = None
    filters: dict[str, Any] | None = None


class AddOptions(Entities):
    messages: Any
    metadata: dict[str, Any] | None = None
    infer: bool | None = None
    timestamp: int | float | str | None = None
    expiration_date: str | None = None
    prompt: str | None = None
    custom_instructions: str | None = None


class SearchOptions(Entities):
    query: str
    top_k: int | None = None
    limit: int | None = None
    threshold: float | None = None
    rerank: bool | None = None
    explain: bool | None = None
    show_expired: bool | None = None


class ListOptions(Entities):
    start_date: str | None = None
    end_date: str | None = None
    show_expired: bool | None = None


class UpdateOptions(Options):
    text: str | None = None
    data: str | None = None
    metadata: dict[str, Any] | None = None
    expiration_date: str | None = None  # None is a value: it clears the date in mem0

    def arguments(self) -> dict[str, Any]:
        """The fields that were given."""
        cleared = {"expiration_date": None} if "expiration_date" in self.model_fields_set else {}
        return {**cleared, **super().arguments()}


class BatchItem(UpdateOptions):
    memory_id: str


class BatchOptions(Options):
    memories: list[BatchItem]


class FeedbackOptions(Options):
    memory_id: str
    feedback: str | None = None
    feedback_reason: str | None = None


class PageOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    page: int = 1
    page_size: int = PAGE_SIZE


class QueryOptions(Options):
    """Whose memories, in the query string."""

    model_config = ConfigDict(extra="allow", strict=False)
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    filters: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The ids, and the filters as mem0's client writes a dict into a URL: as Python does."""
        given = super().arguments()
        if self.filters is not None:
            try:
                given["filters"] = ast.literal_eval(self.filters)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                reason = f"filters must be an object, not {self.filters!r:.80}"
                raise InvalidArgument(reason, field="filters") from None
        return given


class IdsOfOne(Options):
    """Whose a memory is, where that is known."""

    model_config = ConfigDict(extra="allow", strict=False)
    user_id: str | None = None
    agent_id: str | None = None


One = Annotated[IdsOfOne, Query()]


@router.get("/v1/ping/")
async def mem0_ping() -> dict[str, Any]:
    """That the key is right; the client insists on an organization and a project."""
    return {"status": "ok", "org_id": DEFAULT, "project_id": DEFAULT, "user_email": None}


@router.post("/v3/memories/add/")
@router.post("/v1/memories/")
@router.post("/memories")
async def mem0_add(body: AddOptions, memory: Handle) -> dict[str, Any]:
    """Remember messages, at once."""
    given = body.arguments()
    instructions = given.pop("custom_instructions", None)
    return await Mem0(memory=memory).add(**{"prompt": instructions, **given})


@router.post("/v3/memories/search/")
@router.post("/v2/memories/search/")
@router.post("/search")
async def mem0_search(body: SearchOptions, memory: Handle) -> dict[str, Any]:
    """The memories that answer a question, best first."""
    return _shown(await Mem0(memory=memory).search(**body.arguments()))


@router.post("/v3/memories/")
@router.post("/v2/memories/")
async def mem0_list(
    body: ListOptions, query: Annotated[PageOptions, Query()], request: Request, memory: Handle
) -> dict[str, Any]:
    """A page of memories, newest first, with their number."""
    given = body.arguments()
    created = {"gte": given.pop("start_date", None), "lte": given.pop("end_date", None)}
    bounds = {name: day for name, day in created.items() if day is not None}
    if bounds:
        given["filters"] = {"AND": [given.get("filters") or {}, {"created_at": bounds}]}
    for name, value in query:
        if not 1 <= value <= ALL:
            raise InvalidArgument(f"{name} must be 1-{ALL}, not {value}", field=name)
    results = _shown(await Mem0(memory=memory).get_all(**given, top_k=ALL))["results"]
    start, end = (query.page - 1) * query.page_size, query.page * query.page_size
    following = query.page + 1 if end < len(results) else None
    before = query.page - 1 or None
    return {
        "count": len(results),
        "next": following and str(request.url.include_query_params(page=following)),
        "previous": before and str(request.url.include_query_params(page=before)),
        "results": results[start:end],
    }


@router.get("/memories")
async def mem0_list_all(query: Annotated[QueryOptions, Query()], memory: Handle) -> dict[str, Any]:
    """All memories, newest first."""
    return _shown(await Mem0(memory=memory).get_all(**query.arguments(), top_k=ALL))


def check_client(request: Request) -> None:
    """Refuse all but mem0's clients, who are known by a header: others sent an empty memory id."""
    scheme = request.headers.get("authorization", "").partition(" ")[0]
    if scheme.lower() != "token" and "mem0-user-id" not in request.headers:
        reason = "the path has no memory_id; to erase all memories of a user, leave out the last /"
        raise InvalidArgument(reason, field="memory_id")


@router.delete("/v1/memories/", dependencies=[Depends(check_client)])
@router.delete("/memories")
async def mem0_delete_all(query: Annotated[QueryOptions, Query()], memory: Handle) -> object:
    """Erase all that carries the ids."""
    return await Mem0(memory=memory).delete_all(**query.arguments())


@router.get("/v1/memories/{memory_id}/")
@router.get("/memories/{memory_id}")
async def mem0_get(memory_id: PathId, query: One, memory: Handle) -> dict[str, Any]:
    """One memory."""
    return _hosted(to_memory(await memory.get(memory_id, **query.arguments())))


@router.put("/v1/memories/{memory_id}/")
@router.put("/memories/{memory_id}")
async def mem0_update(
    memory_id: PathId, query: One, body: UpdateOptions, memory: Handle
) -> dict[str, Any]:
    """Change the text, or add to the metadata."""
    item = await memory.get(memory_id, **query.arguments())
    await Mem0(memory=memory).update(item.id, **body.arguments())
    return _hosted(to_memory(await memory.get(item.id, **query.arguments())))


@router.delete("/v1/memories/{memory_id}/")
@router.delete("/memories/{memory_id}")
async def mem0_delete(memory_id: PathId, query: One, memory: Handle) -> object:
    """Erase one memory."""
    await memory.delete(memory_id, **query.arguments())
    return {"message": "Memory deleted successfully!"}


@router.get("/v1/memories/{memory_id}/history/")
@router.get("/memories/{memory_id}/history")
async def mem0_history(memory_id: PathId, query: One, memory: Handle) -> list[dict[str, Any]]:
    """The changes of a memory, oldest first."""
    changes = to_history(await memory.history(memory_id, limit=_PAGE, **query.arguments()))
    return [{**change, "input": None, "metadata": None} for change in changes]


@router.put("/v1/batch/")
async def mem0_update_batch(body: BatchOptions, memory: Handle) -> object:
    """Change memories, one after the other; the first that is wrong ends it."""
    for each in body.memories:
        given = each.arguments()
        await Mem0(memory=memory).update(given.pop("memory_id"), **given)
    return {"message": f"Successfully updated {len(body.memories)} memories"}


@router.delete("/v1/batch/")
async def mem0_delete_batch(body: BatchOptions, memory: Handle) -> object:
    """Erase memories, one after the other; the first that is missing ends it."""
    for each in body.memories:
        await memory.delete(each.memory_id)
    return {"message": f"Successfully deleted {len(body.memories)} memories"}


@router.post("/v1/feedback/")
async def mem0_feedback(body: FeedbackOptions, request: Request, memory: Handle) -> object:
    """Keep a vote on a memory, beside those of the dashboard."""
    vote = _VOTES.get((body.feedback or "").upper())
    if vote is None:
        reason = f"feedback must be one of {', '.join(_VOTES)}, not {body.feedback!r:.80}"
        raise InvalidArgument(reason, field="feedback")
    item = await memory.get(body.memory_id)
    cast = Vote(
        query=(body.feedback_reason or item.id)[:MAX_TEXT],
        memory_id=item.id,
        vote=vote,
        user_id=item.row.user_id,
        rank=1,
        score=0.0,
        settings={"from": "mem0"},
    )
    await save_vote(request.app.state.memory, cast, system_clock())
    return {"message": "Feedback saved"}


@router.get("/v1/entities/")
async def mem0_entities(memory: Handle) -> dict[str, Any]:
    """Every user, agent and run that was named."""
    agents = await _every(memory.agents)
    users = await _every(memory.users)
    runs = [run for agent in agents for run in await _every(memory.sessions, agent_id=agent.id)]
    named = {("user", it.id): it for it in users}
    named |= {("agent", it.id): it for it in agents if it.id != DEFAULT}
    named |= {("run", it.id): it for it in runs if it.id != DEFAULT}
    results = [_entity(kind, it) for (kind, _), it in named.items()]
    return {"count": len(results), "next": None, "previous": None, "results": results}


@router.delete("/v2/entities/{kind}/{name}/")
async def mem0_delete_entity(kind: str, name: PathId, memory: Handle) -> object:
    """Erase all of a user, an agent or a run."""
    if kind not in ("user", "agent", "run"):
        raise InvalidArgument(f"there are users, agents and runs, no {kind!r:.80}", field="kind")
    ids: dict[str, Any] = {f"{kind}_id": name}
    return await Mem0(memory=memory).delete_all(**ids)


@router.post("/reset")
async def mem0_reset(memory: Handle) -> object:
    """Erase everything."""
    await Mem0(memory=memory).reset()
    return {"message": "All memories reset"}


@router.api_route("/v1/exports/{rest:path}", methods=["POST"])
@router.api_route("/v1/summary/", methods=["POST"])
@router.api_route("/v2/profiles/{rest:path}", methods=["GET", "POST"])
@router.api_route("/v2/entities/user/{name}/profile/", methods=["GET"])
@router.api_route("/api/v1/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
@router.api_route("/configure", methods=["GET", "POST"])
async def mem0_without_counterpart(request: Request) -> None:
    """What mem0 offers and KeMem does not."""
    path = request.url.path
    raise InvalidArgument(f"{path!r:.80} of mem0 has no counterpart in KeMem; see docs/mem0.md")


async def _every(read: Any, **scope: str) -> list[Entry]:
    """All entries of a directory."""
    entries: list[Entry] = []
    cursor: str | None = None
    while True:
        page = await read(**scope, limit=_PAGE, cursor=cursor)
        entries += page.items
        cursor = page.next_cursor
        if cursor is None:
            return entries


def _entity(kind: str, entry: Entry) -> dict[str, Any]:
    shown = entry.to_dict()
    times = {name: shown[name] for name in ("created_at", "updated_at")}
    return {"id": entry.id, "name": entry.id, "type": kind, **times, "metadata": None}


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    return {"results": [_hosted(memory) for memory in found["results"]]}


def _hosted(memory: dict[str, Any]) -> dict[str, Any]:
    """A memory with what only the hosted API has."""
    own = (memory.get("metadata") or {}).get(OWN_TYPE)
    categories = [own] if isinstance(own, str) else []
    return {"expiration_date": None, **memory, "categories": categories, "immutable": False}
