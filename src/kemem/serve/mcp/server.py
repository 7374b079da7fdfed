"""The memory as an MCP server: tools, resources and a prompt over one user's memories.

It uses the SDK's low-level server. The high-level one gives resources no request, by which we
know the user, and has its own texts for errors, which clients would see instead of ours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as mcp
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from starlette.requests import Request

from kemem import __version__
from kemem.compat.tools import MEMORY_TOOLS, ToolContext, fitted, shown
from kemem.errors import Internal, KeMemError, NotFound, PermissionDenied
from kemem.memory import AsyncMemory
from kemem.recall.registry import (
    Registry,
    ToolEntry,
    check_arguments,
    input_with_types,
    is_writing,
    mcp_tools,
)
from kemem.recall.schemas import Language, tool_texts
from kemem.serve.http.errors import READ_ONLY, public_error
from kemem.serve.http.process import background_worker
from kemem.serve.telemetry.journal import Traces
from kemem.settings import Settings
from kemem.text.fence import fenced, neutralise

Context = ServerRequestContext[Any, Request]
ContextFactory = Callable[[Request | None], ToolContext]  # over stdio there is no request
# The request, the tool, whether it writes, and the error of the call.
OnCall = Callable[[Request | None, str, bool, KeMemError | None], Awaitable[None]]
Paging = mcp.PaginatedRequestParams | None

PROMPT = "recall"
_MAX_LINES = 50
_MAX_LINE = 500  # characters
# The words of the Python API are accepted where a tool has another.
_ALIASES = {"query": "question", "id": "memory_key", "threshold": "min_relevance_score"}


async def profile(context: ToolContext) -> str:
    """What is known about the user now, by topic, the most important first."""
    return (await context.memory.profile()).text


async def recent(context: ToolContext) -> str:
    """What was remembered last, as data, a line for each."""
    lines = [str(item) for item in await context.memory.get_all(limit=_MAX_LINES)]
    cut = (line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines)
    return fenced("memories", "\n".join(cut))


RESOURCES: Mapping[str, Callable[[ToolContext], Awaitable[str]]] = {
    "memory://profile": profile,
    "memory://recent": recent,
}


def serve_stdio(
    settings: Settings,
    user_id: str,
    agent_id: str | None,
    session_id: str | None,
    sensitive: bool,
    tools: Registry = MEMORY_TOOLS,
) -> None:
    """Serve one user's memories on standard input and output until the client goes."""
    memory = AsyncMemory(settings=settings)
    traces = Traces(memory, "stdio")
    handle = memory.for_user(user_id, agent_id=agent_id, sensitive=sensitive)
    context = ToolContext(handle, session_id, shared=memory)
    server = create_mcp(lambda _: context, settings.recall_language, tools)

    async def serve() -> None:
        async with background_worker(memory, traces.flush), stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(serve())


def create_mcp(
    context_for: ContextFactory,
    language: str = "en",
    tools: Registry = MEMORY_TOOLS,
    on_call: OnCall | None = None,
) -> Server[Any]:
    """An MCP server, described in `language`, over the memories that a request may reach.

    No tool takes a user: `context_for` says whose memories a request means. `on_call` hears of
    each call of a tool when it has ended.
    """
    handlers = _Handlers(context_for, "zh" if language == "zh" else "en", tools, on_call)
    return Server(
        "kemem",
        title="KeMem",
        version=__version__,
        instructions=handlers.texts["instructions"][handlers.language],
        get_tool_input_schema=handlers.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


class _Handlers:
    """A handler for each method of the protocol."""

    def __init__(
        self,
        context_for: ContextFactory,
        language: Language,
        registry: Registry,
        on_call: OnCall | None,
    ) -> None:
        self._context_for = context_for
        self._on_call = on_call
        self._registry = registry
        self.language: Language = language
        self.texts = tool_texts(__package__)
        listed = mcp_tools(language, registry)
        self._tools = [mcp.Tool.model_validate(tool, by_alias=True) for tool in listed]

    def input_schema(self, name: str) -> dict[str, Any] | None:
        return next((tool.input_schema for tool in self._tools if tool.name == name), None)

    async def list_tools(self, context: Context, params: Paging) -> mcp.ListToolsResult:
        try:
            deps = await self._context_for(context.request).memory.runtime.deps()
        except KeMemError:  # who names no user is shown the tools all the same
            return mcp.ListToolsResult(tools=self._tools)
        ontology = await deps.ontology.read(deps.store)
        tools = [
            it.model_copy(update={"input_schema": input_with_types(it.input_schema, ontology)})
            for it in self._tools
        ]
        return mcp.ListToolsResult(tools=tools)

    async def call_tool(
        self, context: Context, params: mcp.CallToolRequestParams
    ) -> mcp.CallToolResult:
        """The output of a tool as data; a call that fails says so in its result."""
        entry = self._registry.get(params.name)
        if entry is None:
            raise MCPError(mcp.INVALID_PARAMS, f"no tool {params.name!r:.80}")
        arguments, fields = {**(params.arguments or {})}, entry["input_model"].model_fields
        for alias, name in _ALIASES.items():
            if alias in arguments and alias not in fields:
                arguments.setdefault(name, arguments[alias])
        try:
            reached = self._context_for(context.request)
            if reached.read_only and is_writing(entry):
                raise PermissionDenied(READ_ONLY)
            request, _ = check_arguments(arguments, entry, self.language)
            output = await entry["func"](reached, request)
        except Exception as error:  # the edge: the result tells a model how to mend its call
            public = public_error(error)
            await self._tell(context, params.name, entry, public)
            text = neutralise(f"{public.code}: {public.message}")
            return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=True)
        await self._tell(context, params.name, entry, None)
        result = fitted(output.model_dump(mode="json", by_alias=True))
        text = shown(result)
        return mcp.CallToolResult(content=[mcp.TextContent(text=text)], structured_content=result)

    async def _tell(
        self, context: Context, name: str, entry: ToolEntry, error: KeMemError | None
    ) -> None:
        if self._on_call is not None:
            await self._on_call(context.request, f"mcp.{name}", is_writing(entry), error)

    async def list_resources(self, context: Context, params: Paging) -> mcp.ListResourcesResult:
        resources = []
        for uri, read in RESOURCES.items():
            texts = self._texts("resources", read.__name__, "title", "description")
            kind = "text/plain"
            resources.append(mcp.Resource(uri=uri, name=read.__name__, mime_type=kind, **texts))
        return mcp.ListResourcesResult(resources=resources)

    async def list_templates(
        self, context: Context, params: Paging
    ) -> mcp.ListResourceTemplatesResult:
        return mcp.ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(
        self, context: Context, params: mcp.ReadResourceRequestParams
    ) -> mcp.ReadResourceResult:
        uri = str(params.uri)
        try:
            if uri not in RESOURCES:
                raise NotFound(f"no resource {uri!r:.80}; there are {', '.join(RESOURCES)}")
            text = await RESOURCES[uri](self._context_for(context.request))
        except Exception as error:  # the edge, as for tools
            raise _protocol_error(error) from None
        contents = mcp.TextResourceContents(uri=uri, text=text, mime_type="text/plain")
        return mcp.ReadResourceResult(contents=[contents])

    async def list_prompts(self, context: Context, params: Paging) -> mcp.ListPromptsResult:
        about = self.texts["prompts"][PROMPT]["question"][self.language]
        question = mcp.PromptArgument(name="question", description=about, required=True)
        texts = self._texts("prompts", PROMPT, "title", "description")
        prompt = mcp.Prompt(name=PROMPT, arguments=[question], **texts)
        return mcp.ListPromptsResult(prompts=[prompt])

    async def get_prompt(
        self, context: Context, params: mcp.GetPromptRequestParams
    ) -> mcp.GetPromptResult:
        """A question with the evidence for it, both as data, and what to do with them."""
        arguments = params.arguments or {}
        question = arguments.get("question", arguments.get("query", ""))
        try:
            if params.name != PROMPT:
                raise NotFound(f"no prompt {params.name!r:.80}; there is {PROMPT}")
            reached = self._context_for(context.request)
            evidence = await reached.memory.recall(question=question, session_id=reached.session_id)
            template = self.texts["prompts"][PROMPT]["text"][reached.language(question)]
            text = template.format(evidence=evidence, question=fenced("question", question))
        except Exception as error:  # the edge, as for tools
            raise _protocol_error(error) from None
        return mcp.GetPromptResult(
            messages=[mcp.PromptMessage(role="user", content=mcp.TextContent(text=text))],
            **self._texts("prompts", PROMPT, "description"),
        )

    def _texts(self, kind: str, name: str, *fields: str) -> dict[str, Any]:
        return {field: self.texts[kind][name][field][self.language] for field in fields}


def _protocol_error(error: Exception) -> MCPError:
    public = public_error(error)
    code = mcp.INTERNAL_ERROR if public.status >= Internal.status else mcp.INVALID_PARAMS
    return MCPError(code, public.message, {"code": public.code})
