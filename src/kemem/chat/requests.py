"""Requests to chat models, sanitized: nothing in them makes a model write calls into its text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from kemem.chat.prompts import language_of, text

INSTRUCTIONS = ("system", "developer")  # roles
_RELIABLE = ("openai.com", "openai.azure.com")  # leak nothing, and refuse unknown fields
_STRICT = ("mistral.ai", "groq.com", "cerebras.ai")  # refuse unknown fields


def sanitize_request(request: Mapping[str, Any], *, base_url: str = "") -> dict[str, Any]:
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
    messages = sanitized["messages"] = [
        _with_valid_arguments(_as_dict(it)) for it in request["messages"]
    ]
    tools = list(request.get("tools") or ())
    if tools:
        sanitized["tools"] = tools
    if is_openai(base_url) or "tools" in (request.get("extra_body") or ()):
        return sanitized
    called = _called_tools(messages)
    if request.get("tool_choice") == "none":
        tools = tools if called else []
        del sanitized["tool_choice"]
    tools = tools or [_definition(name, keys) for name, keys in called.items()]
    if not tools:
        return {
            key: sanitized[key] for key in sanitized if key not in ("tools", "parallel_tool_calls")
        }
    if not _hosted(base_url, _STRICT):
        _backfill_reasoning(messages)
    return {**sanitized, "tools": tools}


def retry_with_note(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same request once more, with a note in its system prompt on what was wrong."""
    messages = request["messages"]
    words = " ".join(str(it.get("content")) for it in messages if it.get("role") == "user")
    return {**request, "messages": with_note(messages, text("no_markup", language_of(words)))}


def with_note(messages: Sequence[dict[str, Any]], note: str) -> list[dict[str, Any]]:
    """The messages with a note at the end of their instructions.

    It is not a message of its own: some models' templates take only one, at the beginning.
    """
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


def _hosted(base_url: str, domains: Iterable[str]) -> bool:
    host = urlsplit(base_url).hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _as_dict(message: Any) -> dict[str, Any]:
    """A copy of a message as a dict; applications also send the objects that they received."""
    if isinstance(message, Mapping):
        return dict(message)
    hidden = getattr(message, "__api_exclude__", None)
    copy: dict[str, Any] = message.model_dump(exclude_unset=True, mode="json", exclude=hidden)
    return copy


def _with_valid_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls a server can read: some refuse a history with broken arguments."""
    calls = [_as_dict(call) for call in message.get("tool_calls") or ()]
    for call in calls:
        function = _as_dict(call.get("function") or {})
        if function and _arguments(function) is None:
            call["function"] = {**function, "arguments": "{}"}
    return {**message, "tool_calls": calls} if calls else message


def _arguments(function: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call; None where they are broken, as models write them."""
    value: Any = None
    with suppress(ValueError, TypeError, RecursionError):
        value = json.loads(function.get("arguments") or "{}")
    return value if isinstance(value, dict) else None


def _called_tools(messages: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The tools that the messages call, and the names of the arguments they were given."""
    tools: dict[str, set[str]] = {}
    for call in (it for message in messages for it in message.get("tool_calls") or ()):
        function = _as_dict(_as_dict(call).get("function") or {})
        if name := function.get("name"):
            tools.setdefault(name, set()).update(_arguments(function) or ())
    return tools


def _definition(name: str, keys: Iterable[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {key: {} for key in sorted(keys)}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _backfill_reasoning(messages: Sequence[dict[str, Any]]) -> None:
    for message in reversed(messages):
        if message.get("role") == "user":
            return
        if message.get("role") == "assistant":
            message["reasoning_content"] = message.get("reasoning_content") or ""
