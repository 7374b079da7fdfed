"""What chat models are asked and answer."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kemem.errors import Unavailable
from kemem.text.loose_json import parse_json

Prompt = Sequence[Mapping[str, Any]]  # messages as every chat API has them, calls included
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """What a model may call."""

    name: str
    description: str
    parameters: Schema  # a JSON schema of an object

    def to_dict(self) -> dict[str, Any]:
        """The tool as every chat API takes it."""
        function = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**function, "parameters": dict(self.parameters)}}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model wants made."""

    id: str
    name: str
    arguments: str  # JSON as the model wrote it, which may be broken


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered: a text, calls, or both; and what it counted."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False  # it reached its limit of tokens


OnReply = Callable[[float, bool, Reply | None], None]  # seconds, whether it was of use, what came


def check_reply(reply: object) -> Reply:
    """A reply that says or calls something: a model of the user's own may return anything."""
    if not isinstance(reply, Reply) or not (reply.text.strip() or reply.calls):
        raise Unavailable("the LLM answered with nothing")
    texts = [getattr(call, name, None) for call in reply.calls for name in ("name", "arguments")]
    if not all(isinstance(text, str) for text in texts):
        raise Unavailable("the LLM called a tool in a way that cannot be read")
    return reply


def check_calls(reply: object) -> Reply:
    """A reply in a conversation with tools; of one that was cut, the calls that are whole."""
    checked = check_reply(reply)
    if not checked.cut:
        return checked
    whole = tuple(call for call in checked.calls if _is_json(call.arguments))
    if not whole:
        raise cut_short()
    return replace(checked, calls=whole)


def parse_reply(schema: Schema, reply: object) -> Any:
    """The JSON of a reply; of one that was cut, what is complete, if it is some of the schema's."""
    checked = check_reply(reply)
    try:
        answer = parse_json(checked.text, whole=checked.cut)
    except ValueError:
        if checked.cut:
            raise cut_short() from None
        raise Unavailable("the LLM answered with something that is not JSON") from None
    wanted = isinstance(answer, dict) and {*answer} & {*schema.get("required", answer)}
    if checked.cut and not wanted and not isinstance(answer, list):
        raise cut_short()
    return answer


def cut_short() -> Unavailable:
    """The error of an answer that reached its limit of tokens, and of which nothing is of use.

    To ask again would be in vain.
    """
    return Unavailable("the LLM's answer had no end, and nothing of it can be read", cut=True)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
