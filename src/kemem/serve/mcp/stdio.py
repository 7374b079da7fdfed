"""MCP over standard input and output: a server for the one client that started it."""

import asyncio

from mcp.server.stdio import stdio_server

from kemem.memory import AsyncMemory
from kemem.serve.http.process import background_worker
from kemem.serve.mcp.server import create_mcp
from kemem.serve.mcp.tools import McpContext
from kemem.serve.telemetry.journal import Traces
from kemem.settings import Settings


def serve_stdio(
    settings: Settings, user_id: str, agent_id: str | None, session_id: str | None, sensitive: bool
) -> None:
    """Serve one user's memories until the client goes."""
    memory = AsyncMemory(settings=settings)
    traces = Traces(memory, "stdio")
    handle = memory.for_user(user_id, agent_id=agent_id, sensitive=sensitive)
    asyncio.run(_serve(memory, McpContext(handle, session_id, shared=memory), traces))


async def _serve(memory: AsyncMemory, context: McpContext, traces: Traces) -> None:
    chinese = memory.settings.recall_language == "zh"
    server = create_mcp(lambda _: context, "zh" if chinese else "en")
    async with background_worker(memory, traces.flush), stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
