"""Chats over HTTP: whole replies, or events while they come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.chat import ChatService, ErrorEvent, Event, GroupChatService, Member
from kemem.chat.events import gather
from kemem.chat.group import MAX_MEMBERS
from kemem.records.serialization import Share
from kemem.serve.http.errors import Reason
from kemem.serve.http.requests import ID_LIMITS, Granted, Id, NotBlank, StrictModel, Time
from kemem.serve.http.responses import json_response
from kemem.serve.http.routing import GuardedRoute
from kemem.serve.http.sse import Emit, EventStream, event_responses, wants_events

_EVENTS = event_responses(
    "`recall` with what was recalled, `text` with a `delta` of the reply, `tool_call` and "
    "`tool_result`, and at the end `done` with the whole reply or an `error` (Failure), whose "
    "details are the part of the reply that came."
)
_GROUP_EVENTS = event_responses(
    "those of a chat with the `member_id` that they concern; each member ends with `done` or "
    "`error`, and the last event is a `done` without a member."
)

GroupId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

Instructions = Annotated[str, Field(description="What the model is told beside its rules.")]

router = APIRouter(route_class=GuardedRoute, tags=["chat"])


class TurnRequest(StrictModel):
    """What a user says."""

    user_id: Id
    message: NotBlank
    message_id: (
        Annotated[Id, Field(description="Of the user's message, so that a turn can be repeated.")]
        | None
    ) = None
    sensitive: Granted = False


class ChatRequest(TurnRequest):
    """What a user says to a model, and in which conversation."""

    session_id: Id
    agent_id: Id | None = None
    instructions: Instructions | None = None


class GroupMember(StrictModel):
    """Somebody that a model plays; the id is the agent whose memories it has."""

    id: Id
    name: str | None = None
    instructions: Instructions | None = None


class GroupRequest(TurnRequest):
    """What a user says to a group, and who is in it, in the order of their turns to speak."""

    members: Annotated[
        list[GroupMember],
        Field(fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": MAX_MEMBERS}),
    ]
    mentions: (
        Annotated[list[Id], Field(fail_fast=True, description="Who is asked to speak.")] | None
    ) = None

    def arguments(self) -> dict[str, Any]:
        """The fields by their names, members as a chat takes them."""
        members = [Member(it.id, it.name or "", it.instructions) for it in self.members]
        return {**super().arguments(), "members": members, "mentions": self.mentions or ()}


class RecalledMemory(TypedDict):
    """A memory as the model was shown it."""

    id: str
    kind: str
    time: Time
    said_by: NotRequired[str]
    content: str
    score: Share


class UsedTool(TypedDict):
    """A tool that the model called; `arguments` are JSON as it wrote them."""

    call_id: str
    name: str
    arguments: str
    result: str


class ChatReply(TypedDict):
    """A reply, what was recalled for it, and how many tool calls in its text nobody saw."""

    text: str
    message_id: str
    recall: list[RecalledMemory]
    tool_calls: list[UsedTool]
    leaks: int


class MemberReply(ChatReply):
    """What a member of a group replied; an empty text is silence."""

    member_id: str
    error: NotRequired[Reason]


class GroupReplies(TypedDict):
    """What the members of a group replied, in their order."""

    replies: list[MemberReply]


@router.post("/v1/chat", response_model=ChatReply, responses=_EVENTS)
async def chat(body: ChatRequest, request: Request) -> Response:
    """A reply of a model that is shown what it should remember; as events for who accepts them."""
    service: ChatService = request.app.state.chat
    events = service.turn(**_granted(body, request))
    if wants_events(request):
        return _stream(events)
    (reply,) = await gather(events)
    if reply.error:
        return json_response(failed_turn(reply.error), 503)
    return json_response(reply.to_dict())


@router.post("/v1/groups/{group_id}/turns", response_model=GroupReplies, responses=_GROUP_EVENTS)
async def group_turn(group_id: GroupId, body: GroupRequest, request: Request) -> Response:
    """What each member of a group replies, one after the other; as events for who accepts them."""
    service: GroupChatService = request.app.state.group
    events = service.turn(group_id=group_id, **_granted(body, request))
    if wants_events(request):
        return _stream(events)
    return json_response({"replies": [reply.to_dict() for reply in await gather(events)]})


def _granted(body: TurnRequest, request: Request) -> dict[str, Any]:
    """The arguments of a turn; sensitive memories only for a caller who may see them."""
    return {**body.arguments(), "sensitive": request.state.caller.grant(body.sensitive)}


def _stream(events: AsyncGenerator[Event, None]) -> EventStream:
    async def work(emit: Emit) -> None:
        async with aclosing(events):
            async for event in events:
                emit(event.type, event_item(event))

    return EventStream(work)


def failed_turn(error: ErrorEvent) -> dict[str, Any]:
    """A turn that failed, in the form of every failure; the part of the reply is in its details."""
    part = {"text": error.text, "message_id": error.message_id}
    return {"error": {"code": error.code, "message": error.message, "details": part}}


def event_item(event: Event) -> dict[str, Any]:
    """An event as HTTP shows it: an error in the form of every failure, the others as they are."""
    if not isinstance(event, ErrorEvent):
        return event.to_dict()
    named = {"member_id": event.member_id} if event.member_id else {}
    return {"type": event.type, **named, **failed_turn(event)}
