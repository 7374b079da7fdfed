"""Builds and measures the stores of `bench.compare` with whichever kemem is on the path."""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from kemem import Memory
from kemem.settings import load
from kemem.testing import HashingEmbedder

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
VOCABULARY = 5_000  # words of each language; like those of real texts, few are common, most rare
FACTS = (
    "我住在{city}，不吃辣。",
    "I moved to {city} and work at {firm}.",
    "我妹妹在{firm}上班，她喜欢{thing}。",
    "My brother Tom likes {thing}, and I am allergic to {other}.",
)
CITIES = ("北京", "上海", "Oslo", "Rome", "Lima", "成都")
FIRMS = ("Siemens", "华为", "Acme", "字节跳动")
THINGS = ("jazz", "篮球", "peanuts", "摄影", "chess", "茶")


def memory(directory: Path, embedder: HashingEmbedder | None = None) -> Memory:
    """A memory without an LLM; without an embedder, the local one."""
    return Memory(settings=load(data_dir=directory, llm="none"), embedder=embedder)


@cache
def vocabulary(zh: bool) -> tuple[list[str], list[float]]:
    """Made-up words with their frequencies, which follow Zipf's law."""
    chance = random.Random(5)
    characters = [chr(code) for code in range(0x4E00, 0x5600)]
    syllables = [first + second for first in "bdfgklmnprstvw" for second in "aeiou"]
    words = [
        "".join(chance.choices(characters, k=2) if zh else chance.choices(syllables, k=3))
        for _ in range(VOCABULARY)
    ]
    return words, list(accumulate(1 / (rank + 2) for rank in range(VOCABULARY)))


def draw(chance: random.Random, zh: bool, count: int) -> str:
    """Words of one language as a text."""
    words, frequencies = vocabulary(zh)
    return ("" if zh else " ").join(chance.choices(words, cum_weights=frequencies, k=count))


def talk(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Messages of one session in both languages, each with an id and a time."""
    chance = random.Random(seed)
    for number in range(count):
        yield {
            "role": ("user", "assistant")[number % 2],
            "content": f"{number} {draw(chance, chance.random() < 0.5, 12)}",
            "message_id": f"m{seed}_{number}",
            "ts": (BEGINNING + timedelta(seconds=number)).isoformat(),
        }


def ingest(store: Memory, user_id: str, count: int, seed: int, session_id: str = "s") -> None:
    """A user's messages, in batches."""
    messages = list(talk(count, seed))
    for start in range(0, count, 1_000):
        store.ingest(messages[start : start + 1_000], user_id, session_id=session_id)


def build(home: Path, sizes: dict[str, int]) -> dict[str, float]:
    """The stores of all scenarios."""
    with memory(home / "search", HashingEmbedder()) as store:
        ingest(store, "u10k", sizes["10k"], 1)
        ingest(store, "u100k", sizes["100k"], 2)
    with memory(home / "delete", HashingEmbedder()) as store:
        ingest(store, "others", sizes["40k"], 3)
    with memory(home / "context", HashingEmbedder()) as store:
        ingest(store, "u", sizes["10k"], 4)
        store.summarize("s", "u")
    return {}


def measure(home: Path, sizes: dict[str, int]) -> dict[str, float]:
    """The median of each scenario in this process, in milliseconds."""
    chance = random.Random(time.time_ns())
    queries = [draw(chance, at % 2 == 0, 3) for at in range(40)]
    times: dict[str, float] = {}
    with memory(home / "search", HashingEmbedder()) as store:
        store.health()  # opens it
        begun = time.perf_counter()
        store.search(queries[0], "u100k", limit=10)
        times["first search, cold user of 100k"] = (time.perf_counter() - begun) * 1000
        for user in ("u10k", "u100k"):
            times[f"search, user of {user[1:]}"] = timed(
                lambda at, user=user: store.search(queries[at], user, limit=10), 20
            )
        times["recall by rules, user of 10k"] = timed(
            lambda at: store.recall(f"What about {queries[at]}?", "u10k"), 6
        )
    with memory(home / "delete", HashingEmbedder()) as store:
        users = [f"d{time.time_ns()}_{at}" for at in range(8)]
        ids = [store.ingest(f"gone {user}", user).inserted[0] for user in users]
        times["delete in a store of 40k"] = timed(
            lambda at: store.delete(ids[at], user_id=users[at]), len(ids)
        )
    with memory(home / "context", HashingEmbedder()) as store:
        times["context of a session of 10k"] = timed(lambda at: store.context("s", "u"), 5)
    with memory(home / f"add{time.time_ns()}") as store:
        store.add("hello", "warm")
        times["add by rules, local embedder"] = timed(
            lambda at: store.add(_sentence(chance), f"u{at % 5}"), 30
        )
    return times


def _sentence(chance: random.Random) -> str:
    return chance.choice(FACTS).format(
        city=chance.choice(CITIES),
        firm=chance.choice(FIRMS),
        thing=chance.choice(THINGS),
        other=chance.choice(THINGS),
    )


def timed(work: Callable[[int], object], count: int) -> float:
    """The median time of one call, the first one left out."""
    times = []
    for at in range(count):
        begun = time.perf_counter()
        work(at)
        times.append((time.perf_counter() - begun) * 1000)
    return median(times[1:])


if __name__ == "__main__":
    command, directory, numbers = sys.argv[1:]
    work = {"build": build, "measure": measure}[command]
    print(json.dumps(work(Path(directory), json.loads(numbers))))
