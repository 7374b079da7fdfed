"""The model that is judged: how it is reached, and what it answers and costs."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from kemem.ports import LLM, Prompt, Reply, Schema, Tool
from kemem.settings import Settings


class JudgedModel:
    """The model of the settings; what it is asked and answers is written down for reading."""

    def __init__(self, llm: LLM, settings: Settings, transcript: Path) -> None:
        self.name = llm.name
        self.settings = settings
        self.calls, self.tokens, self.seconds = 0, 0, 0.0
        self._llm = llm
        self._transcript = transcript

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """What the model answers."""
        begin = time.monotonic()
        reply = await self._llm.reply(messages, schema=schema, tools=tools)
        calls = [(it.name, it.arguments) for it in reply.calls]
        self.write({"prompt": [*messages], "answer": reply.text, "calls": calls})
        self.count(reply.prompt_tokens + reply.completion_tokens, time.monotonic() - begin)
        return reply

    def write(self, line: object) -> None:
        """Keep what was asked and answered."""
        with self._transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")

    def count(self, tokens: int, seconds: float) -> None:
        """One more call, and its cost."""
        self.calls, self.tokens = self.calls + 1, self.tokens + tokens
        self.seconds += seconds

    def cost(self) -> str:
        """What the calls have cost, in a line."""
        each = self.calls or 1
        return (
            f"{self.calls} calls, {self.tokens // each} tokens and {self.seconds / each:.1f} s"
            f" each; prompts and answers: {self._transcript}"
        )


Row = Mapping[str, str | int]  # by the names of the columns
Suite = Callable[[JudgedModel, int], Awaitable[list[Row]]]  # with at most so many cases


def table(rows: Sequence[Row]) -> str:
    """Rows for people, in Markdown."""
    names = [*rows[0]]
    lines = [names, ["---"] * len(names), *([str(row[it]) for it in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def share(part: int, whole: int) -> str:
    """A share and of how many, as in "75 % of 20".

    >>> share(15, 20), share(0, 0)
    ('75 % of 20', '-')
    """
    return f"{100 * part / whole:.0f} % of {whole}" if whole else "-"
