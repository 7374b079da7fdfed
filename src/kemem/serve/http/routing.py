"""Routes that read strict JSON and keep a bound caller to their own user."""

from collections.abc import Callable, Coroutine
from email.message import Message as MimeHeader
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.serve.http.auth import Caller
from kemem.serve.http.strict import parse_object


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

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        takes_query = bool(self.dependant.query_params)

        async def guarded(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            body = await strict.json() if takes_body else {}
            in_query = strict.query_params.getlist("user_id") if takes_query else []
            in_path = strict.path_params.get("user_id")
            self.authorize(strict.state.caller, in_path, *in_query, body.get("user_id"))
            if takes_body and not takes_query:
                _refuse_parameters(strict)
            return await handle(strict)

        return guarded

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let a caller through, or say why not."""
        caller.check_users(*user_ids)


class OperatorRoute(GuardedRoute):
    """A route that shows or does more than concerns one user: closed to bound callers."""

    def authorize(self, caller: Caller, *user_ids: object) -> None:
        """Let an operator through."""
        caller.check_users()


def memory_of(request: Request) -> AsyncMemory:
    """The memory of this server; for a bound caller a handle that reaches their own user only."""
    memory: AsyncMemory = request.app.state.memory
    caller: Caller = request.state.caller
    if caller.user_id is None:
        return memory
    return memory.for_user(caller.user_id, sensitive=True)  # what is the caller's own


Memory = Annotated[AsyncMemory, Depends(memory_of)]


def id_in_header(request: Request, header: str) -> str | None:
    """The id in a header: UTF-8, percent-encoded where a client can send no other."""
    value = request.headers.get(header)
    if value is None:
        return None
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(
            f"{header} must be UTF-8, percent-encoded: {value!r:.80}", field=header
        ) from None


def check_content_type(header: str) -> None:
    """Refuse what a web page could send without a CORS preflight."""
    mime = MimeHeader()
    mime["content-type"] = header
    if mime.get_content_type() != "application/json":
        raise InvalidArgument(
            f"content-type must be application/json, not {header!r:.80}", field="content-type"
        )


def _refuse_parameters(request: Request) -> None:
    """What belongs into the body is not silently ignored because it stands in the URL."""
    unknown = next(iter(request.query_params), None)
    if unknown is not None:
        field = unknown[:80]
        raise InvalidArgument(f"{field} is not a parameter of this request", field=field)
