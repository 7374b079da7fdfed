"""Middleware around the app: errors, metrics and logs of requests, the limit of their bodies."""

import asyncio
from time import perf_counter
from typing import Any
from urllib.parse import unquote_to_bytes

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.errors import Exhausted, InvalidArgument, NotFound
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.http.responses import error_response
from kemem.serve.telemetry.metrics import Metrics
from kemem.serve.telemetry.traces import request_in_progress

log = structlog.get_logger("kemem")

_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_DRAINED = 16 << 20  # bytes read on and dropped: a client that still sends reads no answer


class RequestMiddleware:
    """The outermost layer: answers errors from further in; counts, times and logs requests.

    It keeps the tasks of requests in progress: at the end uvicorn cancels them without waiting.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, requests: set[asyncio.Task[Any]]) -> None:
        self._app = app
        self._metrics = metrics
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return
        self._requests.add(task)
        try:
            await self._handle(scope, receive, send)
        finally:
            self._requests.discard(task)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_in_progress.set(scope)
        started = perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                more = (header for header in _HEADERS if header[0] not in present)
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            _check_path(scope["raw_path"])
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise
            await error_response(error)(scope, receive, send_with_headers)
        finally:
            self._record(scope, status, perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path, name = (route.path, route.name) if route else ("none", "none")
        method = scope["method"]
        self._metrics.count_request(path, name, method, status, seconds)
        log.info("request", method=method, route=path, status=status, ms=round(seconds * 1000, 1))


class BodyLimitMiddleware:
    """Refuses a body as soon as it is too large, whatever its headers say."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._limit = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                await _drain(message, receive)
                raise Exhausted(f"a request body must be at most {self._limit} bytes")
            return message

        await self._app(scope, receive_limited if scope["type"] == "http" else receive, send)


async def _drain(message: Message, receive: Receive) -> None:
    dropped = 0
    while message.get("more_body") and dropped < _DRAINED:
        message = await receive()
        dropped += len(message.get("body", b""))


def _check_path(raw_path: bytes) -> None:
    """Refuse a path that proxies and file systems read in another way than we do."""
    path = unquote_to_bytes(raw_path)
    if not {b".", b".."}.isdisjoint(path.split(b"/")):
        raise NotFound(NOT_FOUND)
    try:
        path.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("the path must be percent-encoded UTF-8") from None
