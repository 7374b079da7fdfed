"""Test doubles without a network: a chat model, an embedder and a clock."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from secrets import token_hex
from typing import Any, Literal

import numpy as np

from kemem.ports import Prompt, Reply, Schema, Tool, ToolCall
from kemem.records import Matrix, Micros
from kemem.text.segment import is_cjk, search_text

ScriptedAnswer = str | Mapping[str, Any] | Sequence[Any] | ToolCall | Reply
Scripted = ScriptedAnswer | Exception | Callable[[Prompt], Any]


class FakeClock:
    """Time that stands still until it is advanced, so that equal times are common.

    clock = FakeClock(0); clock.advance(seconds=1.5); clock() -> 1_500_000
    """

    def __init__(self, start: Micros) -> None:
        self.now = start

    def __call__(self) -> Micros:
        return self.now

    def advance(self, *, seconds: float) -> None:
        """Move on by some seconds."""
        self.now += round(seconds * 1_000_000)


class HashingEmbedder:
    """A bag of hashed search tokens and CJK pairs: alike means sharing words. For tests only."""

    in_process = True

    def __init__(self, width: int = 64, name: str = "hashing") -> None:
        self.width = width
        self.name = name

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """One row of length 1 for each text, whatever its purpose."""
        return hashed(texts, self.width)


def hashed(texts: Sequence[str], width: int) -> Matrix:
    """A row of length 1 for each text, by its search tokens and CJK pairs."""
    matrix = np.zeros((len(texts), width), np.float32)
    for row, text in zip(matrix, texts, strict=True):
        tokens = search_text(text).split()
        pairs = [one + two for one, two in pairwise(tokens) if is_cjk(one) and is_cjk(two)]
        for feature in [*(tokens or [text]), *pairs]:
            code = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            # Never subtracted: a row cannot cancel to zero.
            row[int.from_bytes(code) % width] += 1
        row /= np.linalg.norm(row)
    return matrix


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
