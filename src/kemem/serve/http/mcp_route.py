"""MCP over HTTP: one route, over the memory that a request is for."""

import sys
from reprlib import repr as shown

from fastapi import Request
from mcp.server import streamable_http_manager as streamable
from mcp_types import INVALID_REQUEST, jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from kemem.compat.tools import ToolContext
from kemem.errors import KeMemError
from kemem.memory import AsyncMemory
from kemem.serve.http.errors import parse_json
from kemem.serve.http.responses import json_response
from kemem.serve.http.routing import handle_by_headers, id_in_header
from kemem.serve.mcp.server import create_mcp

MCP_PATH = "/mcp"
_EXAMPLE = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'


def mcp_of(memory: AsyncMemory) -> streamable.StreamableHTTPSessionManager:
    """What serves MCP over a memory while it runs.

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
        await request.app.state.audit.call(request.scope, "mcp", tool, writes, error)

    return streamable.StreamableHTTPSessionManager(
        app=create_mcp(context_for, memory.settings.recall_language, on_call=record),
        stateless=True,
        max_request_body_size=sys.maxsize,  # the app's own limit holds
    )


class _McpApp:
    """MCP over the memory that a request is for.

    No message is sent to clients of their own accord: the stream of a GET would stay empty.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        if (wrong := _wrong_message(body)) is not None:
            error = {"code": INVALID_REQUEST, "message": wrong}
            refusal = json_response({"jsonrpc": "2.0", "id": None, "error": error}, 400)
            await refusal(scope, receive, send)
            return
        is_read = False

        async def receive_again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        manager: streamable.StreamableHTTPSessionManager = scope["app"].state.mcp
        await manager.handle_request(scope, receive_again, send)


def _wrong_message(body: bytes) -> str | None:
    """Why a body is no message, in plain words; None where it is one, or no JSON at all."""
    try:
        value = parse_json(body)
    except (ValueError, RecursionError):  # which the package tells plainly
        return None
    try:
        jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        return f"the body must be a JSON-RPC message such as {_EXAMPLE}, not {shown(value)}"
    return None


class _NamedRoute(Route):
    """A route that logs and metrics can name, as those of the API."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}


mcp_route = _NamedRoute(MCP_PATH, _McpApp(), methods=["POST"], name="mcp")
