"""Requests to chat models: prompts in both languages, and nothing that makes a model leak calls."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from kemem.text.fence import fenced
from kemem.text.language import is_chinese

Json = dict[str, Any]

INSTRUCTIONS = ("system", "developer")  # roles
_RELIABLE = ("openai.com", "openai.azure.com")  # leak nothing, and refuse unknown fields
_WITH_TOOLS = (*_RELIABLE, "deepseek.com")  # whose models all handle tools
_STRICT = ("mistral.ai", "groq.com", "cerebras.ai")  # refuse unknown fields


@cache
def prompt(name: str) -> str:
    """The text of a prompt file beside this one."""
    return (files(__package__) / name).read_text("utf-8")


@cache
def text(name: str, language: str) -> str:
    """A short text by its name in texts.toml."""
    texts: dict[str, dict[str, str]] = tomllib.loads(prompt("texts.toml"))
    return texts[language][name]


def language_of(text: str) -> str:
    """The language to answer a text in: "zh" or "en"."""
    return "zh" if is_chinese(text) else "en"


def system_prompt(
    instructions: str | None, limit: int, language: str, summaries: Sequence[str] = ()
) -> str:
    """Who the model is, how it recalls, and summaries of what it is not shown verbatim.

    With a limit of 0 it recalls nothing by itself, and is told of no tool.
    """
    instructions = instructions or text("assistant", language)
    name = "chat" if limit else "note"
    system = prompt(f"{name}_{language}.md").format(instructions=instructions, limit=limit)
    return f"{system}\n{fenced('summaries', chr(10).join(summaries))}\n" if summaries else system


def sanitize_request(request: Mapping[str, Any], *, base_url: str = "") -> Json:
    """A copy of the arguments of `chat.completions.create` that gives no cause for a leak.

    Where messages hold calls, tools are sent, and assistant messages after the last user's have
    `reasoning_content`, which DeepSeek demands. `tool_choice` "none" only stops servers from
    reading calls, not models from writing them: it goes, and the tools with it unless the messages
    hold calls, so the caller has to ignore calls that were not wanted. Arguments of past calls that
    are not a JSON object become an empty one.
    """
    sanitized = dict(request)
    if not request.get("messages"):
        return sanitized
    messages = [_with_valid_arguments(_as_dict(it)) for it in request["messages"]]
    sanitized["messages"] = messages
    tools = list(request.get("tools") or ())
    if tools:
        sanitized["tools"] = tools
    if is_openai(base_url) or "tools" in (request.get("extra_body") or ()):
        return sanitized
    called = _called_tools(messages)
    if request.get("tool_choice") == "none":
        tools = tools if called else []
        del sanitized["tool_choice"]
    tools = tools or called
    if not tools:
        return {k: v for k, v in sanitized.items() if k not in ("tools", "parallel_tool_calls")}
    for message in [] if _hosted(base_url, _STRICT) else reversed(messages):
        if message.get("role") == "user":
            break
        if message.get("role") == "assistant":
            message["reasoning_content"] = message.get("reasoning_content") or ""
    return {**sanitized, "tools": tools}


def retry_with_note(request: Mapping[str, Any]) -> Json:
    """The same request once more, with a note in its system prompt on what was wrong."""
    messages = request["messages"]
    words = " ".join(str(it.get("content")) for it in messages if it.get("role") == "user")
    return {**request, "messages": with_note(messages, text("no_markup", language_of(words)))}


def with_note(messages: Sequence[Json], note: str) -> list[Json]:
    """The messages with a note at the end of their instructions."""
    # Not a message of its own: some models' templates take only one, at the beginning.
    first, *rest = messages
    if first.get("role") not in INSTRUCTIONS:
        return [{"role": "system", "content": note}, *messages]
    content = first.get("content") or ""
    if isinstance(content, str):
        return [{**first, "content": f"{content}\n\n{note}"}, *rest]
    return [{**first, "content": [*content, {"type": "text", "text": note}]}, *rest]


def call_ids(messages: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of all calls in some messages."""
    calls = (_as_dict(call) for message in messages for call in message.get("tool_calls") or ())
    return frozenset(call["id"] for call in calls if call.get("id"))


def new_call_id() -> str:
    """An id that no call has had."""
    return f"call_{token_hex(12)}"


def is_openai(base_url: str) -> bool:
    """Whether a base URL is OpenAI's own or Azure's."""
    return _hosted(base_url, _RELIABLE)


def handles_tools(base_url: str) -> bool:
    """Whether all models of an address are known to handle tools."""
    return _hosted(base_url, _WITH_TOOLS)


def _hosted(base_url: str, domains: Iterable[str]) -> bool:
    host = ""
    with suppress(ValueError):  # an address that is none
        host = urlsplit(base_url).hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _as_dict(message: Any) -> Json:
    """A copy of a message as a dict; applications also send the objects that they received."""
    if isinstance(message, Mapping):
        return dict(message)
    hidden = getattr(message, "__api_exclude__", None)
    copy: Json = message.model_dump(exclude_unset=True, mode="json", exclude=hidden)
    return copy


def _with_valid_arguments(message: Json) -> Json:
    """A message whose calls a server can read: some refuse a history with broken arguments."""
    calls = [_as_dict(call) for call in message.get("tool_calls") or ()]
    for call in calls:
        function = _as_dict(call.get("function") or {})
        if function and _arguments(function) is None:
            call["function"] = {**function, "arguments": "{}"}
    return {**message, "tool_calls": calls} if calls else message


def _arguments(function: Mapping[str, Any]) -> Json | None:
    """The arguments of a call; None where they are broken, as models write them."""
    value: Any = None
    with suppress(ValueError, TypeError, RecursionError):
        value = json.loads(function.get("arguments") or "{}")
    return value if isinstance(value, dict) else None


def _called_tools(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Definitions of the tools that the messages call, by the arguments they were called with."""
    properties: dict[str, Json] = {}
    for call in (it for message in messages for it in message.get("tool_calls") or ()):
        function = _as_dict(_as_dict(call).get("function") or {})
        if name := function.get("name"):
            keys: Json = {key: {} for key in _arguments(function) or ()}
            properties[name] = dict(sorted((properties.get(name, {}) | keys).items()))
    schemas = {name: {"type": "object", "properties": it} for name, it in properties.items()}
    functions = [{"name": name, "parameters": it} for name, it in schemas.items()]
    return [{"type": "function", "function": it} for it in functions]
