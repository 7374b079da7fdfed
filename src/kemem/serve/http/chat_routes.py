"""Chats over HTTP, whole or as events, and OpenAI's chat API with a memory behind it."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, Depends, Request, Response
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.chat import ChatService, ErrorEvent, Event, GroupChatService, Member
from kemem.chat.events import gather
from kemem.chat.proxy import Proxy
from kemem.chat.service import MAX_MEMBERS
from kemem.errors import InvalidArgument, Unavailable
from kemem.records.serialization import Share
from kemem.serve.http import responses, schemas
from kemem.serve.http.auth import Caller
from kemem.serve.http.errors import Reason
from kemem.serve.http.routing import GuardedRoute, handle_by_headers, id_in_header
from kemem.serve.http.schemas import Id, NotBlank, PathId, StrictModel, Time
from kemem.text.ids import check_id

_DONE = "[DONE]"
_FOREIGN_REFERENCE = re.compile(
    r'"\$(?:ref|dynamicRef)": "(?!#)'
)  # a key: in texts quotes are escaped

_REPEATED = Field(description="The id of the user's message, so that you can repeat the turn.")

Mentions = Annotated[list[Id], Field(fail_fast=True, description="The members that are mentioned.")]
Instructions = Annotated[str, Field(description="Additional instructions for the model.")]


class ProxyRoute(GuardedRoute):
    """A route that finds the user of a request itself: clients of OpenAI send no user_id."""

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let everybody through to `handle_by_headers`."""


router = APIRouter(route_class=GuardedRoute, tags=["chat"])
proxy = APIRouter(route_class=ProxyRoute, tags=["chat"])


class TurnRequest(StrictModel):
    """What a user says."""

    user_id: Id
    message: NotBlank
    message_id: Annotated[Id, _REPEATED] | None = None
    sensitive: schemas.Granted = False


class ChatRequest(TurnRequest):
    """A message of a user to a model in a conversation."""

    session_id: Id
    agent_id: Id | None = None
    instructions: Instructions | None = None


class GroupMember(StrictModel):
    """A member played by a model; its id is the agent that owns its memories."""

    id: Id
    name: str | None = None
    instructions: Instructions | None = None


class GroupRequest(TurnRequest):
    """A message of a user to a group, and the members in the order in which they speak."""

    members: Annotated[list[GroupMember], schemas.many(minItems=1, maxItems=MAX_MEMBERS)]
    mentions: Mentions | None = None


class RecalledMemory(TypedDict):
    """A memory as the model saw it."""

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
    """A reply, the memories recalled for it, and the number of hidden tool calls."""

    text: str
    message_id: str
    recall: list[RecalledMemory]
    tool_calls: list[UsedTool]
    leaks: int
    error: NotRequired[Reason]  # why the text breaks off


class MemberReply(ChatReply):
    """The reply of a group member; an empty text means that it stays silent."""

    member_id: str


GroupReplies = create_model(
    "GroupReplies",
    __doc__="The replies of the members of a group, in order.",
    replies=list[MemberReply],
)


def _check_model(request: Request) -> None:
    """Without a model nothing else about a request matters, so this comes before its fields."""
    service: ChatService = request.app.state.chat
    service.check_model()


@router.post(
    "/v1/chat",
    response_model=ChatReply,
    responses=schemas.events("chat"),
    dependencies=[Depends(_check_model)],
)
async def chat(body: ChatRequest, request: Request) -> Response:
    """A reply of the model, with the user's memories; as server-sent events if you accept them."""
    service: ChatService = request.app.state.chat
    events = service.turn(**_granted(body, request))
    if responses.wants_events(request):
        return _stream(events)
    (reply,) = await gather(events)
    if reply.error and not reply.text.strip():
        failure, away = {"error": event_item(reply.error)["error"]}, Unavailable("")
        return responses.json_response(failure, away.status, responses.retry_after(away))
    return responses.json_response(reply.to_dict())


@router.post(
    "/v1/groups/{group_id}/turns", response_model=GroupReplies, responses=schemas.events("group")
)
async def group_turn(group_id: PathId, body: GroupRequest, request: Request) -> Response:
    """The replies of a group's members in turn; as server-sent events if you accept them."""
    service: GroupChatService = request.app.state.group
    request.state.caller.check_agents(*(it.id for it in body.members))
    members = [Member(it.id, it.name or "", it.instructions) for it in body.members]
    turn = {**_granted(body, request), "members": members, "mentions": body.mentions or ()}
    events = service.turn(group_id=group_id, **turn)
    if responses.wants_events(request):
        return _stream(events)
    return responses.json_response({"replies": [reply.to_dict() for reply in await gather(events)]})


def _granted(body: TurnRequest, request: Request) -> dict[str, Any]:
    """The arguments of a turn; sensitive memories only for a caller who may see them."""
    return {**body.arguments(), "sensitive": request.state.caller.grant(body.sensitive)}


def _stream(events: AsyncGenerator[Event, None]) -> Response:
    async def work(emit: responses.Emit) -> None:
        async with aclosing(events):
            async for event in events:
                emit(event.type, event_item(event))

    return responses.EventStream(work)


def event_item(event: Event) -> dict[str, Any]:
    """An event as HTTP shows it: an error in the form of every failure, the others as they are."""
    if not isinstance(event, ErrorEvent):
        return event.to_dict()
    member = {"member_id": event.member_id} if event.member_id else {}
    part = {"text": event.text, "message_id": event.message_id}
    error = {"code": event.code, "message": event.message, "details": part}
    return {"type": event.type, **member, "error": error}


# OpenAI's chat API


class OpenAIModel(BaseModel):
    """What OpenAI's API takes: the fields that matter here are checked, others are passed on."""

    model_config = ConfigDict(extra="allow", strict=True)


class NamedFunction(OpenAIModel):
    """A function of a tool, or the call of one."""

    name: str
    parameters: dict[str, Any] | None = None

    @field_validator("parameters")
    @classmethod
    def _check_references(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if _FOREIGN_REFERENCE.search(json.dumps(schema)):
            raise ValueError("a $ref must begin with #: no schema is fetched from elsewhere")
        return schema


class ToolOrCall(OpenAIModel):
    """A tool that the model may call, or its call."""

    type: str = "function"
    function: NamedFunction | None = None

    @model_validator(mode="after")
    def _check_function(self) -> "ToolOrCall":
        if self.type == "function" and self.function is None:
            raise ValueError("a tool of the type function needs one")
        return self


class ChatMessage(OpenAIModel):
    """A message of the conversation."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolOrCall] | None = None


class CompletionRequest(OpenAIModel):
    """A request of OpenAI's chat API."""

    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = Field(None, description="Omitted or `kemem`: the model of this server.")
    user: str | None = Field(
        None, description="The user, unless the header X-KeMem-User names one."
    )
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    tools: list[ToolOrCall] | None = None
    n: Literal[1] | None = Field(None, description="One reply in a conversation.")


class Model(TypedDict):
    """A model that a request may name."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelList(TypedDict):
    """Models, in OpenAI's format."""

    object: Literal["list"]
    data: list[Model]


class Chunks(responses.EventStream):
    """Events as OpenAI sends them: without names; the last one is `[DONE]` instead of JSON."""

    def event(self, name: str, data: bytes) -> bytes:
        """An event as it is sent."""
        return format_sse_event(data_str=_DONE if name == _DONE else data.decode())


@proxy.post(
    "/v1/chat/completions", response_model=dict[str, Any], responses=schemas.events("completions")
)
async def chat_completions(body: CompletionRequest, request: Request) -> Response:
    """OpenAI's chat API by the model of this server, which remembers the user.

    The user is that of the token; an operator names one in the header X-KeMem-User or the field
    `user`. The headers X-KeMem-Session and X-KeMem-Agent say where the conversation is stored.
    """
    service: Proxy = request.app.state.proxy
    handle = handle_by_headers(request, body.user)
    session = id_in_header(request, "X-KeMem-Session")
    session_id = "default" if session is None else check_id(session, "X-KeMem-Session")
    fields = await request.json()  # as it came: unknown fields are passed on
    try:
        json.dumps(fields, allow_nan=False)
    except ValueError:  # of 1e999
        raise InvalidArgument("the body holds a number that is too large") from None
    if not body.stream:
        return responses.json_response(await service.complete(fields, handle, session_id))

    async def work(emit: responses.Emit) -> None:
        async with aclosing(service.chunks(fields, handle, session_id)) as chunks:
            async for chunk in chunks:
                emit("chunk", chunk)
        emit(_DONE, {})

    return Chunks(work)


@proxy.get("/v1/models", response_model=ModelList)
async def list_models(request: Request) -> Response:
    """The models of the server behind the proxy; `kemem` is the one of the settings."""
    service: Proxy = request.app.state.proxy
    return responses.json_response(await service.models())
