"""Do the tuned numbers of a search serve conversations that they were not tuned on?

Each number of NUMBERS is tried with a few values while the others are as shipped. For every set
the values are chosen on the other sets alone, and the set is asked once more with all of them:
that is what a user may expect whose conversations nobody has seen. Sets that are one in two
languages (madial-en, madial-zh) are left out together. What ships was itself chosen on these sets,
so a number that is not in the list still gains by it.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from bench.ablation import NO_ASKING, NO_OPENING, NO_READER, NO_SPEAKER, Switch, switched
from bench.retrievers import RETRIEVERS, Ask, Query
from bench.scoring import JUDGED, MAIN, evidence, interval, mean, score, texts, with_interval
from kemem.search import fuse, reader
from kemem.text import conversation, rank

CHOSEN_BY = (MAIN, "ndcg@10")
SHIPPED = "shipped"

User = Mapping[str, Any]
Choice = tuple[str, str]  # the name of a number, and that of its value


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
    "sentences that ask (PARTS)": {
        "off": ((fuse, "PARTS", 0.0),),
        "0.2": ((fuse, "PARTS", 0.2),),
        SHIPPED: (),
        "0.6": ((fuse, "PARTS", 0.6),),
    },
    "local reranker (SAY)": {
        "off": NO_READER,
        "0.1": ((reader, "SAY", 0.1),),
        SHIPPED: (),
        "0.3": ((reader, "SAY", 0.3),),
    },
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the store that it is asked of, and the messages that answer it."""

    dataset: str
    query: Query
    groups: Sequence[Sequence[str]]
    ask: Ask

    async def metrics(self, switches: Sequence[Switch] = ()) -> dict[str, float]:
        """What the answer is worth with some numbers changed, in %."""
        with switched(switches):
            hits = await self.ask(self.query, 10)
        return {name: 100 * it for name, it in score(self.groups, [it for it, _ in hits]).items()}


class Trials:
    """The metrics of every question under each value of each number."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = questions
        self.shipped: list[dict[str, float]] = []
        self.left_out: list[dict[str, float]] = []  # with the values that the other sets chose
        self._changed: dict[Choice, list[dict[str, float]]] = defaultdict(list)

    async def run(self) -> None:
        """Ask every question with every value, then with those that the other sets chose."""
        for at, question in enumerate(self.questions):
            self.shipped.append(await question.metrics())
            for number, values in NUMBERS.items():
                for value, switches in values.items():
                    if value != SHIPPED:
                        self._changed[number, value].append(await question.metrics(switches))
            if at % 50 == 0:
                print(f"{at} of {len(self.questions)} questions", file=sys.stderr)
        chosen = {name: self.chosen_without(name) for name in self.sets}
        for question in self.questions:
            picks = chosen[question.dataset].items()
            changed = chain.from_iterable(NUMBERS[number][value] for number, value in picks)
            self.left_out.append(await question.metrics([*changed]))

    @property
    def sets(self) -> list[str]:
        return [*dict.fromkeys(it.dataset for it in self.questions)]

    def of(self, number: str, value: str) -> list[dict[str, float]]:
        """The metrics of all questions with one value."""
        return self.shipped if value == SHIPPED else self._changed[number, value]

    def values(self, rows: Sequence[Mapping[str, float]], name: str, metric: str) -> list[float]:
        """One metric of the questions of a set."""
        pairs = zip(self.questions, rows, strict=True)
        return [row[metric] for question, row in pairs if question.dataset == name]

    def chosen_without(self, name: str) -> dict[str, str]:
        """The value of each number that is best on the sets of other families."""
        others: dict[str, list[str]] = defaultdict(list)
        for other in self.sets:
            if family(other) != family(name):
                others[family(other)].append(other)

        def worth(number: str, value: str) -> float:
            rows = self.of(number, value)
            by_family = (
                mean([mean(self.values(rows, it, metric)) for it in own for metric in CHOSEN_BY])
                for own in others.values()
            )
            return round(mean([*by_family]), 6)

        return {
            number: max(values, key=lambda value: worth(number, value))
            for number, values in NUMBERS.items()
        }


def family(dataset: str) -> str:
    """A set without its language.  madial-zh -> madial"""
    return dataset.partition("-")[0]


def sampled(users: Sequence[User], most: int) -> dict[str, list[Query]]:
    """Up to `most` questions that have an answer, by users: as many of each as there are."""
    queues = []
    for user in users:
        queries = [it for it in user["queries"] if evidence(it, texts(user))]
        random.Random(0).shuffle(queries)
        queues.append([(user["user"], query) for query in queries])
    in_turn = (it for turn in zip_longest(*queues) for it in turn if it)
    chosen: dict[str, list[Query]] = defaultdict(list)
    for name, query in islice(in_turn, most):
        chosen[name].append(query)
    return chosen


async def leave_one_out(users: Iterable[User], most: int) -> Iterator[str]:
    """The tables, after asking up to `most` questions of each set."""
    by_set: dict[str, list[User]] = defaultdict(list)
    for user in users:
        by_set[user["dataset"]].append(user)
    if len({*map(family, by_set)}) < 2:
        raise SystemExit(f"leaving one set out takes two or more, not {', '.join(by_set)}")
    questions = []
    async with AsyncExitStack() as stores:
        for dataset, members in by_set.items():
            chosen = sampled(members, most)
            for user in members:
                messages = texts(user)
                ask = await stores.enter_async_context(RETRIEVERS["kemem"](messages))
                questions += [
                    Question(dataset, query, evidence(query, messages), ask)
                    for query in chosen[user["user"]]
                ]
                print(f"{user['user']}: {len(messages)} messages", file=sys.stderr)
        trials = Trials(questions)
        await trials.run()
    return chain(report(trials), [""], report_numbers(trials))


def report(trials: Trials) -> Iterator[str]:
    """Each set with what the others chose, then as shipped."""
    heads = [f"{metric}, {how}" for how in ("left out", SHIPPED) for metric in JUDGED]
    yield "| set | n | " + " | ".join(heads) + " |"
    yield "|---" * (2 + len(heads)) + "|"
    for name in trials.sets:
        columns = [
            trials.values(rows, name, metric)
            for rows in (trials.left_out, trials.shipped)
            for metric in JUDGED
        ]
        yield f"| {name} | {len(columns[0])} | " + " | ".join(map(with_interval, columns)) + " |"


def report_numbers(trials: Trials) -> Iterator[str]:
    """What each value changes, and for which sets the others chose it."""
    chosen = {name: trials.chosen_without(name) for name in trials.sets}
    yield f"Change of {' / '.join(JUDGED)} against what ships; * where its 95 % interval is not 0:"
    yield ""
    yield "| number | value | " + " | ".join(trials.sets) + " | chosen without |"
    yield "|---" * (3 + len(trials.sets)) + "|"
    for number, values in NUMBERS.items():
        for value in values:
            rows = trials.of(number, value)
            cells = [_changes(trials, rows, name) for name in trials.sets]
            by = [name for name in trials.sets if chosen[name][number] == value]
            yield f"| {number} | {value} | " + " | ".join([*cells, ", ".join(by)]) + " |"


def _changes(trials: Trials, rows: Sequence[Mapping[str, float]], name: str) -> str:
    """How the metrics of a set differ from those as shipped."""
    cells = []
    for metric in JUDGED if rows is not trials.shipped else ():
        both = (trials.values(it, name, metric) for it in (rows, trials.shipped))
        changes = [now - before for now, before in zip(*both, strict=True)]
        low, high = interval(changes)
        cells.append(f"{mean(changes):+.1f}" + "*" * (low > 0 or high < 0))
    return " / ".join(cells)
