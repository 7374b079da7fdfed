"""Tools for models that know none: told in the prompt, called by JSON that the model writes."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Protocol

from kemem.ports import Prompt, Reply, Schema, Tool, ToolCall
from kemem.text.language import is_chinese
from kemem.text.loose_json import parse_json

_FORM = '{"calls": [{"name": "…", "arguments": {…}}]}'


@dataclass(frozen=True, slots=True)
class _Words:
    manual: str
    tool: str
    result: str


_ENGLISH = _Words(
    "You can call tools. To call one or several, answer with nothing but JSON of this form:\n"
    f"{_FORM}\n"
    "You are then told the results. When you need no tool, answer in plain words, without JSON.\n\n"
    "The tools:",
    "- {}: {}\n  JSON schema of its arguments: {}",
    "Result of the call {} of the tool {}:\n{}",
)
_CHINESE = _Words(
    "你可以调用工具。需要调用一个或多个工具时，只回答如下形式的 JSON，不要写别的内容：\n"
    f"{_FORM}\n"
    "随后你会得到调用的结果。不需要工具时，直接用文字回答，不要写 JSON。\n\n"
    "工具：",
    "- {}：{}\n  参数的 JSON schema：{}",
    "调用 {}（工具 {}）的结果：\n{}",
)


class PlainLLM(Protocol):
    """A chat model that takes no tools."""

    name: str

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        """The model's answer."""


class WrittenCalls:
    """A chat model that takes no tools, as one that does."""

    def __init__(self, llm: PlainLLM) -> None:
        self._llm = llm
        self.name = llm.name

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """The model's answer, with the calls that it wrote."""
        asked = written(messages, tools)
        if tools:
            return read_calls(await self._llm.reply(asked))
        return await self._llm.reply(asked, schema=schema)


def written(messages: Prompt, tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The same conversation in plain messages, with the tools in its system prompt."""
    begun = bool(messages) and messages[0]["role"] == "system"
    system = messages[0]["content"] if begun else ""
    words = _CHINESE if is_chinese(system) else _ENGLISH
    named = {call["id"]: call["function"]["name"] for it in messages for call in _calls_of(it)}
    plain = [_plain(message, named, words) for message in messages]
    if not tools:
        return plain
    lines = [words.tool.format(it.name, it.description, _json(dict(it.parameters))) for it in tools]
    manual = "\n".join([system, "", words.manual, *lines]).strip()
    return [{"role": "system", "content": manual}, *plain[begun:]]


def read_calls(reply: Reply) -> Reply:
    """A reply with the calls that stand written in its text; other texts stay as they are."""
    try:
        value = parse_json(reply.text)
    except ValueError:
        return reply
    listed = isinstance(value, Mapping) and "calls" in value
    found = value["calls"] if listed else value
    items = found if isinstance(found, list) else [found]
    calls = tuple(call for item in items if (call := _call(item, listed)))
    return replace(reply, text="", calls=calls) if calls else reply


def new_call(call_id: object, name: str, arguments: object) -> ToolCall:
    """A call from what a model gave: one without an id gets one, arguments become JSON text."""
    text = arguments if isinstance(arguments, str) else _json(arguments or {})
    given = call_id if isinstance(call_id, str) and call_id else f"call_{token_hex(6)}"
    return ToolCall(given, name, text if text.strip() else "{}")


def _call(item: object, listed: bool) -> ToolCall | None:
    """A call as models write it; a name alone is one only in a list of calls."""
    if not isinstance(item, Mapping):
        return None
    name = item.get("name") or item.get("tool")
    given = [item[key] for key in ("arguments", "parameters", "args") if key in item]
    if not isinstance(name, str) or not name or not (given or listed):
        return None
    return new_call(None, name, given[0] if given else {})


def _plain(message: Mapping[str, Any], named: Mapping[str, str], words: _Words) -> dict[str, Any]:
    if message["role"] == "tool":
        call_id = message["tool_call_id"]
        result = words.result.format(call_id, named.get(call_id, "?"), message["content"])
        return {"role": "user", "content": result}
    if not (calls := _calls_of(message)):
        return dict(message)
    said = _json({"calls": [_written_call(call) for call in calls]})
    return {"role": "assistant", "content": f"{message.get('content') or ''}\n{said}".strip()}


def _written_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    with suppress(ValueError, RecursionError):  # broken ones are shown as they were written
        arguments = json.loads(arguments)
    return {"id": call["id"], "name": call["function"]["name"], "arguments": arguments}


def _calls_of(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return message.get("tool_calls") or ()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
