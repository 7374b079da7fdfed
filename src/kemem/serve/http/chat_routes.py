"""Chats over HTTP: whole replies, or events while they come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from kemem.chat import ChatService, Event, GroupChatService
from kemem.chat.events import gather
from kemem.serve.http.chat_schemas import (
    ChatReply,
    GroupReplies,
    event_item,
    failed_turn,
)
from kemem.serve.http.responses import to_json
from kemem.serve.http.routing import GuardedRoute
from kemem.serve.http.schemas import ID_LIMITS, ChatRequest, GroupRequest, TurnRequest
from kemem.serve.http.sse import Emit, EventStream, described, wants_events

_EVENTS = described(
    "`recall` with what was recalled, `text` with a `delta` of the reply, `tool_call` and "
    "`tool_result`, and at the end `done` with the whole reply or an `error` (Failure), whose "
    "details are the part of the reply that came."
)
_GROUP_EVENTS = described(
    "those of a chat with the `member_id` that they concern; each member ends with `done` or "
    "`error`, and the last event is a `done` without a member."
)

GroupId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=GuardedRoute, tags=["chat"])


@router.post("/v1/chat", response_model=ChatReply, responses=_EVENTS)
async def chat(body: ChatRequest, request: Request) -> Response:
    """A reply of a model that is shown what it should remember; as events for who accepts them."""
    service: ChatService = request.app.state.chat
    events = service.turn(**_granted(body, request))
    if wants_events(request):
        return _stream(events)
    (reply,) = await gather(events)
    if reply.error:
        return _json(failed_turn(reply.error), 503)
    return _json(reply.to_dict())


@router.post("/v1/groups/{group_id}/turns", response_model=GroupReplies, responses=_GROUP_EVENTS)
async def group_turn(group_id: GroupId, body: GroupRequest, request: Request) -> Response:
    """What each member of a group replies, one after the other; as events for who accepts them."""
    service: GroupChatService = request.app.state.group
    events = service.turn(group_id=group_id, **_granted(body, request))
    if wants_events(request):
        return _stream(events)
    return _json({"replies": [reply.to_dict() for reply in await gather(events)]})


def _granted(body: TurnRequest, request: Request) -> dict[str, Any]:
    """The arguments of a turn; sensitive memories only for a caller who may see them."""
    return {**body.arguments(), "sensitive": request.state.caller.grant(body.sensitive)}


def _stream(events: AsyncGenerator[Event, None]) -> EventStream:
    async def work(emit: Emit) -> None:
        async with aclosing(events):
            async for event in events:
                emit(event.type, event_item(event))

    return EventStream(work)


def _json(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")
