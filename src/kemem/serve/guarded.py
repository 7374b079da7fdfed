"""Routes that read strict JSON and keep a bound caller to their own user."""

import json
from collections.abc import Callable, Coroutine
from email.message import Message as MimeHeader
from reprlib import repr as shortened
from typing import Annotated, Any, NoReturn

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.serve.auth import Caller


class StrictRequest(Request):
    """A request whose body is a JSON object in UTF-8, with finite numbers and whole characters."""

    _object: dict[str, Any] | None = None

    async def json(self) -> Any:
        """The object; anything else is refused with the reason."""
        if self._object is None:
            _check_content_type(self.headers.get("content-type", ""))
            self._object = parse_object(await self.body())
        return self._object


class GuardedRoute(APIRoute):
    """A route that a bound caller can use only in the name of their own user."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            sent = await strict.json() if takes_body else {}
            caller: Caller = strict.state.caller
            caller.check_reach(strict.path_params.get("user_id"), sent.get("user_id"))
            return await handle(strict)

        return guarded


def memory_of(request: Request) -> AsyncMemory:
    """The memory that this server was built around."""
    memory: AsyncMemory = request.app.state.memory
    return memory


Memory = Annotated[AsyncMemory, Depends(memory_of)]


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        found = json.loads(raw.decode(), parse_constant=_refuse_constant)
        if b"\\u" in raw:  # an escape can smuggle in half a character, which is no text
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidArgument(f"the body must be JSON in UTF-8: {_reason(error)}") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"the body must be a JSON object, not {shortened(found)}")
    return found


def _check_content_type(header: str) -> None:
    mime = MimeHeader()
    mime["content-type"] = header
    if mime.get_content_type() != "application/json":
        raise InvalidArgument(
            f"content-type must be application/json, not {header!r:.80}", field="content-type"
        )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "an escape stands for half a character"
    return str(error)
