"""pydantic-ai: a toolset over one user's memory."""

from collections.abc import Collection
from typing import Any

from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from kemem.compat.tools import DEFAULT_TOOLS, ToolContext, call_tool, described_tools
from kemem.memory import AsyncMemory
from kemem.recall.schemas import Language
from kemem.sync import bind


def memory_toolset(
    memory: AsyncMemory,
    *,
    user_id: str,
    agent_id: str | None = None,
    session_id: str | None = None,
    names: Collection[str] = DEFAULT_TOOLS,
    language: Language = "en",
) -> FunctionToolset[Any]:
    """Tools by which a model keeps, finds and forgets memories of one user.

        await agent.run("…", toolsets=[memory_toolset(memory, user_id="u_1")])

    `names` are tools of the MCP server, `language` is that of their descriptions. New memories
    belong to the conversation `session_id`.
    """
    context = ToolContext(bind(memory, user_id, agent_id), session_id)

    def made(name: str, description: str, schema: dict[str, Any]) -> Tool[Any]:
        async def call(**arguments: Any) -> str:
            return await call_tool(name, arguments, context, language)

        return Tool.from_schema(call, name, description, schema)

    tools = described_tools(names, language)
    return FunctionToolset(
        [made(tool.name, tool.description, dict(tool.parameters)) for tool in tools]
    )
