"""Messages in the formats of others, read as KeMem's own.

A message is read by the first of the SHAPES that it has, its content by `kemem.text.parts`. What is
said stays as it is; calls and results of tools become turns of their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from reprlib import repr as shown
from typing import Any, NamedTuple

from kemem.errors import InvalidArgument
from kemem.records import ROLES
from kemem.text.jsonable import to_fields
from kemem.text.parts import (
    Fields,
    Piece,
    Unreadable,
    call,
    read_content,
    read_part,
    result,
    thought,
)

ROLE_NAMES = {
    **{role: role for role in ROLES},
    **dict.fromkeys(("human", "HumanMessageChunk"), "user"),
    **dict.fromkeys(("ai", "gpt", "chatgpt", "bot", "chatbot", "model"), "assistant"),
    "AIMessageChunk": "assistant",
    **dict.fromkeys(("developer", "remove", "SystemMessageChunk"), "system"),
    **dict.fromkeys(("function", "observation", "ToolMessageChunk"), "tool"),
}
_CALLS = ("tool_calls", "invalid_tool_calls")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
# Requests and responses that hold messages, and where their system prompts are.
_OF_MESSAGES = {"role", "type", "content", "from"}
_ENVELOPES: Mapping[str, tuple[str, ...]] = {
    "messages": ("system",),
    "contents": ("system_instruction", "systemInstruction"),
    "conversations": ("system",),
    "input": ("instructions",),
    "output": (),
    "choices": (),
    "candidates": (),
}


class Item(NamedTuple):
    """A message taken apart."""

    role: object
    pieces: Iterator[Piece]
    rest: Fields  # fields that are KeMem's own, and those that are kept as metadata


class Shape(NamedTuple):
    """A format of messages: how those are read that have all the keys."""

    keys: frozenset[str]
    read: Callable[[Fields], Item]
    fields: frozenset[str]  # that are not kept as metadata


def to_items(messages: object) -> list[object] | None:
    """The messages of a call as a list; None for what holds none.

    A request to a model or its response gives its messages, the system prompt first.
    """
    if isinstance(messages, list | tuple):
        is_pair = isinstance(messages, tuple) and _pair(messages)
        return [messages] if is_pair else list(messages)
    if isinstance(messages, str):
        return [messages]
    found = to_fields(messages)
    if found is None:
        return None
    envelope = None if found.keys() & _OF_MESSAGES else _ENVELOPES.keys() & found.keys()
    for key in envelope or ():
        inner = found[key]
        if isinstance(inner, list | tuple | str) and inner:
            system = [_prompt(found[name]) for name in _ENVELOPES[key] if found.get(name)]
            return [*system, *([inner] if isinstance(inner, str) else _chosen(inner))]
    return [messages]


def _prompt(prompt: object) -> object:
    """A system prompt as a message; Gemini's is one already, without its role."""
    found = to_fields(prompt) or {}
    if "parts" in found:
        return {**found, "role": "system"}
    return {"role": "system", "content": prompt}


def _chosen(items: Sequence[object]) -> Sequence[object]:
    """The messages of a list; of several answers of a model to one request, the first."""
    found = to_fields(items[0]) or {}
    if "finish_reason" not in found or "role" in found:
        return items
    return [found.get("message") or found.get("content")]


def to_message(item: object) -> Fields | None:
    """An item as the fields of a message: a text is the user's, a pair has its role."""
    if isinstance(item, str):
        return {"role": "user", "content": item}
    return _pair(item) or to_fields(item)


def _pair(item: object) -> dict[str, Any] | None:
    """A role and what was said in it, as a message."""
    match item:
        case [str(role), content] if role in ROLE_NAMES:
            return {"role": role, "content": content}
    return None


def read_item(message: object, origin: str) -> tuple[Item, list[Piece]]:
    """A message taken apart; InvalidArgument where it has no known shape."""
    found = to_message(message)
    shape = found and next((it for it in SHAPES if it.keys <= found.keys()), None)
    if not found or not shape:
        reason = f"{origin} must be a message with role and content, not {shown(message)}"
        raise InvalidArgument(reason, field=origin)
    try:
        item = shape.read(found)
        pieces = list(item.pieces)
    except Unreadable as error:
        field = f"{origin}.content"
        raise InvalidArgument(f"{field} must {error}", field=field) from None
    except RecursionError:
        raise InvalidArgument(f"{origin} must not be nested so deep", field=origin) from None
    return item._replace(rest=_without(item.rest, shape.fields)), pieces


def _without(found: Fields, names: frozenset[str]) -> Fields:
    return {name: value for name, value in found.items() if name not in names}


# Shapes


def _chat(found: Fields) -> Item:
    """OpenAI, Anthropic, Responses and KeMem itself: a role and a content."""
    extra = to_fields(found.get("additional_kwargs")) or {}  # of LangChain and LlamaIndex
    own = {name: value for name, value in found.items() if value is not None or name == "role"}
    found = {**extra, **own} if extra else own
    role = found.get("role", "user")
    return Item(role, _chat_pieces(found, role_of(role)), found)


def _chat_pieces(found: Fields, role: object) -> Iterator[Piece]:
    for key in _THOUGHTS:
        if isinstance(found.get(key), str):
            yield from thought({"text": found[key]})
    content, name = found.get("content"), found.get("name")
    if role == "tool" and (name or found.get("tool_call_id")):
        yield from result({**found, "content": content})
        return
    calls: set[object] = set()
    for piece in read_content(content):
        calls.add(piece.metadata.get("tool_call_id") if piece.kind == "tool_call" else None)
        yield piece
    if found.get("refusal"):
        yield Piece("text", (str(found["refusal"]),), metadata={"refusal": True})
    if audio := to_fields(found.get("audio")):
        yield from read_part({**audio, "type": "audio"})
    # LangChain names a call twice: among the parts and beside them.
    listed = (found.get(key) for key in _CALLS)
    for part in (it for some in listed if isinstance(some, list | tuple) for it in some):
        for piece in call(to_fields(part) or {"name": "tool", "arguments": part}):
            if piece.metadata.get("tool_call_id") not in calls - {None}:
                yield piece
    if (function := to_fields(found.get("function_call"))) and not found.get("tool_calls"):
        yield from call(function)


def role_of(name: object) -> object:
    """The role that a name stands for; whether it is one is checked later."""
    return ROLE_NAMES.get(name, name) if isinstance(name, str) else name


def _typed(found: Fields) -> Item:
    """LangChain's messages, whose type is their role, and other items of the Responses API."""
    kind = found["type"]
    if isinstance(kind, str) and kind in ROLE_NAMES and "content" in found:
        return _chat({**found, "role": kind})
    return Item("assistant", read_part(found), {"id": found.get("id")})


def _stored(found: Fields) -> Item:
    """LangChain's `message_to_dict`."""
    return _typed({"type": found["type"], **(to_fields(found["data"]) or {})})


def _constructor(found: Fields) -> Item:
    """LangChain's `dumpd`."""
    kwargs = to_fields(found["kwargs"]) or {}
    return _typed({"type": "user", **kwargs}) if "role" not in kwargs else _chat(kwargs)


def _parts(found: Fields) -> Item:
    """Gemini: a role and parts."""
    content = found.get("content") or found["parts"]
    return Item(found.get("role") or "user", read_content(content), found)


def _blocks(found: Fields) -> Item:
    """LlamaIndex: a role and blocks."""
    return _chat({**found, "content": found.get("content") or found["blocks"]})


def _pydantic_ai(found: Fields) -> Item:
    """pydantic-ai: requests hold what users, systems and tools say, responses what a model says."""
    role = "user" if found["kind"] == "request" else "assistant"
    rest = {**found, **({"ts": found["timestamp"]} if found.get("timestamp") else {})}
    return Item(role, read_content(found["parts"]), rest)


def _sharegpt(found: Fields) -> Item:
    """ShareGPT: who it is from and its value."""
    if found["from"] == "function_call":
        return Item("tool", call({"name": "function", "arguments": found["value"]}), found)
    return Item(found["from"], read_content(found["value"]), found)


# Fields that are read, or left out: the accounts of a model's server are of no use to a memory.
# Whatever else a message has is kept as metadata.
_CHAT = frozenset(_THOUGHTS) | {
    *("role", "content", "type", "status", "phase", "weight", "withdrawn", "annotations"),
    *("tool_calls", "function_call", "tool_call_id", "refusal", "audio", "logprobs"),
    *("reasoning_details", "thinking_blocks", "usage", "stop_reason", "stop_sequence"),
    *("stop_details", "container", "diagnostics", "cache_control"),
    *("additional_kwargs", "response_metadata", "usage_metadata", "invalid_tool_calls"),
    *("tool_call_chunks", "chunk_position", "example", "artifact"),
}
_OF_PYDANTIC_AI = frozenset(
    {
        *("kind", "parts", "instructions", "timestamp", "usage", "finish_reason", "state"),
        *("model_id", "provider_name", "provider_url", "provider_details", "canonical_system"),
        *("provider_response_id", "workspace_ref", "history_digest", "failed_attempts"),
    }
)
SHAPES: tuple[Shape, ...] = (
    Shape(frozenset({"lc", "kwargs"}), _constructor, _CHAT),
    Shape(frozenset({"type", "data"}), _stored, _CHAT),
    Shape(frozenset({"kind", "parts"}), _pydantic_ai, _OF_PYDANTIC_AI),
    Shape(frozenset({"from", "value"}), _sharegpt, frozenset({"from", "value", "weight"})),
    Shape(frozenset({"parts"}), _parts, frozenset({"role", "parts", "content"})),
    Shape(frozenset({"role", "blocks"}), _blocks, _CHAT | {"blocks"}),
    Shape(frozenset({"role"}), _chat, _CHAT),
    Shape(frozenset({"type"}), _typed, _CHAT),
    Shape(frozenset({"content"}), _chat, _CHAT),
)
