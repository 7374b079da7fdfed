"""Do votes help on questions like those they were given for, and cost nothing on others?

python -m bench.feedback --data PATH [--datasets madial-zh,madial-en,memorybank-zh]

The file is that of bench.retrieval. Every second question of a user is asked, and voted on as
somebody would who knows the answer: the first hit down if it is no evidence, the best evidence
among the first ten up. Then those questions are asked again in other words (with a request before
them), and the other half as they are. Shown is the mean reciprocal
rank of the evidence before and after the votes, and how many hits were lost from the first ten.
"""

import argparse
import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.scoring import evidence, mean, score, texts, users
from kemem import AsyncMemory
from kemem.settings import load

FIRST = 10  # hits
SETS = "madial-zh,madial-en,memorybank-zh"
ASIDE = {"zh": "请告诉我，", "en": "Please tell me, "}


def reworded(query: str, language: str) -> str:
    """The same question in other words."""
    return ASIDE[language] + query if language == "zh" else ASIDE[language] + query.lower()


async def ask(memory: AsyncMemory, query: str) -> list[str]:
    """Ids of the first hits."""
    return [hit.id for hit in await memory.hybrid_search(query, "u", FIRST)]


async def run(user: Mapping[str, Any], folder: Path) -> dict[str, list[float]]:
    """What one user's questions are worth before and after votes on half of them."""
    messages, language = texts(user), user["lang"]
    asked = [(it["query"], evidence(it, messages)) for it in user["queries"]]
    asked = [(query, groups) for query, groups in asked if groups]
    voted, others = asked[::2], asked[1::2]
    probes = {
        "like": [(reworded(query, language), groups) for query, groups in voted],
        "others": others,
    }
    found = defaultdict[str, list[float]](list)
    async with AsyncMemory(settings=load(data_dir=folder, llm="none")) as memory:
        kept = ("message_id", "ts", "role", "content")
        rows = [
            {name: it[name] for name in kept} | {"session_id": it["session"]} for it in messages
        ]
        for at in range(0, len(rows), 200):
            await memory.ingest(rows[at : at + 200], "u")
        before = await _measure(memory, probes, "before", found)
        for query, groups in voted:
            hits, right = await ask(memory, query), {it for group in groups for it in group}
            if hits and hits[0] not in right:
                await memory.feedback(hits[0], "down", query, "u")
            if best := next((it for it in hits if it in right), None):
                await memory.feedback(best, "up", query, "u")
        after = await _measure(memory, probes, "after", found)
    for name in probes:
        pairs = zip(before[name], after[name], strict=True)
        found[f"{name} lost"] += [float(len({*was} - {*now})) for was, now in pairs]
    return found


async def _measure(
    memory: AsyncMemory,
    probes: Mapping[str, Sequence[tuple[str, list[list[str]]]]],
    when: str,
    found: dict[str, list[float]],
) -> dict[str, list[list[str]]]:
    ranked: dict[str, list[list[str]]] = {}
    for name, questions in probes.items():
        ranked[name] = [await ask(memory, query) for query, _ in questions]
        pairs = zip(ranked[name], questions, strict=True)
        found[f"{name} {when}"] += [100 * score(groups, it)["mrr"] for it, (_, groups) in pairs]
    return ranked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", default=SETS)
    options = parser.parse_args()
    totals = defaultdict[str, defaultdict[str, list[float]]](lambda: defaultdict(list))
    for user in users(options.data, options.datasets.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for name, values in asyncio.run(run(user, Path(folder))).items():
                totals[user["dataset"]][name] += values
    for dataset, values in totals.items():
        for name in ("like", "others"):
            figures = [mean(values[f"{name} {when}"]) for when in ("before", "after", "lost")]
            shown = "{:.1f} -> {:.1f}, hits lost of the first ten: {:.2f}".format(*figures)
            print(f"{dataset} {name}: {len(values[f'{name} before'])} questions, MRR {shown}")


if __name__ == "__main__":
    main()
