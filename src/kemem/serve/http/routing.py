"""Routes that read strict JSON and keep a bound caller to their own user."""

from collections.abc import Callable, Coroutine
from email.message import Message as MimeHeader
from typing import Annotated, Any, ClassVar
from urllib.parse import parse_qs, unquote_to_bytes, urlencode

from fastapi import Depends, Request, Response
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Scope

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.serve.http.auth import Caller
from kemem.serve.http.errors import parse_object
from kemem.serve.http.responses import invalid_request

_SLASH = "\udc2f"  # stands for a slash within an id while a route is looked for; no UTF-8 gives it


def path_to_route(raw_path: bytes) -> str:
    """A path with an encoded slash as part of its id.  "/v1/users/a%2Fb" has three parts"""
    parts = (unquote_to_bytes(part).decode() for part in raw_path.split(b"/"))
    return "/".join(part.replace("/", _SLASH) for part in parts)


class StrictRequest(Request):
    """A request whose body is a JSON object in UTF-8, parsed once."""

    _object: dict[str, Any] | None = None

    async def json(self) -> Any:
        """The object; anything else is refused with the reason."""
        if self._object is None:
            check_content_type(self.headers.get("content-type", ""))
            self._object = parse_object(await self.body())
        return self._object


class GuardedRoute(APIRoute):
    """A route that a bound caller can use only in the name of their own user."""

    _paths: ClassVar[set[str]] = set()  # of all routes

    def __init__(self, path: str, *args: Any, **options: Any) -> None:
        super().__init__(path, *args, **options)
        self._paths.add(path)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        takes_query = bool(self.dependant.query_params)
        models = {"body": _models(self.body_field), "query": _models(*self.dependant.query_params)}
        named = tuple(
            frozenset(name for it in each for name in getattr(it, "model_fields", ()))
            for each in models.values()
        )

        async def guarded(request: Request) -> Response:
            ids = request.path_params
            request.scope["path_params"] = {
                name: value.replace(_SLASH, "/") for name, value in ids.items()
            }
            strict = StrictRequest(request.scope, request.receive)
            caller: Caller = strict.state.caller
            body = await strict.json() if takes_body else {}
            _fill_in(caller, strict.scope, body, *named)
            in_query = strict.query_params.getlist("user_id") if takes_query else []
            in_path = strict.path_params.get("user_id")
            users = (in_path, *in_query, body.get("user_id"), _filtered_user(body))
            self.authorize(caller, *users)
            strict.state.user_id = next(filter(None, (*users, caller.user_id)), None)
            strict.state.agent_id = body.get("agent_id") or caller.agent_id
            strict.state.is_sensitive = body.get("sensitive") is True
            agents = strict.query_params.getlist("agent_id") if takes_query else []
            caller.check_agents(strict.path_params.get("agent_id"), *agents, body.get("agent_id"))
            if takes_body and not takes_query:
                # What belongs into the body is not silently ignored because it is in the URL.
                for name in strict.query_params:
                    reason = f"{name[:80]} belongs into the JSON body of this request, not its URL"
                    raise InvalidArgument(reason, field=name[:80])
            try:
                return await handle(strict)
            except (RequestValidationError, InvalidArgument, NotFound) as error:
                if ids and strict.method == "GET" and strict.scope["path"] in self._paths:
                    raise HTTPException(405) from None  # /v1/memories/search: no id was meant
                if not isinstance(error, RequestValidationError):
                    raise
                raise invalid_request(error, models) from None

        return guarded

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let a caller through, or say why not."""
        caller.check_users(*user_ids)


class OperatorRoute(GuardedRoute):
    """A route that shows or does more than concerns one user: closed to bound callers."""

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let an operator through."""
        caller.check_operator()


def _filtered_user(body: dict[str, Any]) -> str | None:
    """The user that the filters of a request name, if they name one."""
    filters = body.get("filters")
    user_id = filters.get("user_id") if isinstance(filters, dict) else None
    return user_id if isinstance(user_id, str) else None


def _models(*fields: ModelField | None) -> list[object]:
    """The models of some parts of a request."""
    return [it.field_info.annotation for it in fields if it is not None]


def _fill_in(
    caller: Caller,
    scope: Scope,
    body: dict[str, Any],
    body_fields: frozenset[str],
    query_fields: frozenset[str],
) -> None:
    """Name the user that a caller is bound to where a request names none; with a user, the agent.

    Without a user the agent is left out, too: alone it would mean what all of its users share.
    """
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    own = {} if _filtered_user(body) else {"user_id": caller.user_id}
    if caller.user_id or body.get("user_id") is not None or "user_id" in given:
        own["agent_id"] = caller.agent_id
    for name, value in own.items():
        if value is None:
            continue
        if name in body_fields and body.get(name) is None:
            body[name] = value
        if name in query_fields and name not in given:
            added = urlencode({name: value}).encode()
            scope["query_string"] = b"&".join(filter(None, [scope["query_string"], added]))


def memory_of(request: Request) -> AsyncMemory:
    """The memory of this server; for a bound caller a handle that sees what is granted."""
    memory: AsyncMemory = request.app.state.memory
    caller: Caller = request.state.caller
    if caller.agent_id is not None:
        memory = memory.for_agent(caller.agent_id)
    if caller.user_id is None:
        return memory
    return memory.for_user(caller.user_id, sensitive=caller.sensitive)


Memory = Annotated[AsyncMemory, Depends(memory_of)]


def id_in_header(request: Request, header: str) -> str | None:
    """The id in a header: UTF-8, percent-encoded where a client can send no other."""
    value = request.headers.get(header)
    if value is None:
        return None
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        reason = f"{header} must be UTF-8, percent-encoded: {value!r:.80}"
        raise InvalidArgument(reason, field=header) from None


def handle_by_headers(request: Request, user: str | None = None) -> AsyncMemory:
    """A handle for the user of X-KeMem-User, of a field or of the token, in X-KeMem-Agent."""
    caller: Caller = request.state.caller
    user_id = id_in_header(request, "X-KeMem-User") or user or caller.user_id
    if not user_id:
        reason = "user_id is required: send the header X-KeMem-User, a token bound to a user"
        reason += ", or to OpenAI's API the field user"
        raise InvalidArgument(reason, field="X-KeMem-User")
    caller.check_users(user_id, user or None)
    if user and user != user_id:
        reason = f"the header X-KeMem-User is {user_id!r:.80} and the field user {user!r:.80}"
        raise InvalidArgument(reason, field="user")
    request.state.user_id = user_id
    agent_id = id_in_header(request, "X-KeMem-Agent")
    return memory_of(request).for_user(user_id, agent_id=agent_id, sensitive=caller.sensitive)


def check_content_type(header: str) -> None:
    """Refuse what a web page could send without a CORS preflight."""
    mime = MimeHeader()
    mime["content-type"] = header
    if mime.get_content_type() != "application/json":
        reason = f"content-type must be application/json, not {header!r:.80}"
        raise InvalidArgument(reason, field="content-type")
