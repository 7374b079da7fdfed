"""Responses: JSON, errors as {"error": {"code", "message", "details"?}}, and streams of events."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kemem.errors import (
    InvalidArgument,
    KeMemError,
    NotFound,
    StoreMoved,
    Unauthenticated,
    Unavailable,
)
from kemem.serve.http.errors import NOT_FOUND, invalid_values, public_error

Emit = Callable[[str, dict[str, Any]], None]  # the name of an event, and its data
Work = Callable[[Emit], Coroutine[Any, Any, None]]

EVENT_STREAM = "text/event-stream"
_PASSING = 2  # seconds until a store or model that is away may be back
PAUSE = 15.0  # seconds of silence, then a comment keeps the connection alive

_QUALITY = re.compile(r"q=([01](?:\.\d{0,3})?)")


def to_json(value: object) -> bytes:
    """JSON in UTF-8; a lone surrogate, which only an escape can bring, goes back as that escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace")


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, headers, media_type="application/json")


def error_response(error: Exception) -> Response:
    """The response to an error, of FastAPI's too."""
    shown = shown_error(error)
    reason = {"code": shown.code, "message": shown.message}
    body = {"error": {**reason, **({"details": shown.details} if shown.details else {})}}
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(shown, Unauthenticated) else {}
    return json_response(body, shown.status, headers | retry_after(shown))


def retry_after(error: KeMemError) -> dict[str, str]:
    """The header that says when to try again, where an error knows it or passes by itself."""
    passes = error.status == Unavailable.status and not isinstance(error, StoreMoved)
    seconds = error.details.get("retry_after", _PASSING if passes else None)
    return {} if seconds is None else {"Retry-After": str(seconds)}


def shown_error(error: Exception) -> KeMemError:
    """An error as callers see it; internals are logged and not disclosed."""
    match error:
        case ClientDisconnect():
            error = InvalidArgument("the body ended early")
        case RequestValidationError():
            error = invalid_request(error)
        case HTTPException(status_code=404):
            error = NotFound(NOT_FOUND)
        case HTTPException():
            error = InvalidArgument(str(error.detail))
    return public_error(error)


def invalid_request(
    error: RequestValidationError, models: Mapping[str, list[object]] | None = None
) -> InvalidArgument:
    """What is wrong with a request: with its path, its query or its body.

    `models` are those of its parts; they say which fields there are.
    """
    part = error.errors()[0]["loc"][0]
    problems = [{**it, "loc": it["loc"][1:]} for it in error.errors() if it["loc"][0] == part]
    return invalid_values(problems, (models or {}).get(part, []))


class EventStream(Response):
    """Streams the events of some work, then the error that ended it; a disconnect cancels it.

    An error before the first event is an ordinary error response with a status of its own.
    """

    media_type = EVENT_STREAM

    def __init__(self, work: Work, pause: float = PAUSE) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"X-Accel-Buffering": "no"})  # or a proxy holds the events back
        self._work = work
        self._pause = pause

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "claim" in scope.get("state", {}):
            reason = "a stream of events takes no Idempotency-Key: it cannot be sent again"
            raise InvalidArgument(reason, field="Idempotency-Key")

        async def wait_for_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        task = asyncio.create_task(
            self._work(lambda name, data: queue.put_nowait(self.event(name, to_json(data))))
        )
        task.add_done_callback(lambda _: queue.put_nowait(None))
        disconnect = asyncio.create_task(wait_for_disconnect())
        disconnect.add_done_callback(lambda _: task.cancel())
        started = False
        try:
            while chunk := await self._next(queue):
                if not started:
                    head = {"type": "http.response.start", "status": 200}
                    await send({**head, "headers": self.raw_headers})
                    started = True
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            error = ClientDisconnect() if task.cancelled() else task.exception()
            last = b""
            if started and isinstance(error, Exception):
                last = self.event("error", bytes(error_response(error).body))
            elif error is not None:
                raise error
            await send({"type": "http.response.body", "body": last})
        finally:
            disconnect.cancel()
            task.cancel()
            await asyncio.gather(disconnect, task, return_exceptions=True)

    async def _next(self, queue: asyncio.Queue[bytes | None]) -> bytes | None:
        try:
            async with asyncio.timeout(self._pause):
                return await queue.get()
        except TimeoutError:
            return KEEPALIVE_COMMENT

    def event(self, name: str, data: bytes) -> bytes:
        """An event as it is sent."""
        return format_sse_event(event=name, data_str=data.decode())


def wants_events(request: Request) -> bool:
    """Whether a request prefers events to JSON, by its Accept headers."""
    accepted = ",".join(request.headers.getlist("accept")).lower()
    return _rank(EVENT_STREAM, accepted) > _rank("application/json", accepted)


def _rank(media_type: str, accepted: str) -> tuple[float, int, int]:
    """How much a type is wanted: the quality, exactness and place of the range that fits best."""
    ranges = ["*/*", media_type.partition("/")[0] + "/*", media_type]
    fitting = [(0, 0.0, 0)]
    for place, each in enumerate(accepted.split(",")):
        name, *parameters = (part.strip() for part in each.split(";"))
        if name in ranges:
            qualities = [float(q[1]) for it in parameters if (q := _QUALITY.fullmatch(it))]
            fitting.append((ranges.index(name), qualities[0] if qualities else 1.0, -place))
    exactness, quality, place = max(fitting)
    return (quality, exactness, place) if quality else (0.0, 0, 0)
