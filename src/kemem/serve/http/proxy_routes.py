"""OpenAI's chat API over HTTP, for applications that get a memory by another base URL."""

import json
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kemem.chat.proxy import Proxy
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.serve.http.auth import Caller
from kemem.serve.http.responses import json_response
from kemem.serve.http.routing import GuardedRoute, Memory, id_in_header
from kemem.serve.http.sse import Emit, EventStream, event_responses
from kemem.text.ids import check_id

_DONE = "[DONE]"
_EVENTS = event_responses(
    "with `stream`, chunks as OpenAI has them (events without a name), then `[DONE]`; or a Failure "
    "where the answer breaks off."
)


class OpenAIModel(BaseModel):
    """What OpenAI's API takes: the fields that matter here are checked, others are passed on."""

    model_config = ConfigDict(extra="allow", strict=True)


class NamedFunction(OpenAIModel):
    """A function of a tool, or the call of one."""

    name: str
    parameters: dict[str, Any] | None = None

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if any(not it.startswith("#") for it in _references(schema)):
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
    model: str | None = Field(None, description="Left out, or kemem: the model of this server.")
    user: str | None = Field(None, description="Whose memory, if X-KeMem-User does not say it.")
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    tools: list[ToolOrCall] | None = None
    n: Literal[1] | None = Field(None, description="A conversation goes on with one reply.")


class ProxyRoute(GuardedRoute):
    """A route that finds the user of a request itself: clients of OpenAI send no user_id."""

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let everybody through to `_handle`."""


class Chunks(EventStream):
    """Events as OpenAI sends them: without names; the last one is `[DONE]` instead of JSON."""

    def event(self, name: str, data: bytes) -> bytes:
        """An event as it is sent."""
        return format_sse_event(data_str=_DONE if name == _DONE else data.decode())


router = APIRouter(route_class=ProxyRoute, tags=["chat"])


@router.post("/v1/chat/completions", response_model=dict[str, Any], responses=_EVENTS)
async def chat_completions(body: CompletionRequest, request: Request, memory: Memory) -> Response:
    """OpenAI's chat API by the model of this server, which remembers the user.

    The user is that of the token; an operator names one in the header X-KeMem-User or the field
    `user`. The headers X-KeMem-Session and X-KeMem-Agent say where the conversation is stored.
    """
    proxy: Proxy = request.app.state.proxy
    handle = _handle(body.user, request, memory)
    named = id_in_header(request, "X-KeMem-Session")
    session_id = "default" if named is None else check_id(named, "X-KeMem-Session")
    fields = _finite(await request.json())  # as it came: unknown fields are passed on
    if not body.stream:
        answer = await proxy.complete(fields, handle, session_id)
        return json_response(answer)

    async def work(emit: Emit) -> None:
        async with aclosing(proxy.chunks(fields, handle, session_id)) as chunks:
            async for chunk in chunks:
                emit("chunk", chunk)
        emit(_DONE, {})

    return Chunks(work)


def _references(schema: object) -> Iterator[str]:
    """What a JSON schema refers to, however deep."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            references = map(part.get, ("$ref", "$dynamicRef"))
            yield from (it for it in references if isinstance(it, str))
            pending += part.values()
        elif isinstance(part, list):
            pending += part


def _finite(body: dict[str, Any]) -> dict[str, Any]:
    """The body, unless it holds a number such as 1e999, which cannot be passed on."""
    try:
        json.dumps(body, allow_nan=False)
    except ValueError:
        raise InvalidArgument("the body holds a number that is too large") from None
    return body


def _handle(user: str | None, request: Request, memory: AsyncMemory) -> AsyncMemory:
    """A handle for the one user that a request means."""
    caller: Caller = request.state.caller
    named = [it for it in (id_in_header(request, "X-KeMem-User"), user) if it is not None]
    users = named or ([caller.user_id] if caller.user_id is not None else [])
    if not users:
        raise InvalidArgument(
            "a user is required: in the header X-KeMem-User, in the field user, or by a token that "
            "is bound to one",
            field="user",
        )
    caller.check_users(*users)
    if len(set(users)) > 1:
        raise InvalidArgument(
            f"the header X-KeMem-User is {users[0]!r:.80} and the field user {users[1]!r:.80}",
            field="user",
        )
    agent_id = id_in_header(request, "X-KeMem-Agent")
    return memory.for_user(users[0], agent_id=agent_id, sensitive=caller.sensitive)
