"""Middleware around the app: authentication, the limit of bodies, errors, metrics and logs."""

import asyncio
from time import perf_counter
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.errors import Exhausted, InvalidArgument, NotFound, Unauthenticated
from kemem.serve.http.auth import Authenticator, is_page_view
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.http.responses import error_response, json_response
from kemem.serve.telemetry.journal import request_in_progress
from kemem.serve.telemetry.metrics import Metrics

log = structlog.get_logger("kemem")

_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_DRAINED = 16 << 20  # bytes read on and dropped: a client that still sends reads no answer


class RequestMiddleware:
    """Authenticates a request before anything else sees it; answers errors, counts, times, logs.

    It keeps the tasks of requests in progress: at the end uvicorn cancels them without waiting.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        metrics: Metrics,
        requests: set[asyncio.Task[Any]],
        max_body_bytes: int,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._metrics = metrics
        self._requests = requests
        self._max_body_bytes = max_body_bytes

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
            headers = Headers(scope=scope)
            caller = self._authenticator.authenticate(scope["path"], scope["scheme"], headers)
            scope.setdefault("state", {})["caller"] = caller
            await self._app(scope, _limited(receive, self._max_body_bytes), send_with_headers)
        except Exception as error:
            if status:
                raise
            await _refusal(error, scope)(scope, receive, send_with_headers)
        finally:
            self._record(scope, status, perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path, name = (route.path, route.name) if route else ("none", "none")
        method = scope["method"]
        self._metrics.count_request(path, name, method, status, seconds)
        log.info("request", method=method, route=path, status=status, ms=round(seconds * 1000, 1))


def _limited(receive: Receive, max_body_bytes: int) -> Receive:
    """Refuses a body as soon as it is too large, whatever its headers say."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > max_body_bytes:
            dropped = 0
            while message.get("more_body") and dropped < _DRAINED:
                message = await receive()
                dropped += len(message.get("body", b""))
            raise Exhausted(f"a request body must be at most {max_body_bytes} bytes")
        return message

    return receive_limited


def _check_path(raw_path: bytes) -> None:
    """Refuse a path that proxies and file systems read in another way than we do."""
    path = unquote_to_bytes(raw_path)
    if not {b".", b".."}.isdisjoint(path.split(b"/")):
        raise NotFound(NOT_FOUND)
    try:
        path.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("the path must be percent-encoded UTF-8") from None


def _refusal(error: Exception, scope: Scope) -> Response:
    """The response to an error: a browser is sent to sign in, others get the reason as JSON."""
    if isinstance(error, Unauthenticated) and is_page_view(scope):
        query = scope["query_string"].decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/dashboard/login?to={quote(wanted)}", 303)
    if not isinstance(error, HTTPException) or error.status_code != 405:
        return error_response(error)
    described = scope["app"].openapi()["paths"].get(scope["route"].path, {})
    methods = sorted(map(str.upper, described))  # none for the dashboard, which is not described
    allowed = ", ".join(methods) or (error.headers or {}).get("Allow", "GET")
    message = f"{scope['method']} is not allowed here, only {allowed}"
    body = {"error": {"code": "METHOD_NOT_ALLOWED", "message": message}}
    return json_response(body, 405, {"Allow": allowed})
