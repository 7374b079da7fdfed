"""Does the recall agent without a model find more evidence than one search at equal k?

python -m bench.recall --data PATH [--datasets locomo,madial-zh] [--queries N] [--save FILE]

PATH is a file of conversations, one user a line as JSON (or gzipped): messages with message_id,
ts, role, speaker, session, content; queries with query, evidence_groups, answerable and until,
before which the question is asked. Both are asked through the public API of a fresh store.
What --save writes, `kemem admin quality FILE` keeps for the dashboard to show over time.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.retrievers import BATCH, given
from bench.scoring import interval, users
from kemem import AsyncMemory
from kemem.records.times import to_micros, to_rfc3339
from kemem.runtime import system_clock
from kemem.settings import load
from kemem.testing import FakeClock
from kemem.text.language import is_chinese

KS = (5, 10)


@dataclass(frozen=True, slots=True)
class Found:
    """One question: the share of its evidence that each way found, and the time it took."""

    dataset: str
    search: tuple[float, ...]  # for each of KS
    recall: tuple[float, ...]
    search_seconds: float
    recall_seconds: float
    language: str = "en"
    category: str = ""


def share(groups: Sequence[Sequence[str]], keys: Sequence[str]) -> tuple[float, ...]:
    """The share of the groups of evidence of which one member is among the first k keys."""
    return tuple(
        sum(not set(group).isdisjoint(keys[:k]) for group in groups) / len(groups) for k in KS
    )


async def ask(memory: AsyncMemory, dataset: str, user_id: str, query: dict[str, Any]) -> Found:
    """One question, asked both ways."""
    groups, text = query["evidence_groups"], query["query"]
    begun = time.perf_counter()
    hits = await memory.search(text, user_id, limit=max(KS))
    between = time.perf_counter()
    recalled = await memory.recall(text, user_id)
    ended = time.perf_counter()
    return Found(
        dataset,
        share(groups, [hit.id for hit in hits]),
        share(groups, recalled.memory_keys),
        between - begun,
        ended - between,
        "zh" if is_chinese(text) else "en",
        str(query.get("category") or ""),
    )


async def measure(user: dict[str, Any], limit: int, seed: int) -> list[Found]:
    """All questions of a user, each asked when only what is older had been said."""
    queries = [it for it in user["queries"] if it["answerable"] and it["evidence_groups"]]
    random.Random(seed).shuffle(queries)
    queries = sorted(queries[:limit], key=lambda it: it["until"] or "~")
    rest = [given(it) for it in sorted(user["messages"], key=lambda it: it["ts"])]
    rest = [it for it in rest if it["content"].strip()]
    found = []
    with tempfile.TemporaryDirectory() as directory:
        settings, clock = load(data_dir=directory, llm="none"), FakeClock(0)
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            for query in queries:
                clock.now = to_micros(query["ts"] or query["until"] or user["messages"][-1]["ts"])
                until = query["until"] or "~"
                size = sum(it["ts"] < until for it in rest)
                for start in range(0, size, BATCH):
                    await memory.ingest(rest[start : min(size, start + BATCH)], "user")
                rest = rest[size:]
                found.append(await ask(memory, user["dataset"], "user", query))
    return found


def report(found: Sequence[Found]) -> Iterator[str]:
    """A line for each data set: recall of one search and of a recall, and the difference."""
    by_set: dict[str, list[Found]] = defaultdict(list)
    for each in found:
        by_set[each.dataset].append(each)
        by_set["all"].append(each)
    yield "| set | n | k | one search | recall agent | difference | 95 % interval | ms | ms |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in sorted(by_set, key=lambda it: (it == "all", it)):
        rows = by_set[name]
        ms = [
            1_000 * sum(getattr(row, which) for row in rows) / len(rows)
            for which in ("search_seconds", "recall_seconds")
        ]
        for at, k in enumerate(KS):
            one = 100 * sum(row.search[at] for row in rows) / len(rows)
            agent = 100 * sum(row.recall[at] for row in rows) / len(rows)
            low, high = interval([100 * (row.recall[at] - row.search[at]) for row in rows])
            yield (
                f"| {name} | {len(rows)} | {k} | {one:.1f} | {agent:.1f} | {agent - one:+.1f} "
                f"| {low:+.1f} … {high:+.1f} | {ms[0]:.0f} | {ms[1]:.0f} |"
            )


def runs(found: Sequence[Found], at: str) -> Iterator[dict[str, Any]]:
    """What was measured on each set and category, as `kemem admin quality` takes it."""
    groups: dict[tuple[str, str, str], list[Found]] = defaultdict(list)
    for each in found:
        for category in {"all", each.category} - {""}:
            groups[each.dataset, each.language, category].append(each)
    for (dataset, language, category), rows in sorted(groups.items()):
        for way in ("search", "recall"):
            metrics = {
                f"recall@{k}": round(sum(getattr(row, way)[place] for row in rows) / len(rows), 4)
                for place, k in enumerate(KS)
            }
            took = sum(getattr(row, f"{way}_seconds") for row in rows) / len(rows)
            yield {
                "at": at,
                "name": way,
                "set": dataset,
                "language": language,
                "category": category,
                "n": len(rows),
                "metrics": {**metrics, "seconds": round(took, 4)},
                "version": version("kemem-memory"),
            }


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of conversations")
    parser.add_argument("--datasets", default="", help="names of sets, separated by commas")
    parser.add_argument("--queries", type=int, default=10_000, help="most questions of a user")
    parser.add_argument("--seed", type=int, default=0, help="which questions, where not all are")
    parser.add_argument("--save", type=Path, help="write the figures, for kemem admin quality")
    chosen = parser.parse_args(arguments)
    found: list[Found] = []
    for user in users(chosen.data, list(filter(None, chosen.datasets.split(",")))):
        found += await measure(user, chosen.queries, chosen.seed)
        print(f"{user['user']}: {len(found)} questions", file=sys.stderr)
    print("\n".join(report(found)))
    if chosen.save:
        kept = list(runs(found, to_rfc3339(system_clock())))
        chosen.save.write_text(json.dumps(kept, ensure_ascii=False, indent=2), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
