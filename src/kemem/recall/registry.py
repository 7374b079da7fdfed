"""The tools under their names: how they are described to models, and how a call of one is run."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NotRequired, TypedDict, cast, get_type_hints

from pydantic import ValidationError

from kemem.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from kemem.ports import Tool, ToolCall
from kemem.recall import schemas, tools
from kemem.recall.schemas import Language, Model, message, schema, tool_texts
from kemem.recall.state import COUNTED, TOOL_SECONDS, RecallState
from kemem.records.ontology import Ontology
from kemem.text.loose_json import parse_json

_SHOWN = 300  # characters of an argument in a trace
_LISTED = 20  # values of one that is a list

log = logging.getLogger("kemem")


class ToolEntry(TypedDict):
    """A tool: its name and texts, the models of its input and output, and its function."""

    name: str
    description: str  # in Chinese
    description_en: str
    input_model: type[Model]
    output_model: type[Model]
    func: Callable[..., Awaitable[Any]]
    is_expansion: NotRequired[bool]  # an approved call ends the iteration
    is_handoff: NotRequired[bool]  # a call ends the agent
    title: NotRequired[str]  # for people, in Chinese
    title_en: NotRequired[str]
    hints: NotRequired[Mapping[str, bool]]  # of MCP, where it does more than read


Registry = Mapping[str, ToolEntry]
Json = dict[str, Any]


def tool_entry(package: str, func: Callable[..., Awaitable[Any]]) -> ToolEntry:
    """A function as a tool: its annotations name its models, `tools.toml` of the package has texts.

    search_memories_tool -> the tool "search_memories"
    """
    name, models = func.__name__.removesuffix("_tool"), get_type_hints(func)
    texts = {**tool_texts(package)["tools"][name]}
    entry = {"name": name, "description": texts.pop("zh"), "description_en": texts.pop("en")}
    entry |= {"input_model": models["request"], "output_model": models["return"], "func": func}
    return cast(ToolEntry, {**entry, **texts})


MEMRECALL_TOOLS: dict[str, ToolEntry] = {
    name: tool_entry(__package__, getattr(tools, f"{name}_tool"))
    for name in tool_texts(__package__)["tools"]
}
_NAMES = {entry["input_model"]: name for name, entry in MEMRECALL_TOOLS.items()}


# How tools are described


def json_schemas(language: Language = "zh", registry: Registry = MEMRECALL_TOOLS) -> dict[str, Any]:
    """For each tool its description and the JSON schemas of its input and output."""
    return {
        name: {
            "description": entry["description" if language == "zh" else "description_en"].strip(),
            "input": schema(entry["input_model"], language),
            "output": schema(entry["output_model"], language),
        }
        for name, entry in registry.items()
    }


def as_tools(language: Language = "zh", registry: Registry = MEMRECALL_TOOLS) -> list[Tool]:
    """The tools for an LLM of the project."""
    described = json_schemas(language, registry).items()
    return [Tool(name, each["description"], each["input"]) for name, each in described]


def short_tools(language: Language) -> list[Tool]:
    """The tools of the recall agent in few tokens: fewer fields, and no examples to copy."""
    tools = []
    for name, entry in MEMRECALL_TOOLS.items():
        texts, whole = (
            tool_texts(__package__)["short"][name],
            schema(entry["input_model"], language),
        )
        fields = {field: texts[field][language] for field in whole["properties"] if field in texts}
        properties = {
            field: {**_plain_type(whole["properties"][field]), "description": text}
            for field, text in fields.items()
        }
        short = {"type": "object", "properties": properties, "required": whole["required"]}
        tools.append(Tool(name, texts[language], short))
    return tools


def with_types(tools: list[Tool], ontology: Ontology) -> list[Tool]:
    """Tools of which those that search by type name the user's own types, too."""
    return [replace(it, parameters=input_with_types(it.parameters, ontology)) for it in tools]


def input_with_types(input_schema: Mapping[str, Any], ontology: Ontology) -> Mapping[str, Any]:
    """The schema of an input whose `memory_types`, if it has them, name the user's own types."""
    fields = input_schema.get("properties", {})
    if "memory_types" not in fields or not ontology.notes:
        return input_schema
    field, types = fields["memory_types"], ontology.notes.items()
    own = "; ".join(f"{name}: {it.description[:_SHOWN]}" for name, it in types)
    told = {**field, "description": f"{field.get('description', '')} ({own})"}
    return {**input_schema, "properties": {**fields, "memory_types": told}}


def _plain_type(field: Json) -> Json:
    """The type of a field that is given, without its limits.  [integer 1-9, null] -> integer"""
    given = next((it for it in field.get("anyOf", ()) if it["type"] != "null"), field)
    return {key: given[key] for key in ("type", "items") if key in given}


def openai_tools(language: Language = "zh", registry: Registry = MEMRECALL_TOOLS) -> list[Json]:
    """The tools for the `tools` of a chat completion."""
    return [tool.to_dict() for tool in as_tools(language, registry)]


def mcp_tools(language: Language = "zh", registry: Registry = MEMRECALL_TOOLS) -> list[Json]:
    """The tools as an MCP server lists them; without hints of its own one only reads."""
    listed = []
    for name, each in json_schemas(language, registry).items():
        entry, hints = registry[name], {"readOnlyHint": True, "openWorldHint": False}
        tool = {"name": name, "description": each["description"]}
        tool |= {"inputSchema": each["input"], "outputSchema": each["output"]}
        title = entry.get("title") if language == "zh" else entry.get("title_en")
        tool |= {"annotations": {**hints, **entry.get("hints", {})}}
        listed.append({**tool, "title": title} if title else tool)
    return listed


def is_writing(entry: ToolEntry) -> bool:
    """Whether a tool does more than read."""
    return not entry.get("hints", {}).get("readOnlyHint", True)


# How a call is run


class UnknownTool(Model):
    """The output of a call of a tool that does not exist."""

    success: bool = False
    message: str


async def run_tool(call: ToolCall | Model, state: RecallState) -> Model:
    """Run a call of a model, or the input of a tool that rules made, as one step of the trace.

    Whatever is wrong with it becomes the output, never an exception.
    """
    started, begun = state.deps.clock(), time.monotonic()
    state.calls += 1
    state.cached = False
    name = call.name if isinstance(call, ToolCall) else _NAMES[type(call)]
    entry = MEMRECALL_TOOLS.get(name)
    arguments: dict[str, Any] = {}
    if entry is None:
        names = ", ".join(MEMRECALL_TOOLS)
        output: Model = UnknownTool(message=state.text("unknown_tool", name=name, tools=names))
    else:
        try:
            request, arguments = _read(call, entry, state.language)
        except InvalidArgument as error:
            output = _failure(entry, state, error.message)
        else:
            output = await _attempt(entry, request, state)
            if name == "search_memories":
                state.searches_in_a_row += 1
            elif succeeded(output):
                state.searches_in_a_row = 0
    outcome, keys = _outcome(output, state)
    shown = {field: _shortened(value) for field, value in arguments.items()}
    success, seconds = succeeded(output), round(time.monotonic() - begun, 6)
    state.record(name[:64], shown, success, outcome, keys, started, seconds, state.cached)
    return output


def succeeded(output: Model) -> bool:
    """Whether a tool did what it was called for."""
    return bool(getattr(output, "success", getattr(output, "approved", False)))


def check_arguments(
    arguments: Mapping[str, Any], entry: ToolEntry, language: Language
) -> tuple[Model, dict[str, Any]]:
    """The input of a tool; arguments that it does not have, such as a user, are ignored."""
    model = entry["input_model"]
    fields = {name: value for name, value in arguments.items() if name in model.model_fields}
    # Lone surrogates can neither be stored nor sent.
    fields = json.loads(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))
    try:
        return model.model_validate(fields), fields
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        value = "" if first["type"] == "missing" else f" ({first['input']!r:.80})"
        values = {"tool": entry["name"], "field": field, "problem": f"{first['msg']}{value}"}
        raise InvalidArgument(message("wrong_argument", language, **values), field=field) from None


def _read(
    call: ToolCall | Model, entry: ToolEntry, language: Language
) -> tuple[Model, dict[str, Any]]:
    """The input of a call, and its arguments as they were given."""
    if isinstance(call, Model):
        return call, call.model_dump(exclude_unset=True)
    written = call.arguments
    try:
        arguments = parse_json(written) if written.strip() else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        problem = message("not_an_object", language, tool=entry["name"], arguments=written)
        raise InvalidArgument(problem)
    return check_arguments(arguments, entry, language)


async def _attempt(entry: ToolEntry, request: Model, state: RecallState) -> Model:
    """The output of a tool; a failure of the store is retried once."""
    name, func = entry["name"], cast(Callable[..., Awaitable[Model]], entry["func"])
    for last in (False, True):
        limit = min(TOOL_SECONDS, state.seconds_left)
        if name == "extract_search_keywords":  # it may call a model
            limit = state.seconds_left
        elif entry.get("is_handoff"):  # it must come to an end
            limit = TOOL_SECONDS
        try:
            async with asyncio.timeout(limit):
                return await func(state, request)
        except NotFound:
            key = getattr(request, "memory_key", "")
            return _failure(entry, state, state.text("not_found", key=key))
        except InvalidArgument as error:
            return _failure(entry, state, error.message)
        except TimeoutError:
            problem = state.text("timeout")
        except (PermissionDenied, Unauthenticated):
            problem = state.text("forbidden")
        except Exception as error:  # the store's code or network, which may raise anything
            log.warning("recall: %s failed: %s", name, type(error).__name__)
            if not last:
                continue
            problem = state.text("store_failed")
        if problem not in state.problems:  # other arguments would not mend it: the caller is told
            state.problems.append(problem)
        return _failure(entry, state, problem)
    raise AssertionError("the last attempt returns")


def _failure(entry: ToolEntry, state: RecallState, problem: str) -> Model:
    """An output of the tool that says what went wrong; each model picks the fields it has."""
    values = {"success": False, "total_found": 0, "task_completed": False, "message": problem}
    values |= {"approved": False, "new_size": state.window, "iteration": state.iteration}
    values |= {"max_iterations": state.budget.max_iterations}
    return entry["output_model"].model_validate(values)


def _shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [_shortened(each) for each in value[:_LISTED]]
    return f"{value[:_SHOWN]}…" if isinstance(value, str) and len(value) > _SHOWN else value


def _outcome(output: Model, state: RecallState) -> tuple[str, tuple[str, ...]]:
    """The output of a tool in one line, and the memories that it returns."""
    match output:
        case schemas.SearchMemoriesOutput(success=True, total_found=total, results=results):
            more = "" if state.counts_all or total < COUNTED else "+"
            outcome = state.text("search_outcome", total=f"{total}{more}", shown=len(results))
            if results and output.message:  # not what was asked for
                outcome = f"{outcome}; {output.message}"
            return outcome, tuple(each.memory_key for each in results)
        case schemas.GetMemoryDetailOutput(success=True, content=str(content), memory_key=str(key)):
            return state.text("detail_outcome", length=len(content)), (key,)
        case schemas.ExtractKeywordsOutput(success=True, keywords=words):
            return ", ".join(each.keyword for each in words), ()
        case schemas.HandoffOutput(success=True):
            keys = tuple(each.memory_key for each in state.evidence)
            return state.text("handoff_outcome"), keys
    return str(getattr(output, "message", "")), ()
