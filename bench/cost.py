"""What does a search cost, stage by stage, and how much memory does a server take?

python -m bench.cost --data PATH [--messages 10000] [--queries 200]

The file is that of bench.retrieval; its conversations, in both languages in turn, become those of
one user. Times are those of the processor, whichever thread it works for, with the embedding of the
question. The memory is that of a server after it has answered all questions.
"""

import argparse
import asyncio
import inspect
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import httpx

from bench.environment import kemem_environment
from bench.retrievers import BATCH, USER, given
from bench.scoring import users
from kemem import AsyncMemory
from kemem.ports import Deps
from kemem.settings import load
from kemem.store.store import SqlStore

recipe = import_module("kemem.search.recipe")  # its package has a function of that name
PATIENCE = 60.0  # seconds until a server answers


def material(path: Path, most: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Messages and questions of short conversations, one user after the other."""
    messages: list[dict[str, Any]] = []
    questions: list[str] = []
    for user in users(path, ["locomo", "kdconv-zh"]):
        for it in user["messages"]:
            if it["content"].strip():
                session = f"{user['user']} {it['session']}"[-64:]
                messages.append(
                    {**given(it), "message_id": f"{len(messages)}", "session_id": session}
                )
        questions += [it["query"] for it in user["queries"]]
    random.Random(0).shuffle(questions)
    return messages[:most], questions


class Watch:
    """Measures stages by name, which run one at a time."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    def stage(self, name: str, call: Any) -> Any:
        if not inspect.iscoroutinefunction(call):
            return lambda *given, **named: self._done(
                name, time.process_time(), call(*given, **named)
            )

        async def timed(*given: Any, **named: Any) -> Any:
            return self._done(name, time.process_time(), await call(*given, **named))

        return timed

    def _done(self, name: str, begun: float, answer: Any) -> Any:
        self.spent[name] += time.process_time() - begun
        return answer


STAGES = (
    (recipe, "understand", "understand the question"),
    (Deps, "embed", "embed it"),
    (SqlStore, "search", "read the store and fuse"),
    (recipe, "_in_order", "judge, and leave out repeats"),
    (recipe, "present", "mark what matches"),
)


@contextmanager
def watched() -> Iterator[Watch]:
    """The stages of a search, each with a clock."""
    watch = Watch()
    with ExitStack() as stack:
        for owner, name, stage in STAGES:
            timed = watch.stage(stage, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, timed))
        yield watch


async def costs(
    ask: Callable[[str], Awaitable[object]], questions: Sequence[str]
) -> dict[str, list[float]]:
    """Milliseconds of the processor for each question: all, and each stage."""
    found: dict[str, list[float]] = defaultdict(list)
    for question in questions:
        with watched() as watch:
            begun = time.process_time()
            await ask(question)
            watch.spent["all"] = time.process_time() - begun
        watch.spent["the rest"] = 2 * watch.spent["all"] - sum(watch.spent.values())
        for name, seconds in watch.spent.items():
            found[name].append(1_000 * seconds)
    return found


async def measure(directory: str, messages: list[dict[str, Any]], questions: list[str]) -> None:
    async with AsyncMemory(settings=load(data_dir=directory, llm="none")) as memory:
        begun = time.perf_counter()
        for start in range(0, len(messages), BATCH):
            await memory.ingest(messages[start : start + BATCH], USER)
        await memory.run_jobs()
        rate = len(messages) / (time.perf_counter() - begun)
        print(f"ingest with embedding: {rate:,.0f} messages/s\n")
        ways: dict[str, Callable[[str], Awaitable[object]]] = {
            "hybrid_search": lambda text: memory.hybrid_search(text, USER),
            "search": lambda text: memory.search(text, USER, limit=10),
        }
        await ways["search"](questions[-1])
        half = len(questions) // 2  # none twice: it would be embedded once
        for (name, ask), asked in zip(
            ways.items(), (questions[:half], questions[half:]), strict=True
        ):
            found = await costs(ask, asked)
            whole = sorted(found.pop("all"))
            p95 = whole[int(0.95 * len(whole))]
            print(f"{name}: {median(whole):.1f} ms at the median, {p95:.1f} at 95 %")
            for stage, spent in sorted(found.items(), key=lambda each: -median(each[1])):
                print(f"  {stage}: {median(spent):.1f}")


def serve(directory: str, questions: Sequence[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kemem = str(Path(sys.executable).with_name("kemem"))
    command = [kemem, "serve", "--port", str(port), "--data-dir", directory]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        command, env=kemem_environment(), stdout=nowhere, stderr=nowhere
    ) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                _wait(client)
                for text in questions:
                    asked = {"query": text, "user_id": USER, "limit": 10}
                    client.post("/v1/memories/search", json=asked).raise_for_status()
            status = Path(f"/proc/{process.pid}/status").read_text()
            (line,) = [it for it in status.splitlines() if it.startswith("VmRSS")]
            print(
                f"\nserver after {len(questions)} searches: {int(line.split()[1]) / 1024:.0f} MiB"
            )
        finally:
            process.terminate()


def _wait(client: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            client.get("/readyz").raise_for_status()
            return
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of conversations")
    parser.add_argument("--messages", type=int, default=10_000, help="messages of the user")
    parser.add_argument("--queries", type=int, default=400, help="half of them for each way")
    chosen = parser.parse_args(arguments)
    messages, questions = material(chosen.data, chosen.messages)
    print(f"{len(messages):,} messages of one user")
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(directory, messages, questions[: chosen.queries]))
        serve(directory, questions[: chosen.queries])


if __name__ == "__main__":
    main()
