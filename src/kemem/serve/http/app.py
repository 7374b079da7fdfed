"""The HTTP server: an app around a memory, and the process that runs it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from kemem.chat import ChatService, GroupChatService, LeakCounts
from kemem.chat.proxy import Proxy
from kemem.memory import AsyncMemory
from kemem.serve.dashboard.router import offer_dashboard
from kemem.serve.http import (
    chat_routes,
    memory_routes,
    message_routes,
    operator_routes,
    proxy_routes,
    session_routes,
)
from kemem.serve.http.auth import Authenticator
from kemem.serve.http.errors import RESPONSES
from kemem.serve.http.logs import configure_logs
from kemem.serve.http.middleware import RequestMiddleware
from kemem.serve.http.worker import background_worker
from kemem.serve.mcp.http import offer_mcp
from kemem.serve.rpc import routes as rpc_routes
from kemem.serve.telemetry.journal import Traces
from kemem.serve.telemetry.metrics import Metrics
from kemem.settings import Settings

_GRACE = 1.0  # seconds that requests get at the end, then chats to remember what was said


def create_app(memory: AsyncMemory, flags: frozenset[str] = frozenset()) -> FastAPI:
    """The HTTP API over a memory, which it closes when it stops; some settings came by flags."""
    authenticator = Authenticator(memory.settings)
    app = FastAPI(
        title="KeMem",
        version="1",
        openapi_url=None,  # served by a route of ours, so that it is guarded like the others
        redirect_slashes=False,
        lifespan=_lifespan,
        responses=RESPONSES,
        generate_unique_id_function=_operation_id,
        exception_handlers={HTTPException: _pass_on, RequestValidationError: _pass_on},
    )
    app.state.memory = memory
    app.state.authenticator = authenticator
    app.state.flags = flags
    app.state.leaks = LeakCounts()
    app.state.chat = ChatService(memory, counts=app.state.leaks, run_jobs=False)
    app.state.group = GroupChatService(memory, counts=app.state.leaks, run_jobs=False)
    app.state.proxy = Proxy(memory, counts=app.state.leaks, run_jobs=False)
    app.state.metrics = Metrics(memory, app.state.leaks)
    app.state.traces = Traces(memory)
    memory.runtime.on_reply.append(app.state.metrics.count_reply)
    # Only described here: the middleware asks for the credential, whatever the route.
    security = [Depends(HTTPBearer(auto_error=False))] if authenticator.requires_credentials else []
    for routes in (
        message_routes,
        memory_routes,
        chat_routes,
        proxy_routes,
        session_routes,
        rpc_routes,
        operator_routes,
    ):
        app.include_router(routes.router, dependencies=security)
    app.include_router(operator_routes.probes)
    app.state.mcp = offer_mcp(app, memory)
    offer_dashboard(app)
    app.state.requests = set()  # tasks
    app.add_middleware(
        RequestMiddleware,
        authenticator=authenticator,
        metrics=app.state.metrics,
        requests=app.state.requests,
        max_body_bytes=memory.settings.max_body_bytes,
    )
    return app


def serve(settings: Settings, flags: frozenset[str] = frozenset()) -> None:
    """Serve until stopped; without a credential in the settings, to this machine only."""
    Authenticator(settings).check_host(settings.host)
    configure_logs(settings.log_level)
    uvicorn.run(
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


async def _pass_on(request: Request, error: Exception) -> Response:
    """Replaces FastAPI's handlers of errors: the middleware answers all of them alike."""
    raise error


def _operation_id(route: APIRoute) -> str:
    return route.name


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    flushes = app.state.metrics.flush, app.state.traces.flush
    async with background_worker(app.state.memory, *flushes), app.state.mcp.run():
        yield
        if requests := app.state.requests:  # a turn that was cancelled stores what was said
            await asyncio.wait(requests, timeout=_GRACE)
        with suppress(TimeoutError):  # what is not remembered by then is a job of the next start
            async with asyncio.timeout(_GRACE):
                chats = (app.state.chat, app.state.group, app.state.proxy)
                await asyncio.gather(*(chat.close() for chat in chats))
