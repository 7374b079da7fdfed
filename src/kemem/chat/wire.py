"""Chat requests that models answer with calls, not with text that looks like calls."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from kemem.text.language import is_chinese

_SOUND = ("openai.com", "openai.azure.com")  # need no mending, and refuse unknown fields
_STRICT = ("mistral.ai", "groq.com", "cerebras.ai")  # refuse unknown fields

_ENGLISH = (
    "Your last answer wrote a tool call into its text, where it cannot be run. Call a tool only "
    "through the interface for tool calls; otherwise answer in plain words, without any markup."
)
_CHINESE = (
    "你上一次的回答把工具调用写进了正文，无法执行。需要工具时，只通过工具调用接口来调用；"
    "否则直接用文字回答，不要写任何标记。"
)


def mended(request: Mapping[str, Any], *, base_url: str = "") -> dict[str, Any]:
    """A copy of the arguments of `chat.completions.create` that gives no cause for a leak.

    Where messages hold calls, tools are sent, and assistant messages after the last user's have
    `reasoning_content`, which DeepSeek demands. `tool_choice` "none" only stops servers from
    reading calls, not models from writing them: it goes, and the tools with it unless the messages
    hold calls, so whoever mends a request has to ignore calls that were not wanted. Arguments of
    past calls that are no JSON object become an empty one.
    """
    fixed = dict(request)
    if not request.get("messages"):
        return fixed
    messages = fixed["messages"] = [_readable(_plain(it)) for it in request["messages"]]
    tools = list(request.get("tools") or ())
    if tools:
        fixed["tools"] = tools
    if _hosted(base_url, _SOUND) or "tools" in (request.get("extra_body") or ()):
        return fixed
    called = _called(messages)
    if request.get("tool_choice") == "none":
        tools = tools if called else []
        del fixed["tool_choice"]
    tools = tools or [_definition(name, seen) for name, seen in called.items()]
    if not tools:
        return {key: fixed[key] for key in fixed if key not in ("tools", "parallel_tool_calls")}
    if not _hosted(base_url, _STRICT):
        _give_reasoning(messages)
    return {**fixed, "tools": tools}


def noted(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same request once more, and in its system prompt what was wrong with the answer.

    The note is no message of its own: the templates of some models refuse a late system message.
    """
    first, *rest = messages = request["messages"]
    said = " ".join(str(it.get("content")) for it in messages if it.get("role") == "user")
    note = _CHINESE if is_chinese(said) else _ENGLISH
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return {
            **request,
            "messages": [{**first, "content": f"{first['content']}\n\n{note}"}, *rest],
        }
    return {**request, "messages": [{"role": "system", "content": note}, *messages]}


def call_ids(messages: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of all calls in some messages."""
    calls = (_plain(call) for message in messages for call in message.get("tool_calls") or ())
    return frozenset(call["id"] for call in calls if call.get("id"))


def new_call_id() -> str:
    """An id that no call has had."""
    return f"call_{token_hex(12)}"


def _hosted(base_url: str, domains: Iterable[str]) -> bool:
    host = urlsplit(base_url).hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _plain(message: Any) -> dict[str, Any]:
    """A message as a dict of its own; applications also send the objects that they were given."""
    if isinstance(message, Mapping):
        return dict(message)
    hidden = getattr(message, "__api_exclude__", None)
    plain: dict[str, Any] = message.model_dump(exclude_unset=True, mode="json", exclude=hidden)
    return plain


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls a server can read: some refuse a history with broken arguments."""
    calls = [_plain(call) for call in message.get("tool_calls") or ()]
    for call in calls:
        function = _plain(call.get("function") or {})
        if function and _arguments(function) is None:
            call["function"] = {**function, "arguments": "{}"}
    return {**message, "tool_calls": calls} if calls else message


def _arguments(function: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call; None where they are broken, as models write them."""
    found: Any = None
    with suppress(ValueError, TypeError, RecursionError):
        found = json.loads(function.get("arguments") or "{}")
    return found if isinstance(found, dict) else None


def _called(messages: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The tools that the messages call, and the names of the arguments they were given."""
    found: dict[str, set[str]] = {}
    for call in (it for message in messages for it in message.get("tool_calls") or ()):
        function = _plain(_plain(call).get("function") or {})
        if name := function.get("name"):
            found.setdefault(name, set()).update(_arguments(function) or ())
    return found


def _definition(name: str, seen: Iterable[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {key: {} for key in sorted(seen)}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _give_reasoning(messages: Sequence[dict[str, Any]]) -> None:
    for message in reversed(messages):
        if message.get("role") == "user":
            return
        if message.get("role") == "assistant":
            message["reasoning_content"] = message.get("reasoning_content") or ""
