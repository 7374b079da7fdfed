"""The HTTP server: an app around a memory, its middleware, and the process that runs it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from socket import socket
from time import perf_counter
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import structlog
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from mcp.server import streamable_http_manager as streamable
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.chat import ChatService, GroupChatService, LeakCounts
from kemem.chat.proxy import Proxy
from kemem.compat.tools import ToolContext
from kemem.errors import Exhausted, InvalidArgument, KeMemError, NotFound, Unauthenticated
from kemem.memory import AsyncMemory
from kemem.serve.dashboard.router import offer_dashboard
from kemem.serve.http import (
    audit_routes,
    chat_routes,
    import_routes,
    key_routes,
    mem0_routes,
    memory_routes,
    message_routes,
    operator_routes,
    privacy_routes,
)
from kemem.serve.http.audit import RequestAudit
from kemem.serve.http.auth import (
    OPEN_PATHS,
    Authenticator,
    Caller,
    WrongCredential,
    is_loopback,
    is_page,
    is_page_view,
)
from kemem.serve.http.description import DescribedAPI
from kemem.serve.http.errors import NOT_FOUND, RESPONSES
from kemem.serve.http.idempotency import REPLAYED, Claims, IdempotencyMiddleware
from kemem.serve.http.key_routes import keys_of
from kemem.serve.http.limits import RateLimits, address_of
from kemem.serve.http.process import background_worker, configure_logs, warming_up
from kemem.serve.http.responses import error_response, json_response
from kemem.serve.http.routing import handle_by_headers, id_in_header, path_to_route
from kemem.serve.mcp.server import create_mcp
from kemem.serve.telemetry.audit import AuditLog
from kemem.serve.telemetry.journal import Traces, request_in_progress
from kemem.serve.telemetry.metrics import Metrics
from kemem.settings import Settings, split_origins

MCP_PATH = "/mcp"
UPLOAD_PATHS = frozenset([import_routes.PATH, "/dashboard/imports"])
_GRACE = 1.0  # seconds that requests get at the end, then chats to remember what was said
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Without credentials, as browsers call them: a page sends a key in a header, never our cookie.
CORS: dict[str, Any] = {
    "allow_methods": ("GET", "POST", "PUT", "PATCH", "DELETE"),
    "allow_headers": ("*",),
    "expose_headers": ("Retry-After", "WWW-Authenticate", "Mcp-Session-Id", REPLAYED),
}
_DRAINED = 16 << 20  # bytes read on and dropped: a client that still sends reads no answer

log = structlog.get_logger("kemem")


def create_app(memory: AsyncMemory, flags: frozenset[str] = frozenset()) -> FastAPI:
    """The HTTP API over a memory, which it closes when it stops; some settings came by flags."""
    app = DescribedAPI(
        openapi_url=None,  # served by a route of ours, with headers and metrics as the others
        redirect_slashes=False,
        lifespan=_lifespan,
        exception_handlers={HTTPException: _pass_on, RequestValidationError: _pass_on},
    )
    state = app.state
    state.memory = memory
    state.keys = keys_of(memory)
    state.limits = RateLimits(memory.settings)
    state.authenticator = Authenticator(memory.settings, state.keys)
    state.flags = flags
    state.requests = set()  # tasks in progress: at the end uvicorn cancels them without waiting
    state.leaks = LeakCounts()
    state.chat = ChatService(memory, counts=state.leaks, run_jobs=False)
    state.group = GroupChatService(memory, counts=state.leaks, run_jobs=False)
    state.proxy = Proxy(memory, counts=state.leaks, run_jobs=False)
    state.wake_worker = lambda: None  # until the worker runs
    state.metrics = Metrics(memory, state.leaks)
    state.traces = Traces(memory)
    state.claims = Claims(memory)
    state.audit_log = AuditLog(memory.journal, memory.settings)
    state.audit = RequestAudit(state.audit_log, state.keys)
    memory.runtime.on_reply.append(state.metrics.count_reply)
    app.router.routes += _routes()
    state.mcp = _offer_mcp(app, memory)
    offer_dashboard(app)
    app.add_middleware(IdempotencyMiddleware)
    app.add_middleware(RequestMiddleware)
    if origins := split_origins(memory.settings.cors_origins):
        # Around the other, so that a preflight needs no credential.
        app.add_middleware(ApiCors, **CORS, allow_origins=origins)
    return app


@cache
def _routes() -> list[BaseRoute]:
    """The API's routes. All apps share them: FastAPI takes 0.2 s to build them on first use."""
    api = APIRouter(responses=RESPONSES, generate_unique_id_function=lambda route: route.name)
    # Only described here: the middleware asks for the credential, whatever the route.
    header = APIKeyHeader(name="X-API-Key", auto_error=False)
    security = [Depends(HTTPBearer(auto_error=False)), Depends(header)]
    for router in (
        *(message_routes.router, memory_routes.router, chat_routes.router, chat_routes.proxy),
        *(message_routes.sessions, operator_routes.router, mem0_routes.router),
        *(import_routes.router, privacy_routes.router, key_routes.router, audit_routes.router),
    ):
        api.include_router(router, dependencies=security)
    api.include_router(operator_routes.probes)
    return api.routes


def is_protected(settings: Settings) -> bool:
    """Whether a server requires credentials: the settings have one, or the store has API keys."""

    async def has_keys() -> bool:
        alone = settings.model_copy(update={"llm": "none", "neo4j_url": None})
        async with AsyncMemory(settings=alone) as memory:
            return await keys_of(memory).exist()

    return bool(settings.api_key or settings.jwt_secret) or asyncio.run(has_keys())


def serve(settings: Settings, flags: frozenset[str], on_start: Callable[[int], None]) -> None:
    """Serve until stopped; where no credential is required, to this machine only.

    `on_start` hears the port, which the system chooses where the settings say 0.
    """
    if not is_loopback(settings.host) and not is_protected(settings):
        reason = f"host {settings.host!r:.80} can be reached from other machines: set KEMEM_API_KEY"
        reason += " or KEMEM_JWT_SECRET, run kemem keys create, or listen on 127.0.0.1"
        raise InvalidArgument(reason, field="host")
    configure_logs(settings.log_level)
    config = uvicorn.Config(
        create_app(AsyncMemory(settings=settings), flags),
        host=settings.host,
        port=settings.port,
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    with suppress(KeyboardInterrupt), warming_up(settings) as warm_up:
        server = _Server(config, on_start, warm_up)
        server.run()
    if not server.started:
        sys.exit(1)


class _Server(uvicorn.Server):
    """Tells its port as soon as it listens, and warms up then."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[int], None], warm_up: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_start, self._warm_up = on_start, warm_up

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start(self.servers[0].sockets[0].getsockname()[1])
            self._warm_up()


async def _pass_on(request: Request, error: Exception) -> Response:
    """Replaces FastAPI's handlers of errors: the middleware answers all of them alike."""
    raise error


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    written = (state.metrics, state.traces, state.keys, state.claims, state.audit_log)
    flushes = (*(it.flush for it in written), state.memory.imports.sweep)
    chats = (state.chat, state.group, state.proxy)
    async with background_worker(state.memory, *flushes) as run_jobs, state.mcp.run():
        state.wake_worker = run_jobs
        for chat in chats:
            chat.wake_worker = run_jobs
        yield
        if state.requests:  # a turn that was cancelled stores what was said
            await asyncio.wait(state.requests, timeout=_GRACE)
        with suppress(TimeoutError):  # what is not remembered by then is a job of the next start
            async with asyncio.timeout(_GRACE):
                await asyncio.gather(*(chat.close() for chat in chats))


def _offer_mcp(app: FastAPI, memory: AsyncMemory) -> streamable.StreamableHTTPSessionManager:
    """Serve MCP from an app while the manager that is returned runs.

    It keeps no sessions: each request is admitted by its own credential, and none can be taken
    over. The middleware has checked host and origin already.
    """

    def context_for(request: Request | None) -> ToolContext:
        assert request is not None, "over HTTP there is one"
        caller = request.state.caller
        shared = memory if caller.user_id is None and caller.agent_id is None else None
        session_id = id_in_header(request, "X-KeMem-Session")
        handle = handle_by_headers(request)
        return ToolContext(handle, session_id, shared, read_only=caller.read_only)

    async def record(
        request: Request | None, tool: str, writes: bool, error: KeMemError | None
    ) -> None:
        assert request is not None, "over HTTP there is one"
        await app.state.audit.call(request.scope, "mcp", tool, writes, error)

    manager = streamable.StreamableHTTPSessionManager(
        app=create_mcp(context_for, memory.settings.recall_language, on_call=record),
        stateless=True,
        max_request_body_size=sys.maxsize,  # the app's own limit holds
    )
    endpoint = streamable.StreamableHTTPASGIApp(manager)
    # No message is sent to clients of their own accord: the stream of a GET would stay empty.
    app.router.routes.append(_NamedRoute(MCP_PATH, endpoint, methods=["POST"], name="mcp"))
    return manager


class _NamedRoute(Route):
    """A route that logs and metrics can name, as those of the API."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}


class ApiCors(CORSMiddleware):
    """Lets pages of other sites call the API, never the dashboard."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = scope["type"] != "http" or is_page(scope["path"])
        await (self.app if is_own else super().__call__)(scope, receive, send)


class RequestMiddleware:
    """Authenticates a request before anything else sees it; answers errors, counts, times, logs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return
        state = scope["app"].state
        request_in_progress.set(scope)
        started = perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await state.audit.respond(scope, status, message)
            await send(message)

        state.requests.add(task)
        try:
            _check_path(scope["raw_path"])
            if not scope["path"].startswith("/dashboard"):  # whose paths have no ids with slashes
                scope["path"] = path_to_route(scope["raw_path"])
            headers = Headers(scope=scope)
            caller = await _authenticated(scope, headers)
            scope.setdefault("state", {})["caller"] = caller
            if not is_page(scope["path"]):  # the dashboard refuses with a page
                caller.check_writes(scope["method"], scope["path"])
            settings = state.memory.settings
            is_upload = scope["path"] in UPLOAD_PATHS
            most = settings.max_upload_bytes if is_upload else settings.max_body_bytes
            limited = _limited(receive, most)
            await self._app(scope, limited, send_with_headers)
        except Exception as error:
            if status:
                raise
            await _refusal(error, scope)(scope, receive, send_with_headers)
        finally:
            state.requests.discard(task)
            seconds, method, route = perf_counter() - started, scope["method"], scope.get("route")
            path, name = (route.path, route.name) if route else ("none", "none")
            state.metrics.count_request(path, name, method, status, seconds)
            ms = round(seconds * 1000, 1)
            log.info("request", method=method, route=path, status=status, ms=ms)


async def _authenticated(scope: Scope, headers: Headers) -> Caller:
    """The caller of a request, counted; who sends too much, or guesses keys, is refused."""
    state, path = scope["app"].state, scope["path"]
    limits, authenticator, address = state.limits, state.authenticator, address_of(scope)
    if path not in OPEN_PATHS:
        limits.count(address)
    if authenticator.is_guess(headers):
        limits.check_failures(address)
    try:
        caller: Caller = await authenticator.authenticate(path, scope["scheme"], headers)
    except WrongCredential:
        limits.count_failure(address)
        raise
    limits.count_caller(caller)
    return caller


def _check_path(raw_path: bytes) -> None:
    """Refuse a path that proxies and file systems read in another way than we do."""
    path = unquote_to_bytes(raw_path)
    if not {b".", b".."}.isdisjoint(path.split(b"/")):
        raise NotFound(NOT_FOUND)
    try:
        path.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("the path must be percent-encoded UTF-8") from None


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


def _refusal(error: Exception, scope: Scope) -> Response:
    """The response to an error: a browser is sent to sign in, others get the reason as JSON."""
    if isinstance(error, Unauthenticated) and is_page_view(scope):
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/dashboard/login?to={quote(target)}", 303)
    if not isinstance(error, HTTPException) or error.status_code != 405:
        return error_response(error)
    described = scope["app"].openapi()["paths"].get(scope["route"].path, {})
    methods = sorted(map(str.upper, described))  # none for the dashboard, which is not described
    allowed = ", ".join(methods) or (error.headers or {}).get("Allow", "GET")
    message = f"{scope['method']} is not allowed here, only {allowed}"
    if scope["path"] == MCP_PATH:
        message += ": an MCP client sends JSON-RPC messages"
    body = {"error": {"code": "METHOD_NOT_ALLOWED", "message": message}}
    return json_response(body, 405, {"Allow": allowed})
