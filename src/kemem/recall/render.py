"""Tools as others want them described: for OpenAI's API, for MCP, as plain JSON schema."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from kemem.ports import Tool
from kemem.recall.desk import Language
from kemem.recall.models import English
from kemem.recall.registry import MEMRECALL_TOOLS, ToolEntry

Registry = Mapping[str, ToolEntry]


def as_tools(language: Language = "zh", registry: Registry = MEMRECALL_TOOLS) -> list[Tool]:
    """The tools for an LLM of the project."""
    return [
        Tool(name, describe(entry, language), schema(entry["input_model"], language))
        for name, entry in registry.items()
    ]


def openai_tools(
    language: Language = "zh", registry: Registry = MEMRECALL_TOOLS
) -> list[dict[str, Any]]:
    """The tools for the `tools` of a chat completion."""
    return [tool.to_dict() for tool in as_tools(language, registry)]


def mcp_tools(
    language: Language = "zh", registry: Registry = MEMRECALL_TOOLS
) -> list[dict[str, Any]]:
    """The tools as an MCP server lists them; without hints of its own one only reads."""
    return [
        {
            "name": name,
            "description": describe(entry, language),
            "inputSchema": schema(entry["input_model"], language),
            "outputSchema": schema(entry["output_model"], language),
            "annotations": {"readOnlyHint": True, "openWorldHint": False, **entry.get("hints", {})},
            **_titled(entry, language),
        }
        for name, entry in registry.items()
    ]


def json_schemas(
    language: Language = "zh", registry: Registry = MEMRECALL_TOOLS
) -> dict[str, dict[str, Any]]:
    """For each tool its description and the JSON schemas of what it takes and gives."""
    return {
        name: {
            "description": describe(entry, language),
            "input": schema(entry["input_model"], language),
            "output": schema(entry["output_model"], language),
        }
        for name, entry in registry.items()
    }


def describe(entry: ToolEntry, language: Language) -> str:
    """When to use a tool."""
    return entry["description" if language == "zh" else "description_en"].strip()


def _titled(entry: ToolEntry, language: Language) -> dict[str, str]:
    title = entry.get("title") if language == "zh" else entry.get("title_en")
    return {} if title is None else {"title": title}


def schema(model: type[BaseModel], language: Language) -> dict[str, Any]:
    """The JSON schema of a model, described in one language."""
    made = model.model_json_schema()
    models = {each.__name__: each for each in _family(model)}
    deps = {model.__name__: made, **made.get("$defs", {})}
    for name, part in deps.items():
        part.pop("description", None)
        part.pop("title", None)
        for field, shown in part["properties"].items():
            shown.pop("title", None)
            if language == "en":
                shown["description"] = _english(models[name], field)
    return made


def _english(model: type[BaseModel], field: str) -> str:
    found = (each for each in model.model_fields[field].metadata if isinstance(each, English))
    return next(found).text


def _family(model: type[BaseModel]) -> Iterable[type[BaseModel]]:
    """A model and the models inside it."""
    yield model
    for field in model.model_fields.values():
        for inner in getattr(field.annotation, "__args__", ()):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _family(inner)
