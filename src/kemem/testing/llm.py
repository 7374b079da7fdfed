"""A chat model for tests that replies from a script."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from kemem.ports import Prompt, Reply, Schema, Tool, ToolCall

ScriptedAnswer = str | Mapping[str, Any] | Sequence[Any] | ToolCall | Reply
Scripted = ScriptedAnswer | Exception | Callable[[Prompt], Any]


def calling(name: str, /, **arguments: Any) -> ToolCall:
    """A call for a script, with an id of its own.  calling("search", query="茶")"""
    return ToolCall(f"call_{token_hex(6)}", name, json.dumps(arguments, ensure_ascii=False))


def scripted_reply(answer: ScriptedAnswer) -> Reply:
    """An answer of a script as a reply: a text as it is, calls, other values as JSON."""
    match answer:
        case Reply():
            return answer
        case str():
            return Reply(answer)
        case ToolCall():
            return Reply("", calls=(answer,))
        case [ToolCall() as first, *rest]:
            return Reply("", calls=(first, *rest))
    return Reply(json.dumps(answer, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Call:
    """What a model was asked."""

    messages: Prompt
    schema: Schema | None
    tools: tuple[Tool, ...] = ()


@dataclass(slots=True)
class ScriptedLLM:
    """An LLM that gives its replies in order and remembers what it was asked.

    A text is said as it is, a call or a list of calls is called, a `Reply` has both, other values
    are said as JSON; an exception is raised; a function is given the messages and returns any of
    these.

        ScriptedLLM([{"facts": []}, "no JSON at all", TimeoutError()])
        ScriptedLLM([[calling("search", query="茶"), calling("now")], "你喜欢绿茶。"])
    """

    replies: Sequence[Scripted]
    repeat: bool = False  # begin again after the last reply
    name: str = "scripted"
    calls: list[Call] = field(default_factory=list)

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """The next reply of the script."""
        turn = len(self.calls)
        self.calls.append(Call(tuple(messages), schema, tuple(tools)))
        size = len(self.replies)
        if turn >= size and not (size and self.repeat):
            raise RuntimeError(f"the script has only {size} replies, and this is call {turn + 1}")
        answer = self.replies[turn % size]
        if callable(answer):
            answer = answer(messages)
        if isinstance(answer, Exception):
            raise answer
        return scripted_reply(answer)
