"""The outermost layer: what holds for every request and answer."""

from time import perf_counter
from urllib.parse import unquote_to_bytes

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.errors import InvalidArgument, NotFound
from kemem.serve.http.auth import NOTHING_HERE
from kemem.serve.http.failures import failure
from kemem.serve.telemetry.metrics import Metrics
from kemem.serve.telemetry.traces import request_in_progress

log = structlog.get_logger("kemem")

_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Edge:
    """Answers whatever fails further in, and counts, times and logs every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_in_progress.set(scope)
        begun = perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = {name for name, _ in message["headers"]}
                more = (header for header in _HEADERS if header[0] not in named)
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            _check_path(scope["raw_path"])
            await self._app(scope, receive, noted)
        except Exception as error:
            if status:
                raise
            await failure(error)(scope, receive, noted)
        finally:
            self._note(scope, status, perf_counter() - begun)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path, name = (route.path, route.name) if route else ("none", "none")
        method = scope["method"]
        self._metrics.count_request(path, name, method, status, seconds)
        log.info("request", method=method, route=path, status=status, ms=round(seconds * 1000, 1))


def _check_path(raw_path: bytes) -> None:
    """Refuse a path that proxies and file systems read in another way than we do."""
    path = unquote_to_bytes(raw_path)
    if not {b".", b".."}.isdisjoint(path.split(b"/")):
        raise NotFound(NOTHING_HERE)
    try:
        path.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("the path must be percent-encoded UTF-8") from None
