"""Does a large space find what an exact search of all its rows does?

python -m bench.candidates --data PATH [--datasets locomo,madial-zh] [--questions 100]
    [--fewer 4]

The file is that of bench.retrieval. The messages of all users go into one space, whose questions
are asked twice: of all rows, and of candidates, as in a space of more than 100,000 rows. There are
as many candidates among these rows as there would be among 100,000, or --fewer times fewer.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.retrieval import Answer, compared
from bench.retrievers import BATCH, USER, given
from bench.scoring import KS, evidence, score, texts, users
from kemem import AsyncMemory
from kemem.records.times import to_micros
from kemem.runtime import system_clock
from kemem.settings import load
from kemem.store import codes, search

User = dict[str, Any]


def pooled(known: Sequence[User], most: int) -> Iterator[User]:
    """Users whose ids of messages and sessions are those of nobody else, with some questions."""
    counts = Counter(it["dataset"] for it in known)
    for number, user in enumerate(known):
        messages = [
            {
                **it,
                "message_id": f"{number}/{it['message_id']}",
                "session": f"{number}/{it['session']}",
            }
            for it in texts(user)
        ]
        queries = [
            {**it, "evidence_groups": [[f"{number}/{id}" for id in group] for group in groups]}
            for it in user["queries"]
            if (groups := it["evidence_groups"]) and it["answerable"]
        ]
        share = -(-most // counts[user["dataset"]])
        yield {**user, "messages": messages, "queries": queries[:: max(1, len(queries) // share)]}


@contextmanager
def on_candidates(rows: int, fewer: float) -> Iterator[None]:
    """Every space is a large one, with its part of what is scored."""
    share = rows / codes.EXACT / fewer
    likely, near = (max(1, round(it * share)) for it in (search._LIKELY, search._NEAREST))
    print(f"{rows:,} rows: {likely:,} scored by words, {near:,} by vectors or 4 for each hit")
    with (
        patch.object(codes, "EXACT", 0),
        patch.object(search, "_LIKELY", likely),
        patch.object(search, "_NEAREST", near),
    ):
        yield


async def answers(directory: str, asking: Sequence[User]) -> list[Answer]:
    """What the space finds, asked by a process that begins with it."""
    now: list[int] = []
    settings = load(data_dir=directory, llm="none")
    found = []
    async with AsyncMemory(settings=settings, clock=lambda: (now or [system_clock()])[0]) as memory:
        for user in asking:
            for query in user["queries"]:
                groups = evidence(query, user["messages"])
                if not groups:
                    continue
                now[:] = [to_micros(query["ts"])] if query.get("ts") else []
                until = query["until"]
                hits = await memory.search(query["query"], USER, limit=max(KS), until=until)
                metrics, name = score(groups, [hit.id for hit in hits]), query["qid"]
                found.append(
                    Answer(user["dataset"], "", "", f"{user['user']} {name}", metrics, 0.0, ())
                )
            print(f"{user['user']}: {len(found)} questions", file=sys.stderr)
    return found


async def fill(directory: str, messages: Sequence[dict[str, Any]]) -> None:
    async with AsyncMemory(settings=load(data_dir=directory, llm="none")) as memory:
        for start in range(0, len(messages), BATCH):
            await memory.ingest([given(it) for it in messages[start : start + BATCH]], USER)
        await memory.run_jobs()


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of conversations")
    parser.add_argument("--datasets", default="", help="names of sets, separated by commas")
    parser.add_argument("--questions", type=int, default=10_000, help="about so many of each set")
    parser.add_argument("--fewer", type=float, default=1, help="divides the number of candidates")
    chosen = parser.parse_args(arguments)
    known = [*users(chosen.data, [*filter(None, chosen.datasets.split(","))])]
    asking = [*pooled(known, chosen.questions)]
    messages = [it for user in asking for it in user["messages"]]
    with tempfile.TemporaryDirectory() as directory:
        await fill(directory, messages)
        exact = await answers(directory, asking)
        with on_candidates(len(messages), chosen.fewer):
            rough = await answers(directory, asking)
    print(*compared(rough, exact), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
