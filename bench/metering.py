"""What does metering cost a search?

python -m bench.metering [--messages N] [--searches N]

A server counts each request, and writes what it counted every ten seconds: of a search that is the
time of one count, and its share of a write. No model is loaded, so that searches are as fast as
they can be, and metering weighs as much as it can.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from statistics import median

from bench.corpus import SEED, Words
from bench.phrases import CHINESE, ENGLISH, QUESTIONS
from kemem import AsyncMemory
from kemem.serve.telemetry.metrics import Metrics
from kemem.settings import load

BETWEEN_WRITES = 10.0  # seconds
OPERATIONS = 30  # that a busy minute has
COUNTS = 100_000
WRITES = 50
GOAL = 0.02


async def timed(work: Callable[[int], Awaitable[object]], times: int) -> float:
    """The median of the seconds that some work takes."""
    taken = []
    for number in range(times):
        begun = time.perf_counter()
        await work(number)
        taken.append(time.perf_counter() - begun)
    return median(taken)


def count_many(metrics: Metrics) -> float:
    """Seconds of one count."""
    begun = time.perf_counter()
    for number in range(COUNTS):
        seconds = 0.0001 * (number % 5_000)
        metrics.count_request("/v1", f"operation_{number % OPERATIONS}", "POST", 200, seconds)
    return (time.perf_counter() - begun) / COUNTS


async def compare(messages: int, searches: int) -> None:
    """Print what a search takes, what metering adds to it, and the ratio."""
    words = Words(random.Random(SEED))
    said = [{"content": text.format_map(words)} for text in (CHINESE + ENGLISH) * (messages // 16)]
    questions = [QUESTIONS[at % len(QUESTIONS)].format_map(words) for at in range(searches)]
    with tempfile.TemporaryDirectory() as directory:
        async with AsyncMemory(settings=load(data_dir=directory, embedder="none")) as memory:
            await memory.ingest(said, "u")
            metrics = Metrics(memory)

            async def search(at: int) -> None:
                await memory.search(questions[at], user_id="u", limit=10, kinds=["message"])

            async def write(at: int) -> None:
                metrics.count(f"operation_{at % OPERATIONS}", 0.001)
                await metrics.flush()

            await timed(search, 10)
            alone = await timed(search, searches)
            counting = count_many(metrics)
            writing = await timed(write, WRITES)
    added = counting + writing * alone / BETWEEN_WRITES
    print(f"search  {alone * 1e3:8.3f} ms, of {len(said)} messages")
    print(f"count   {counting * 1e3:8.4f} ms")
    print(f"write   {writing * 1e3:8.3f} ms, every {BETWEEN_WRITES:g} s")
    print(f"metered {(alone + added) * 1e3:8.3f} ms, {added / alone:.2%} more (goal: {GOAL:.0%})")


def main() -> None:
    """Measure as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--searches", type=int, default=300)
    asked = parser.parse_args()
    asyncio.run(compare(asked.messages, asked.searches))


if __name__ == "__main__":
    main()
