"""Learn which notes a statement makes untrue: `python -m bench.extraction.endings [--save]`.

The conversations of `bench/data/lives` mark which message makes which untrue. Every author is rated
by weights that were learned from others; --save writes those learned from all. Notes of other
people are mixed in, as there are many in a memory that is used for long.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import kemem.facts
from bench.extraction.score import Score
from bench.extraction.train import embedded
from bench.lives import Life, read_lives
from kemem import AsyncMemory
from kemem.add.rules import Fact, rate, read_by_rules
from kemem.facts import endings
from kemem.facts.endings import CERTAIN, NEAREST, Features, Told, features, may_end
from kemem.ports import read_notes
from kemem.records import NOTES, Message, Scope, Where
from kemem.records.times import to_micros, to_rfc3339
from kemem.settings import Settings

TARGET = Path(next(iter(kemem.facts.__path__))) / "endings.json"
STRANGERS = 12  # notes of other people beside a person's own
RIDGE = 100.0
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """A statement and a note before it."""

    author: str
    statement: tuple[str, int]  # of which life, and its place among the statements
    row: Features
    over: bool | None  # None: not certain


@dataclass(frozen=True, slots=True)
class Stated:
    """A person's statement and the place of its message."""

    place: int
    fact: Fact
    note: Told


def unclear(life: Life) -> set[tuple[int, int]]:
    """Pairs that are not marked, but may be over: by way of another, or as a question says."""
    by = defaultdict(set)
    for later, before in life.endings:
        by[later] |= {before}
    pairs = {(one, three) for one in by for two in by[one] for three in by.get(two, ())}
    if life.category not in ("time", "person"):  # there a wrong answer need not be over
        for it in life.questions:
            pairs |= {(one, two) for one in it.gold for two in it.stale if one > two}
    return pairs - {*life.endings}


def messages(life: Life) -> dict[str, list[Message]]:
    """The messages of each session."""
    sessions = defaultdict(list)
    for at, it in enumerate(life.messages):
        ts = to_micros(it.at.isoformat())
        message = Message(f"m{at}", "bench", "user", it.session, it.role, it.content, ts, ts)
        sessions[it.session].append(message)
    return sessions


def _place(fact: Fact) -> int:
    return int(fact.sources[0][1:])


def read(lives: Sequence[Life]) -> list[list[Stated]]:
    """What people state, as add reads it, with the vectors that a store has of their notes."""
    readings = [[read_by_rules(it) for it in messages(life).values()] for life in lives]
    vectors = asyncio.run(
        embedded([text for some in readings for it in some for text in it.texts()])
    )
    facts = [
        [
            fact
            for found in (rate(it, vectors) for it in some)
            for fact in sorted(
                (*found.facts, *found.changes), key=lambda fact: int(fact.sources[0][1:])
            )
        ]
        for some in readings
    ]
    own = asyncio.run(embedded([it.text for some in facts for it in some]))
    return [
        [Stated(_place(it), it, Told(it.text, it.memory_type, own[it.text])) for it in some]
        for some in facts
    ]


def pairs_of(
    life: Life, stated: Sequence[Stated], strangers: Sequence[Told], bare: bool
) -> Iterable[Pair]:
    """Each statement that may end something with the notes before it that are still true."""
    marked, doubtful = {*life.endings}, unclear(life)
    author = life.name.split(":")[0][-1]
    for number, it in enumerate(stated):
        if it.fact.told is None or not it.fact.told.changes:
            continue
        own = [
            other
            for other in stated[:number]
            if not other.fact.tentative and other.place < it.place
            if not any(before == other.place and later < it.place for later, before in marked)
        ]
        notes = [*(other.note for other in own), *strangers]
        new = replace(it.fact.told, message_vector=None) if bare else it.fact.told
        rows = features(new, notes)
        order = sorted(range(len(rows)), key=lambda at: -rows[at]["near"] - rows[at]["shared"])
        positive = False
        for at in order[:NEAREST]:
            pair = (it.place, own[at].place) if at < len(own) else None
            if not may_end(new, notes[at]):
                continue
            over: bool | None = pair in marked
            if (over and positive) or pair in doubtful:
                over = None
            positive = positive or bool(over)
            yield Pair(author, (life.name, number), rows[at], over)


def matrix(pairs: Sequence[Pair], names: Sequence[str]) -> Column:
    return np.array([[*(it.row.get(name, 0.0) for name in names), 1.0] for it in pairs])


def fit(pairs: Sequence[Pair], names: Sequence[str]) -> dict[str, float]:
    """Logistic regression by Newton's method; small weights are preferred by scale."""
    certain = [it for it in pairs if it.over is not None]
    rows, over = matrix(certain, names), np.array([float(bool(it.over)) for it in certain])
    scale = np.maximum(rows.std(axis=0), 1e-3)
    scale[-1] = 1.0
    rows, weights = rows / scale, np.zeros(len(names) + 1)
    ridge = np.r_[np.full(len(names), RIDGE), 1e-6]
    for _ in range(20):
        odds = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (odds - over) + ridge * weights
        spread = np.maximum(odds * (1 - odds), 1e-6)
        step = np.linalg.solve((rows * spread[:, None]).T @ rows + np.diag(ridge), slope)
        weights -= step * min(1.0, 3 / np.abs(step).max())
    return dict(zip([*names, "bias"], (weights / scale).tolist(), strict=True))


def chosen(pairs: Sequence[Pair], weights: dict[str, float]) -> list[tuple[float, bool | None]]:
    """The best note of each statement, by its value, best first."""
    names = [it for it in weights if it != "bias"]
    values = matrix(pairs, names) @ np.array([*(weights[it] for it in names), weights["bias"]])
    best: dict[tuple[str, int], tuple[float, bool | None]] = {}
    for pair, value in zip(pairs, values.tolist(), strict=True):
        if value > best.get(pair.statement, (-np.inf, None))[0]:
            best[pair.statement] = value, pair.over
    return sorted(best.values(), key=lambda it: -it[0])


def learn(pairs: Sequence[Pair]) -> dict[str, float]:
    """The weights, as they are saved."""
    weights = fit(pairs, sorted({name for it in pairs for name in it.row}))
    return {name: float(f"{it:.4g}") for name, it in weights.items() if abs(it) > 1e-3}


def collect(lives: Sequence[Life]) -> dict[str, list[Pair]]:
    """All pairs, with and without embeddings."""
    stated, chance = read(lives), random.Random(5)
    notes: dict[str, list[Told]] = defaultdict(list)
    for life, some in zip(lives, stated, strict=True):
        notes[life.language] += [it.note for it in some if not it.fact.tentative]
    pairs: dict[str, list[Pair]] = {"embedded": [], "words": []}
    for life, some in zip(lives, stated, strict=True):
        own = {it.fact.text for it in some}
        strangers = chance.sample(notes[life.language], STRANGERS)
        strangers = [it for it in strangers if it.text not in own]
        for title in pairs:
            pairs[title] += pairs_of(life, some, strangers, title == "words")
    return pairs


async def endings_of(life: Life, embedder: str) -> set[tuple[int, int]]:
    """Which message ends a note of which other, when a life is told to a memory."""
    now = [0]
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(data_dir=Path(home), llm="none", embedder=embedder)
        async with AsyncMemory(settings=settings, clock=lambda: now[0]) as memory:
            for session, some in messages(life).items():
                now[0] = some[-1].ts + 1_000_000
                told = [
                    {
                        "role": it.role,
                        "content": it.content,
                        "ts": to_rfc3339(it.ts),
                        "message_id": it.message_id,
                    }
                    for it in some
                ]
                await memory.add(told, user_id="u", session_id=session)
            deps = await memory._operator_deps()
            where = Where(Scope(user_id="u"), kinds=NOTES)
            notes = await read_notes(deps.store, where, limit=1_000)
    places = {to_micros(it.at.isoformat()): at for at, it in enumerate(life.messages)}
    # What a note ended lasted until it was said, or until the time since when it holds.
    places |= {it.valid_from: int(it.sources[0][1:]) for it in notes if it.supersedes}
    return {
        (places[it.valid_until], int(it.sources[0][1:])) for it in notes if it.valid_until in places
    }


def measure(lives: Sequence[Life], pairs: dict[str, list[Pair]], embedder: str) -> dict[str, Score]:
    """Endings in the lives of each author, by weights that were learned from the others."""
    scores: dict[str, Score] = defaultdict(Score)
    original = endings._weights
    for author in sorted({it.name.split(":")[0][-1] for it in lives}):
        learned = {
            title: learn([it for it in some if it.author != author])
            for title, some in pairs.items()
        }
        endings._weights = lambda learned=learned: learned  # type: ignore[assignment,misc]
        for life in lives:
            if life.name.split(":")[0][-1] == author:
                ended = asyncio.run(endings_of(life, embedder))
                score, marked = scores[life.name[:4]], {*life.endings}
                score.right += len(ended & marked)
                score.missed += len(marked - ended)
                score.wrong += len(ended - marked - unclear(life))
    endings._weights = original
    return scores


def line(ranked: Sequence[tuple[float, bool | None]]) -> str:
    """Precision, and how many endings are found, from some values on."""
    parts = []
    for most in (CERTAIN - 1, CERTAIN, CERTAIN + 1):
        over = [it for value, it in ranked if value >= most and it is not None]
        parts.append(f"from {most:4.1f}: {sum(over) / max(1, len(over)):.2f} ({sum(over)})")
    return "  ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.extraction.endings", description=__doc__)
    parser.add_argument("--save", action="store_true", help="write the weights")
    save, pairs = parser.parse_args().save, collect(read_lives())
    for title, some in pairs.items():
        names = sorted({name for it in some for name in it.row})
        for author in sorted({it.author for it in some}):
            weights = fit([it for it in some if it.author != author], names)
            ranked = chosen([it for it in some if it.author == author], weights)
            print(f"{title} {author}: {line(ranked)}", flush=True)
    if save:
        learned = {title: learn(some) for title, some in pairs.items()}
        TARGET.write_text(json.dumps(learned, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
