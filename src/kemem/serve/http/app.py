"""The HTTP server: an app around a memory, its middleware, and the process that runs it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from difflib import get_close_matches
from functools import cache, partial
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
from starlette.datastructures import Headers, MutableHeaders, State
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.chat import ChatService, GroupChatService, LeakCounts
from kemem.chat.proxy import Proxy
from kemem.errors import Exhausted, InvalidArgument, NotFound, Unauthenticated
from kemem.memory import AsyncMemory
from kemem.runtime import check_place
from kemem.serve.dashboard.operators import survey
from kemem.serve.dashboard.page import VENDOR, error_page
from kemem.serve.dashboard.router import offer_dashboard
from kemem.serve.http import (
    audit_routes,
    chat_routes,
    import_routes,
    key_routes,
    mem0_routes,
    memory_routes,
    message_routes,
    ontology_routes,
    operator_routes,
    privacy_routes,
    webhook_routes,
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
from kemem.serve.http.mcp_route import MCP_PATH, mcp_of, mcp_route
from kemem.serve.http.process import background_worker, configure_logs, warming_up
from kemem.serve.http.projects import app_of
from kemem.serve.http.responses import error_response, json_response
from kemem.serve.http.routing import path_to_route
from kemem.serve.telemetry.audit import AuditLog
from kemem.serve.telemetry.journal import Traces, request_in_progress
from kemem.serve.telemetry.metrics import Metrics, StaleWhileRevalidate
from kemem.settings import Settings, split_origins
from kemem.webhooks.endpoints import AsyncWebhooks

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
    """The HTTP API over a memory and those of its projects, which it closes when it stops.

    Some settings came by flags.
    """
    settings = memory.settings
    app = DescribedAPI(
        openapi_url=None,  # served by a route of ours, with headers and metrics as the others
        redirect_slashes=False,
        lifespan=_lifespan,
        exception_handlers={HTTPException: _pass_on, RequestValidationError: _pass_on},
    )
    shared: dict[str, Any] = {"keys": keys_of(memory), "limits": RateLimits(settings)}
    shared["authenticator"] = Authenticator(settings, shared["keys"])
    shared |= {"flags": flags, "vendor": VENDOR, "project": None}
    app.state = _state_of(memory, **shared)
    app.router.routes += _routes()
    app.router.routes.append(mcp_route)
    offer_dashboard(app)
    app.add_middleware(IdempotencyMiddleware)
    app.add_middleware(RequestMiddleware)
    if origins := split_origins(settings.cors_origins):
        # Around the other, so that a preflight needs no credential.
        app.add_middleware(ApiCors, **CORS, allow_origins=origins)
    for name in settings.projects:
        app.state.projects[name] = project = copy(app)  # its routes, over another memory
        own = AsyncMemory(settings=settings.of_project(name))
        project.state = _state_of(own, **{**shared, "project": name})
    return app


def _state_of(memory: AsyncMemory, **shared: Any) -> State:
    """What routes need of one memory, with what they share."""
    state = State({"memory": memory, "projects": {}, **shared})
    state.webhooks = AsyncWebhooks(memory.runtime.deps)
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
    state.mcp = mcp_of(memory)
    state.survey = StaleWhileRevalidate(partial(survey, memory, state.metrics))
    return state


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
        *(ontology_routes.router, webhook_routes.router),
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
    for own in (settings, *map(settings.of_project, settings.projects)):
        asyncio.run(check_place(own))
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
    """Run the workers of all memories; requests, of any project, end before their chats do."""
    async with AsyncExitStack() as stack:
        for project in app.state.projects.values():
            await stack.enter_async_context(_running(project.state))
        await stack.enter_async_context(_running(app.state, app.state.keys.flush))
        yield


@asynccontextmanager
async def _running(state: State, *flushes: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    written = (state.metrics, state.traces, state.claims, state.audit_log)
    flushes += tuple(it.flush for it in written)
    flushes += (state.memory.imports.sweep,)
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
        app: FastAPI = scope["app"]
        state, in_progress = app.state, app.state.requests
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

        in_progress.add(task)
        try:
            _check_path(scope["raw_path"])
            if not scope["path"].startswith("/dashboard"):  # whose paths have no ids with slashes
                scope["path"] = path_to_route(scope["raw_path"])
            headers = Headers(scope=scope)
            caller = await _authenticated(scope, headers)
            scope.setdefault("state", {})["caller"] = caller
            scope["app"] = project = app_of(app, caller, scope)
            state = project.state
            if not is_page(scope["path"]):  # the dashboard refuses with a page
                caller.check_writes(scope["method"], scope["path"])
            settings = state.memory.settings
            is_upload = scope["path"] in UPLOAD_PATHS
            most = settings.max_upload_bytes if is_upload else settings.max_body_bytes
            limited = _limited(receive, most, headers.get("content-length", ""))
            await self._app(scope, limited, send_with_headers)
        except Exception as error:
            if status:
                raise
            await _refusal(error, scope)(scope, receive, send_with_headers)
        finally:
            in_progress.discard(task)
            seconds, method, route = perf_counter() - started, scope["method"], scope.get("route")
            path, name = (route.path, route.name) if route else ("none", "none")
            state.metrics.count_request(path, name, method, status, seconds)
            ms = round(seconds * 1000, 1)
            whose = {"project": state.project} if state.project else {}
            log.info("request", method=method, route=path, status=status, ms=ms, **whose)


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


def _limited(receive: Receive, most: int, declared: str) -> Receive:
    """Refuses a body as soon as it is too large, whatever size its headers declare."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            size = declared if declared.isdecimal() else f"{received} or more"
            while message.get("more_body") and received < most + _DRAINED:
                message = await receive()
                received += len(message.get("body", b""))
            raise Exhausted(f"a request body must be at most {most} bytes, not {size}")
        return message

    return receive_limited


def _refusal(error: Exception, scope: Scope) -> Response:
    """The response to an error: a browser is sent to sign in or gets a page, others get JSON."""
    if isinstance(error, Unauthenticated) and is_page_view(scope):
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/dashboard/login?to={quote(target)}", 303)
    if is_page_view(scope):
        return error_page(Request(scope), error)
    if not isinstance(error, HTTPException) or error.status_code not in (404, 405):
        return error_response(error)
    paths = scope["app"].openapi()["paths"]
    if error.status_code == 404:
        path = scope["raw_path"].decode("latin-1")
        end = f"/{path.rpartition('/')[2] or ' '}"  # /v1/search is meant as /v1/memories/search
        named = [it for it in paths if it.startswith("/v1/") and it.endswith(end)]
        close = get_close_matches(path, paths, 1, cutoff=0.8) or named
        advice = f"did you mean {close[0]}? " if close else ""
        reason = f"no such path: {path:.80}; {advice}/docs lists the paths of this server"
        return error_response(NotFound(reason))
    path, method = scope["path"], scope["method"]
    described = paths.get(path) or paths.get(scope["route"].path, {})
    methods = sorted(map(str.upper, described))  # none for the dashboard, which is not described
    allowed = ", ".join(methods) or (error.headers or {}).get("Allow", "GET")
    message = f"{method} is not allowed here, only {allowed}"
    if method.lower() in paths.get(path.removesuffix("/"), {}):
        message += f"; without the last slash, {path.removesuffix('/')} allows {method}"
    if path == MCP_PATH:
        message += ": an MCP client sends JSON-RPC messages"
    body = {"error": {"code": "METHOD_NOT_ALLOWED", "message": message}}
    return json_response(body, 405, {"Allow": allowed})
