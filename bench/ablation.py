"""What does each stage of search gain, and what does it cost?

python -m bench.ablation --data PATH [--datasets locomo,madial-zh] [--queries N] [--processes N]

The file is that of bench.retrieval. Every question is asked of the same store with all stages, and
then with one of them switched off; the cost is the time of the processor, with the embedding.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.retrievers import RETRIEVERS
from bench.scoring import MAIN, interval, mean, score, users
from kemem.backends import local
from kemem.ports import Deps
from kemem.records import Micros, Row
from kemem.search import fuse, judge, recipe, understand
from kemem.search.features import Candidate
from kemem.search.hops import Hop
from kemem.search.understand import ParsedQuery
from kemem.text import conversation, rank

Switch = tuple[Any, str, object]  # a module, one of its names, and the value that switches it off
METRICS = (MAIN, "hit@1")


def as_ranked(
    question: object, meant: judge.Meant, candidates: Sequence[Candidate], among: int
) -> judge.Judgement:
    """The scores of the signals before the judge."""
    return judge.Judgement(0.5, np.array([it.score for it in candidates]))


async def no_hops(
    query: ParsedQuery, rows: Sequence[Row], now: Micros, deps: Deps | None
) -> Sequence[Hop]:
    """No name is followed."""
    return ()


NO_CONTEXT: tuple[Switch, ...] = (
    (conversation, "NEAR", (conversation.WHOLE,) * len(conversation.NEAR)),
    *((conversation, name, 0.0) for name in ("SESSION", "OPENING", "TOPIC")),
)
NO_OPENING: tuple[Switch, ...] = tuple(
    (conversation, name, conversation.SESSION) for name in ("OPENING", "TOPIC")
)
NO_ASKING: tuple[Switch, ...] = ((rank, "_ASKING", 1.0),)
NO_SPEAKER: tuple[Switch, ...] = ((rank, "_NAMED", 0.0),)
NO_TURNS: tuple[Switch, ...] = ((understand, "asked_in", lambda text: text),)
NO_GOING_ON: tuple[Switch, ...] = ((understand, "goes_on", lambda text: False),)
NO_PARTS: tuple[Switch, ...] = ((understand, "MAX_PARTS", 0),)
NO_LABELS: tuple[Switch, ...] = ((understand, "_TURNS", sys.maxsize),)
NO_TIME: tuple[Switch, ...] = ((fuse, "IN_TIME", 0.0),)
NO_MEANING: tuple[Switch, ...] = ((fuse, "WORDS", 1.0), (fuse, "NEAREST", 0))
NO_CURVE: tuple[Switch, ...] = ((fuse, "CURVE", 1.0),)
NO_NEAREST: tuple[Switch, ...] = ((fuse, "NEAREST", 0),)
NO_JUDGE: tuple[Switch, ...] = ((recipe, "judge", as_ranked),)
NO_LARGE: tuple[Switch, ...] = ((judge, "_share", lambda *_: 1.0),)
NO_READER: tuple[Switch, ...] = ((recipe, "read_together", lambda _, __, scores: scores),)
NO_HOPS: tuple[Switch, ...] = ((recipe, "hops_from", no_hops),)
STAGES: dict[str, tuple[Switch, ...]] = {
    "all stages": (),
    "without words of neighbouring messages": NO_CONTEXT,
    "without the bonus for session openers": NO_OPENING,
    "without answers before questions": NO_ASKING,
    "without speakers": NO_SPEAKER,
    "without taking questions out of turns": NO_TURNS,
    "without continuing a conversation": NO_GOING_ON,
    "without parts of a question": NO_PARTS,
    "without parsing transcripts": NO_LABELS,
    "without time expressions": NO_TIME,
    "without vectors": NO_MEANING,
    "without less for few words": NO_CURVE,
    "without the nearest among those judged": NO_NEAREST,
    "without the judge": NO_JUDGE,
    "without the judge of large memories": NO_LARGE,
    "without the local reranker": NO_READER,
    "without a second hop": NO_HOPS,
    "own words and vectors only": (
        *NO_CONTEXT,
        *NO_ASKING,
        *NO_SPEAKER,
        *NO_TURNS,
        *NO_GOING_ON,
        *NO_PARTS,
        *NO_LABELS,
        *NO_TIME,
        *NO_CURVE,
        *NO_JUDGE,
        *NO_READER,
        *NO_HOPS,
    ),
}

Found = dict[tuple[str, str], list[float]]  # by metric and stage, question by question
Costs = dict[str, list[float]]  # by stage, in milliseconds


@contextmanager
def switched(off: Sequence[Switch]) -> Iterator[None]:
    """Other values for a while."""
    with ExitStack() as stack:
        for module, name, value in off:
            stack.enter_context(patch.object(module, name, value))
        yield


def measured(most: int, user: Mapping[str, Any]) -> tuple[Found, Costs]:
    """Ask the questions of one user, in a process of their own."""
    return asyncio.run(measure(user, most))


async def measure(user: Mapping[str, Any], most: int) -> tuple[Found, Costs]:
    """What is found without each stage, and its cost."""
    messages = [it for it in user["messages"] if it["content"].strip()]
    queries = [it for it in user["queries"] if it["answerable"] and it["evidence_groups"]]
    random.Random(0).shuffle(queries)
    found: Found = defaultdict(list)
    costs: Costs = defaultdict(list)
    async with RETRIEVERS["kemem"](messages) as ask:
        for query in queries[:most]:
            for name, off in STAGES.items():
                local._recent.clear()  # or a question would be embedded once for all stages
                with switched(off):
                    begun = time.process_time()
                    hits = await ask(query, 10)
                    costs[name].append(1_000 * (time.process_time() - begun))
                metrics = score(query["evidence_groups"], [it for it, _ in hits])
                for metric in METRICS:
                    found[metric, name].append(100 * metrics[metric])
    return found, costs


def report(
    metric: str, by_set: Mapping[str, Found], costs: Mapping[str, list[float]]
) -> Iterator[str]:
    """A line for each stage: a metric by set, what its absence changes on average, and its cost."""
    whole, *_ = STAGES
    recalls = {name: {it: by_set[it][metric, name] for it in by_set} for name in STAGES}
    sets = [*by_set]
    yield f"| {metric} | " + " | ".join(sets) + " | mean | gain, 95 % interval | ms |"
    yield "|---" * (len(sets) + 4) + "|"
    for name in STAGES:
        means = [mean(recalls[name][it]) for it in sets]
        gains = [
            before - after
            for it in sets
            for before, after in zip(recalls[whole][it], recalls[name][it], strict=True)
        ]
        low, high = interval(gains)
        gain = "" if name == whole else f"{mean(gains):+.1f} ({low:+.1f} … {high:+.1f})"
        yield (
            f"| {name} | "
            + " | ".join(f"{it:.1f}" for it in means)
            + f" | {mean(means):.1f} | {gain} | {median(costs[name]):.1f} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of conversations")
    parser.add_argument("--datasets", default="", help="names of sets, separated by commas")
    parser.add_argument("--queries", type=int, default=20, help="most questions of a user")
    parser.add_argument("--processes", type=int, default=1, help="how many ask at the same time")
    chosen = parser.parse_args(arguments)
    for name in ("queries", "processes"):
        if (number := getattr(chosen, name)) < 1:
            parser.error(f"--{name} must be 1 or more, not {number}")
    members = [*users(chosen.data, list(filter(None, chosen.datasets.split(","))))]
    members.sort(key=lambda it: -len(it["messages"]))  # so that no process waits for a long one
    by_set: dict[str, Found] = defaultdict(lambda: defaultdict(list))
    costs: Costs = defaultdict(list)
    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        answers = pool.map(partial(measured, chosen.queries), members)
        for user, (found, took) in zip(members, answers, strict=True):
            for key, values in found.items():
                by_set[user["dataset"]][key] += values
            for name in STAGES:
                costs[name] += took[name]
            print(f"{user['user']}: {len(costs[name])} questions", file=sys.stderr)
    for metric in METRICS:
        print(*report(metric, by_set, costs), "", sep="\n")


if __name__ == "__main__":
    main()
