"""Chats over HTTP: whole replies, or events while they come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from kemem.chat import ChatService, Event, GroupChatService
from kemem.chat.replies import gather
from kemem.serve.http.chat_schemas import (
    ChatReply,
    ChatTurn,
    GroupReplies,
    GroupTurn,
    event_item,
    failed_turn,
)
from kemem.serve.http.failures import to_json
from kemem.serve.http.guarded import GuardedRoute
from kemem.serve.http.schemas import ID_LIMITS
from kemem.serve.http.sse import EventStream, Tell, described, wants_events

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
async def chat(turn: ChatTurn, request: Request) -> Response:
    """A reply of a model that is shown what it should remember; as events for who accepts them."""
    service: ChatService = request.app.state.chat
    happening = service.turn(
        turn.message,
        user_id=turn.user_id,
        session_id=turn.session_id,
        agent_id=turn.agent_id,
        instructions=turn.instructions,
        message_id=turn.message_id,
        sensitive=request.state.caller.grant(turn.sensitive),
    )
    if wants_events(request):
        return _stream(happening)
    (reply,) = await gather(happening)
    if reply.error:
        return _json(failed_turn(reply.error), 503)
    return _json(reply.to_dict())


@router.post("/v1/groups/{group_id}/turns", response_model=GroupReplies, responses=_GROUP_EVENTS)
async def group_turn(group_id: GroupId, turn: GroupTurn, request: Request) -> Response:
    """What each member of a group replies, one after the other; as events for who accepts them."""
    service: GroupChatService = request.app.state.group
    happening = service.turn(
        turn.message,
        user_id=turn.user_id,
        group_id=group_id,
        members=turn.group,
        mentions=turn.mentions or (),
        message_id=turn.message_id,
        sensitive=request.state.caller.grant(turn.sensitive),
    )
    if wants_events(request):
        return _stream(happening)
    return _json({"replies": [reply.to_dict() for reply in await gather(happening)]})


def _stream(happening: AsyncGenerator[Event, None]) -> EventStream:
    async def work(tell: Tell) -> None:
        async with aclosing(happening):
            async for event in happening:
                tell(event.type, event_item(event))

    return EventStream(work)


def _json(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")
