"""A chat model for tests that says what it was told to say."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kemem.ports import Prompt, Schema
from kemem.types import Reply

Scripted = str | Mapping[str, Any] | Sequence[Any] | Exception | Callable[[Prompt], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """What a model was asked."""

    messages: Prompt
    schema: Schema | None


@dataclass(slots=True)
class ScriptedLLM:
    """An LLM that gives its replies in order and remembers what it was asked.

    A text is said as it is, other values as JSON; an exception is raised; a function is given
    the messages and returns any of these.

        ScriptedLLM([{"facts": []}, "no JSON at all", TimeoutError()])
    """

    replies: Sequence[Scripted]
    repeat: bool = False  # begin again after the last reply
    name: str = "scripted"
    calls: list[Call] = field(default_factory=list)

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        """The next reply of the script."""
        turn = len(self.calls)
        self.calls.append(Call(tuple(messages), schema))
        size = len(self.replies)
        if turn >= size and not (size and self.repeat):
            raise RuntimeError(f"the script has only {size} replies, and this is call {turn + 1}")
        said = self.replies[turn % size]
        if callable(said):
            said = said(messages)
        if isinstance(said, Exception):
            raise said
        return Reply(said if isinstance(said, str) else json.dumps(said, ensure_ascii=False))
