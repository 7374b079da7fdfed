"""MCP on the server's own port: the same guard, the same users."""

import sys

from fastapi import FastAPI
from mcp.server import streamable_http_manager as streamable
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Scope

from kemem.memory import AsyncMemory
from kemem.serve.http.routing import handle_by_headers, id_in_header
from kemem.serve.mcp.server import create_mcp
from kemem.serve.mcp.tools import McpContext

PATH = "/mcp"


def offer_mcp(app: FastAPI, memory: AsyncMemory) -> streamable.StreamableHTTPSessionManager:
    """Serve MCP from an app while the manager that is returned runs.

    It keeps no sessions: each request is admitted by its own credential, and none can be taken
    over. The guard around the app has checked host and origin already.
    """

    def context_for(request: Request | None) -> McpContext:
        assert request is not None, "over HTTP there is one"
        shared = memory if request.state.caller.user_id is None else None
        session_id = id_in_header(request, "X-KeMem-Session")
        return McpContext(handle_by_headers(request), session_id, shared)

    manager = streamable.StreamableHTTPSessionManager(
        app=create_mcp(context_for, memory.settings.recall_language),
        stateless=True,
        max_request_body_size=sys.maxsize,  # the app's own limit holds
    )
    app.router.routes.append(_McpRoute(PATH, streamable.StreamableHTTPASGIApp(manager), name="mcp"))
    return manager


class _McpRoute(Route):
    """A route that logs and metrics can name, as those of the API."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}
