"""What a real model makes of memory, beside memory without one.

python -m bench.llm [--base-url URL --model NAME] [--cases N] [--threads N]

Without an address it downloads a small open model, verifies it and serves it on loopback. Prompts
and answers are kept for reading.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench.llm.cases import Case, read_cases
from bench.llm.extraction import Tally, choose, extract
from bench.llm.model import NAME, serving
from kemem.backends.llm import OpenAILLM
from kemem.ports import LLM, Prompt, Reply, Schema, Tool

FOLDER = Path("build/llm")
TIMEOUT = 600.0  # seconds for one answer: a processor without an accelerator is slow


class Recorded:
    """A model whose prompts and answers are written down."""

    def __init__(self, llm: LLM, path: Path) -> None:
        self._llm, self._path, self.name = llm, path, llm.name
        self.calls, self.tokens, self.seconds = 0, 0, 0.0

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """What the model answers."""
        begin = time.monotonic()
        reply = await self._llm.reply(messages, schema=schema, tools=tools)
        self.calls, self.seconds = self.calls + 1, self.seconds + time.monotonic() - begin
        self.tokens += reply.prompt_tokens + reply.completion_tokens
        calls = [(it.name, it.arguments) for it in reply.calls]
        line: dict[str, Any] = {"prompt": [*messages], "answer": reply.text, "calls": calls}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        return reply


async def measure(cases: Sequence[Case], llm: LLM | None) -> dict[str, Tally]:
    """The counts of each language."""
    tallies: dict[str, Tally] = {}
    for number, case in enumerate(cases, 1):
        tallies.setdefault(case.language, Tally()).add(await extract(case, llm))
        if llm is not None:
            print(f"\r{number} of {len(cases)} cases", end="", flush=True)
    return tallies


def show(name: str, tallies: dict[str, Tally]) -> None:
    for language, it in sorted(tallies.items()):
        print(
            f"| {name} | {language} | {it.cases} | {_share(it.found, it.gold)} |"
            f" {_share(it.right, it.made)} | {_share(it.dates_right, it.dates)} |"
            f" {_share(it.ended, it.to_end)} | {it.ended_wrongly} | {it.forbidden} |"
        )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} % of {whole}" if whole else "-"


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.llm", description="Judge a model.")
    parser.add_argument("--base-url", help="of a server that speaks OpenAI's protocol")
    parser.add_argument("--model", default=NAME)
    parser.add_argument("--cases", type=int, default=1000, help="of each language, at most")
    parser.add_argument("--threads", type=int, default=1, help="of the server that is started")
    chosen = parser.parse_args()
    cases = choose(read_cases(), chosen.cases)
    FOLDER.mkdir(parents=True, exist_ok=True)
    transcript = FOLDER / "extraction.jsonl"
    transcript.unlink(missing_ok=True)
    without = asyncio.run(measure(cases, None))
    server = nullcontext(chosen.base_url) if chosen.base_url else serving(FOLDER, chosen.threads)
    with server as address:
        llm = OpenAILLM.connect(chosen.model, base_url=address, timeout=TIMEOUT)
        model = Recorded(llm, transcript)
        by_model = asyncio.run(measure(cases, model))
    print("\n\n| facts | | cases | found | right | dates | ended | ended wrongly | made up |")
    print("|---|---|---|---|---|---|---|---|---|")
    show("without a model", without)
    show(chosen.model, by_model)
    each = model.calls or 1
    print(
        f"\n{model.calls} calls, {model.tokens // each} tokens and {model.seconds / each:.1f} s"
        f" each; prompts and answers: {transcript}"
    )


if __name__ == "__main__":
    main()
