"""Do the tuned numbers of a search serve conversations that they were not tuned on?

Each number of NUMBERS is tried with a few values while the others are as shipped. For every set
the values are chosen on the other sets alone, and all its questions are asked with them: that is
what a user may expect whose conversations nobody has seen. Sets that are one in two languages
(madial-en, madial-zh) are left out together. Sets of another file may help to choose. What ships
was itself chosen on these sets, so a number that is not in the list still gains by it.
"""

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from multiprocessing import get_context
from typing import Any, NamedTuple

from bench.ablation import (
    NO_ASKING,
    NO_CURVE,
    NO_NEAREST,
    NO_OPENING,
    NO_READER,
    NO_SPEAKER,
    Switch,
    switched,
)
from bench.retrievers import RETRIEVERS, Ask, Query
from bench.scoring import JUDGED, MAIN, evidence, interval, mean, score, texts, with_interval
from kemem.search import fuse, reader
from kemem.text import continuation, conversation, rank

CHOSEN_BY = (MAIN, "ndcg@10")
SHIPPED = "shipped"

User = Mapping[str, Any]
Picks = Mapping[str, str]  # names of numbers, and of the values that they have


def _near(steps: int) -> tuple[Switch, ...]:
    return ((conversation, "NEAR", tuple(steps + it for it in conversation.NEAR)),)


# The values of each number by their names, the simplest first: it is taken where two are as good.
NUMBERS: Mapping[str, Mapping[str, Sequence[Switch]]] = {
    "openers (OPENING, TOPIC)": {"off": NO_OPENING, SHIPPED: ()},
    "who is named (_NAMED)": {"off": NO_SPEAKER, "0.06": ((rank, "_NAMED", 0.06),), SHIPPED: ()},
    "what asks (_ASKING)": {
        "off": NO_ASKING,
        "0.9": ((rank, "_ASKING", 0.9),),
        SHIPPED: (),
        "0.7": ((rank, "_ASKING", 0.7),),
    },
    "session (SESSION)": {
        "off": ((conversation, "SESSION", 0.0),),
        "0.06": ((conversation, "SESSION", 0.06),),
        SHIPPED: (),
        "0.2": ((conversation, "SESSION", 0.2),),
    },
    "words near (NEAR)": {
        "off": _near(conversation.WHOLE),
        "× 0.5": _near(conversation.HALF),
        SHIPPED: (),
        "× 1.3": _near(-6),
    },
    "words against meaning (WORDS)": {
        "words only": ((fuse, "WORDS", 1.0),),
        "0.5": ((fuse, "WORDS", 0.5),),
        "0.65": ((fuse, "WORDS", 0.65),),
        SHIPPED: (),
    },
    "few words (CURVE)": {
        "off": NO_CURVE,
        SHIPPED: (),
        "1.6": ((fuse, "CURVE", 1.6),),
    },
    "nearest in meaning (NEAREST)": {
        "off": NO_NEAREST,
        "10": ((fuse, "NEAREST", 10),),
        SHIPPED: (),
    },
    "sentences that ask (PARTS)": {
        "off": ((fuse, "PARTS", 0.0),),
        "0.2": ((fuse, "PARTS", 0.2),),
        "0.4": ((fuse, "PARTS", 0.4),),
        SHIPPED: (),
        "0.8": ((fuse, "PARTS", 0.8),),
    },
    "sessions by meaning (USUAL)": {
        "off": ((continuation, "USUAL", 0.0),),
        "0.5": ((continuation, "USUAL", 0.5),),
        SHIPPED: (),
    },
    "what is new (FRESH)": {
        "off": ((continuation, "FRESH", 0.0),),
        SHIPPED: (),
        "0.1": ((continuation, "FRESH", 0.1),),
    },
    "what the user said (OWN)": {
        "off": ((continuation, "OWN", 0.0),),
        SHIPPED: (),
        "0.06": ((continuation, "OWN", 0.06),),
    },
    "what is running (RUNNING)": {
        "off": ((continuation, "RUNNING", 1.0),),
        "0.5": ((continuation, "RUNNING", 0.5),),
        SHIPPED: (),
    },
    "words of what goes on (CONTINUED)": {
        "as others": ((fuse, "CONTINUED", fuse.WORDS),),
        "0.65": ((fuse, "CONTINUED", 0.65),),
        SHIPPED: (),
        "0.45": ((fuse, "CONTINUED", 0.45),),
    },
    "local reranker (SAY)": {
        "off": NO_READER,
        "0.1": ((reader, "SAY", 0.1),),
        SHIPPED: (),
        "0.3": ((reader, "SAY", 0.3),),
    },
}


class Asking(NamedTuple):
    """Questions to ask of one user's messages, each with some choices of values."""

    user: User
    queries: Sequence[Query]
    picks: Sequence[Picks]


class Trial(NamedTuple):
    """A question that was asked, and its metrics with each choice of values, in %."""

    dataset: str
    metrics: Sequence[Mapping[str, float]]


def trials_of(asking: Asking) -> list[Trial]:
    """Ask the questions of one user, in a process of their own."""
    return asyncio.run(ask_all(asking))


async def ask_all(asking: Asking) -> list[Trial]:
    """Ask the questions of one user."""
    user, messages, trials = asking.user, texts(asking.user), list[Trial]()
    async with RETRIEVERS["kemem"](messages) as ask:
        for query in asking.queries:
            groups, rows = evidence(query, messages), []
            for picks in asking.picks:
                changed = chain.from_iterable(NUMBERS[it][value] for it, value in picks.items())
                rows.append(await metrics_of(query, groups, ask, [*changed]))
            trials.append(Trial(user["dataset"], rows))
    print(f"{user['user']}: {len(trials)} questions", file=sys.stderr)
    return trials


async def metrics_of(
    query: Query, groups: Sequence[Sequence[str]], ask: Ask, switches: Sequence[Switch]
) -> dict[str, float]:
    """What the answer to a question is worth with some numbers changed, in %."""
    with switched(switches):
        hits = await ask(query, 10)
    return {name: 100 * it for name, it in score(groups, [it for it, _ in hits]).items()}


@dataclass(frozen=True, slots=True)
class Chooser:
    """The questions that values are chosen by, asked with every value of every number."""

    trials: Sequence[Trial]

    @property
    def sets(self) -> list[str]:
        return [*dict.fromkeys(it.dataset for it in self.trials)]

    def values(self, at: int, name: str, metric: str) -> list[float]:
        """One metric of the questions of a set with the choice at a place of CHOICES."""
        return [it.metrics[at][metric] for it in self.trials if it.dataset == name]

    def without(self, name: str) -> dict[str, str]:
        """The value of each number that is best on the sets of other families."""
        others: dict[str, list[str]] = defaultdict(list)
        for other in self.sets:
            if family(other) != family(name):
                others[family(other)].append(other)

        def worth(number: str, value: str) -> float:
            at = place(number, value)
            by_family = (
                mean([mean(self.values(at, it, metric)) for it in own for metric in CHOSEN_BY])
                for own in others.values()
            )
            return round(mean([*by_family]), 6)

        return {
            number: max(values, key=lambda value: worth(number, value))
            for number, values in NUMBERS.items()
        }


def choices() -> list[Picks]:
    """What is tried: all as shipped, then each other value of each number alone."""
    changed = (
        {number: value}
        for number, values in NUMBERS.items()
        for value in values
        if value != SHIPPED
    )
    return [{}, *changed]


def place(number: str, value: str) -> int:
    """Where a value stands among the choices."""
    return 0 if value == SHIPPED else choices().index({number: value})


def family(dataset: str) -> str:
    """A set without its language.  madial-zh -> madial"""
    return dataset.partition("-")[0]


def sampled(users: Sequence[User], most: int) -> list[tuple[User, list[Query]]]:
    """Up to `most` questions of each set that have an answer, spread over its users."""
    by_set: dict[str, list[User]] = defaultdict(list)
    for user in users:
        by_set[user["dataset"]].append(user)
    some = []
    for members in by_set.values():
        queues = list[list[tuple[int, Query]]]()
        for at, user in enumerate(members):
            queries = _answerable(user)
            random.Random(0).shuffle(queries)
            queues.append([(at, query) for query in queries])
        in_turn = (it for turn in zip_longest(*queues) for it in turn if it)
        chosen: dict[int, list[Query]] = defaultdict(list)
        for at, query in islice(in_turn, most):
            chosen[at].append(query)
        some += [(members[at], queries) for at, queries in chosen.items()]
    return some


def _answerable(user: User) -> list[Query]:
    """The questions of a user that have an answer."""
    messages = texts(user)
    return [it for it in user["queries"] if evidence(it, messages)]


async def leave_one_out(
    users: Iterable[User], helpers: Iterable[User], most: int, processes: int
) -> Iterator[str]:
    """The tables: values are chosen by up to `most` questions a set, and all are asked with them.

    The sets of `helpers` help to choose, and are not reported.
    """
    members = [*users]
    sets = {it["dataset"] for it in members}
    everyone = [*members, *(it for it in helpers if it["dataset"] not in sets)]
    if len({family(it["dataset"]) for it in everyone}) < 2:
        names = ", ".join(dict.fromkeys(it["dataset"] for it in everyone))
        raise SystemExit(f"leaving one set out takes two or more, not {names}")
    some = [Asking(user, queries, choices()) for user, queries in sampled(everyone, most)]
    chooser = Chooser(await _asked(some, processes))
    chosen = {name: chooser.without(name) for name in chooser.sets if name in sets}
    every = [Asking(it, _answerable(it), [chosen[it["dataset"]], {}]) for it in members]
    return chain(report(await _asked(every, processes)), [""], report_numbers(chooser, chosen))


async def _asked(askings: Sequence[Asking], processes: int) -> list[Trial]:
    """The trials of all users; the longest histories begin, so that no process waits for one."""
    askings = sorted(askings, key=lambda it: -len(it.user["messages"]) * len(it.queries))
    if processes == 1:
        return [trial for it in askings for trial in await ask_all(it)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return [trial for trials in pool.map(trials_of, askings) for trial in trials]


def report(trials: Sequence[Trial]) -> Iterator[str]:
    """Each set with what the others chose, then as shipped."""
    heads = [f"{metric}, {how}" for how in ("left out", SHIPPED) for metric in JUDGED]
    yield "| set | n | " + " | ".join(heads) + " |"
    yield "|---" * (2 + len(heads)) + "|"
    for name in sorted({it.dataset for it in trials}):
        own = [it.metrics for it in trials if it.dataset == name]
        columns = [[row[at][metric] for row in own] for at in (0, 1) for metric in JUDGED]
        yield f"| {name} | {len(own)} | " + " | ".join(map(with_interval, columns)) + " |"


def report_numbers(chooser: Chooser, chosen: Mapping[str, Picks]) -> Iterator[str]:
    """What each value changes, and for which sets the others chose it."""
    yield f"Change of {' / '.join(JUDGED)} against what ships; * where its 95 % interval is not 0:"
    yield ""
    sets = sorted(chooser.sets)
    yield "| number | value | " + " | ".join(sets) + " | chosen without |"
    yield "|---" * (3 + len(sets)) + "|"
    for number, values in NUMBERS.items():
        for value in values:
            cells = [_changes(chooser, place(number, value), name) for name in sets]
            by = [name for name in sorted(chosen) if chosen[name][number] == value]
            yield f"| {number} | {value} | " + " | ".join([*cells, ", ".join(by)]) + " |"


def _changes(chooser: Chooser, at: int, name: str) -> str:
    """How the metrics of a set differ from those as shipped."""
    cells = []
    for metric in JUDGED if at else ():
        both = (chooser.values(it, name, metric) for it in (at, 0))
        changes = [now - before for now, before in zip(*both, strict=True)]
        low, high = interval(changes)
        cells.append(f"{mean(changes):+.1f}" + "*" * (low > 0 or high < 0))
    return " / ".join(cells)
