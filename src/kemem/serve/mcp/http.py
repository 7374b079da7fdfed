"""MCP on the server's own port: the same guard, the same users."""

import sys

from fastapi import FastAPI
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Scope

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.serve.http.auth import Caller
from kemem.serve.http.routing import id_in_header
from kemem.serve.mcp.server import create_mcp
from kemem.serve.mcp.tools import McpContext

PATH = "/mcp"


def offer_mcp(app: FastAPI, memory: AsyncMemory) -> StreamableHTTPSessionManager:
    """Serve MCP from an app while the manager that is returned runs.

    It keeps no sessions: each request is admitted by its own credential, and none can be taken
    over. The guard around the app has checked host and origin already.
    """

    def context_for(request: Request | None) -> McpContext:
        assert request is not None, "over HTTP there is one"
        return _context(request, memory)

    chinese = memory.settings.recall_language == "zh"
    server = create_mcp(context_for, "zh" if chinese else "en")
    manager = StreamableHTTPSessionManager(
        app=server,
        stateless=True,
        max_request_body_size=sys.maxsize,  # the app's own limit holds
    )
    app.router.routes.append(_McpRoute(PATH, StreamableHTTPASGIApp(manager), name="mcp"))
    return manager


class _McpRoute(Route):
    """A route that logs and metrics can name, as those of the API."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}


def _context(request: Request, memory: AsyncMemory) -> McpContext:
    """The memories of the token's user; an operator names the user in a header."""
    caller: Caller = request.state.caller
    user_id = id_in_header(request, "X-KeMem-User") or caller.user_id
    if user_id is None:
        raise InvalidArgument(
            "user_id is required: send the header X-KeMem-User, or a token that is bound to a user",
            field="X-KeMem-User",
        )
    caller.check_users(user_id)
    handle = memory.for_user(
        user_id, agent_id=id_in_header(request, "X-KeMem-Agent"), sensitive=caller.sensitive
    )
    shared = memory if caller.user_id is None else None
    return McpContext(handle, id_in_header(request, "X-KeMem-Session"), shared)
