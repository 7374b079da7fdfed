"""What chat models are asked and answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


OnReply = Callable[[float, bool, Reply | None], None]  # seconds, whether it was of use, what came


def check_reply(reply: object) -> Reply:
    """A reply that says or calls something: a model of the user's own may return anything."""
    if not isinstance(reply, Reply) or not (reply.text.strip() or reply.calls):
        raise Unavailable("the LLM answered with nothing")
    texts = [getattr(call, name, None) for call in reply.calls for name in ("name", "arguments")]
    if not all(isinstance(text, str) for text in texts):
        raise Unavailable("the LLM called a tool in a way that cannot be read")
    return reply


def parse_reply(reply: object) -> Any:
    try:
        return parse_json(check_reply(reply).text)
    except ValueError:
        raise Unavailable("the LLM answered with something that is not JSON") from None
