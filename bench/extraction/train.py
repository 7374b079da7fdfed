"""Learns which clauses are worth keeping: `python -m bench.extraction.train`.

Prints precision and recall of sentences in files that were not trained on (a tests b, b tests a),
then writes the weights of all turns to `src/kemem/facts/worth.npz`. The result is the same each
time: numpy only, one thread, fixed seeds.
"""

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import kemem.facts
from bench.extraction.turns import FILES, Turn, holds_kept, is_kept, plain_turns, turns
from kemem.add.rules import Reading, read_by_rules, units_of
from kemem.backends.local import LocalEmbedder
from kemem.facts.worth import (
    BUCKETS,
    KINDS,
    LEVELS,
    MOST_CHARACTERS,
    SCALE,
    WIDTH,
    Ratings,
    Vectors,
    embedding,
    paired,
)
from kemem.records import Matrix, Vector

TARGET = Path(next(iter(kemem.facts.__path__))) / "worth.npz"
EPOCHS, RATE, BATCH = 16, 0.02, 64
PLAIN = ("english", "chinese")
BESIDE = (*PLAIN, "en_c", "zh_c")  # each part that is trained on; never tested
PLAIN_WEIGHT = 0.5
DECAY_DENSE, DECAY_WORDS = 2e-3, 1e-5


@dataclass(slots=True)
class Rows:
    """Units of one level: hashed features, embeddings of unit and message, labels, sentences."""

    features: list[npt.NDArray[np.int64]]
    dense: Matrix
    labels: npt.NDArray[np.int64]  # which of KINDS
    sentences: list[tuple[int, int]]  # of which turn, and there of which sentence
    weight: float = 1.0


@dataclass(slots=True)
class Model:
    """A trained model of one level: softmax over kinds, where words speak for what is kept."""

    words: Vector
    dense: Matrix
    bias: Vector

    def ratings(self, rows: Rows) -> Vector:
        logits = SCALE * (rows.dense @ self.dense) + self.bias
        logits[:, 0] += [self.words[it].sum() / len(it) ** 0.5 for it in rows.features]
        ratings: Vector = logits[:, 0] - np.logaddexp.reduce(logits[:, 1:], axis=1)
        return ratings


def read(name: str) -> list[tuple[Turn, Reading]]:
    """The turns of a file as rules read them."""
    found = plain_turns(name) if name in PLAIN else turns(name)
    return [(turn, read_by_rules([turn.message()])) for turn in found]


async def embedded(texts: Iterable[str]) -> dict[str, Vector]:
    """The embeddings of texts."""
    once = [*dict.fromkeys(texts)]
    return dict(zip(once, await LocalEmbedder().embed(once, purpose="passage"), strict=True))


def rows(
    talk: Sequence[tuple[Turn, Reading]], vectors: Vectors, weight: float = 1.0
) -> dict[str, Rows]:
    """The units of each level that state something."""
    made = {level: Rows([], np.empty(0), np.empty(0, np.int64), []) for level in LEVELS}
    dense: dict[str, list[Vector]] = {level: [] for level in LEVELS}
    labels: dict[str, list[int]] = {level: [] for level in LEVELS}
    for at, (turn, reading) in enumerate(talk):
        shown = turn.text[:MOST_CHARACTERS]
        ratings = Ratings(shown, {})
        idle = KINDS.index("other" if turn.worth else turn.kinds[0])
        for number, (whole, *clauses) in enumerate(units_of(reading.messages[0][2])):
            for level, unit in [("sentence", whole), *(("clause", it) for it in clauses)]:
                vector = None if unit.silent else embedding(unit, vectors)
                if vector is None:
                    continue
                own = is_kept(unit.text, turn) if level == "clause" else holds_kept(unit.text, turn)
                made[level].features.append(np.array(ratings.features(unit)))
                made[level].sentences.append((at, number))
                dense[level].append(paired(vector, vectors[shown]))
                labels[level].append(0 if own else idle)
    for level in LEVELS:
        made[level].weight = weight
        made[level].dense = np.array(dense[level], np.float32)
        made[level].labels = np.array(labels[level], np.int64)
    return made


def joined(parts: Sequence[Rows]) -> tuple[Rows, Vector]:
    """Rows of several files, and their weights."""
    weights = np.concatenate([np.full(len(part.labels), part.weight) for part in parts])
    rows = Rows(
        [it for part in parts for it in part.features],
        np.concatenate([part.dense for part in parts]),
        np.concatenate([part.labels for part in parts]),
        [],
    )
    return rows, weights


def fit(rows: Rows, weights: Vector, with_dense: bool) -> Model:
    """Softmax regression by Adam."""
    count, random = len(rows.labels), np.random.default_rng(7)
    sizes, targets = np.array([len(it) for it in rows.features]), np.eye(len(KINDS))[rows.labels]
    values = {
        "words": np.zeros(BUCKETS),
        "dense": np.zeros((3 * WIDTH, len(KINDS))),
        "bias": np.zeros(len(KINDS)),
    }
    first = {name: np.zeros_like(it) for name, it in values.items()}
    second = {name: np.zeros_like(it) for name, it in values.items()}
    step = 0
    for epoch in range(EPOCHS):
        order = random.permutation(count)
        for start in range(0, count, BATCH):
            ids = order[start : start + BATCH]
            step += 1
            flat = np.concatenate([rows.features[it] for it in ids])
            owner = np.repeat(np.arange(len(ids)), sizes[ids])
            share = 1 / np.sqrt(sizes[ids])
            logits = SCALE * (rows.dense[ids] @ values["dense"]) + values["bias"]
            logits[:, 0] += np.bincount(owner, values["words"][flat], len(ids)) * share
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            error = odds / odds.sum(axis=1, keepdims=True) - targets[ids]
            error *= weights[ids, None] / len(ids)
            slopes = {"words": np.bincount(flat, (error[:, 0] * share)[owner], BUCKETS)}
            slopes["words"] += DECAY_WORDS * values["words"]
            slopes["bias"] = error.sum(axis=0)
            if with_dense:
                slope = SCALE * (rows.dense[ids].T @ error)
                slopes["dense"] = slope + DECAY_DENSE * values["dense"]
            for name, slope in slopes.items():
                first[name] = 0.9 * first[name] + 0.1 * slope
                second[name] = 0.999 * second[name] + 0.001 * slope * slope
                spread = np.sqrt(second[name] / (1 - 0.999**step)) + 1e-6
                pace = RATE * (1 - epoch / EPOCHS)
                values[name] -= pace * first[name] / (1 - 0.9**step) / spread
    return Model(**values)


def judged(
    models: dict[str, Model], test: dict[str, Rows], talk: Sequence[tuple[Turn, Reading]]
) -> tuple[Vector, Vector]:
    """Ratings of all sentences, as the product adds them up, and whether each is worth keeping."""
    best: dict[tuple[int, int], float] = {}
    clause = models["clause"].ratings(test["clause"])
    for key, rating in zip(test["clause"].sentences, clause, strict=True):
        best[key] = max(best.get(key, -99.0), float(rating))
    whole = models["sentence"].ratings(test["sentence"])
    for key, rating in zip(test["sentence"].sentences, whole, strict=True):
        best[key] = best.get(key, -99.0) + float(rating)
    ratings, labels = [], []
    for at, (turn, reading) in enumerate(talk):
        for number, (unit, *_) in enumerate(units_of(reading.messages[0][2])):
            ratings.append(best.get((at, number), -99.0))
            labels.append(holds_kept(unit.text, turn))
    return np.array(ratings), np.array(labels)


def report(name: str, ratings: Vector, labels: Vector) -> None:
    order = np.argsort(-ratings)
    right = np.cumsum(labels[order])
    precision = right / np.arange(1, len(order) + 1)
    line = f"{name:18}"
    for least in (0.90, 0.93):
        fit = np.flatnonzero(precision >= least)
        last = fit[-1] if len(fit) else 0
        line += (
            f" R@P{least:.2f} {right[last] / labels.sum():.3f} (from {ratings[order][last]:5.2f})"
        )
    for least in (0.0, 1.0, 2.0):
        own = ratings >= least
        line += f"  {least}: {labels[own].mean():.3f}/{labels[own].sum() / labels.sum():.3f}"
    print(line)


def trained_on(part: str) -> tuple[str, ...]:
    """The files that the turns of the other part are rated by."""
    return (f"en_{part}", f"zh_{part}", *BESIDE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.extraction.train", description=__doc__)
    parser.add_argument("--check", action="store_true", help="cross-validate only, write nothing")
    chosen = parser.parse_args()
    talk = {name: read(name) for name in (*FILES, *BESIDE)}
    vectors = asyncio.run(
        embedded(text for part in talk.values() for _, it in part for text in it.texts())
    )
    data = {
        name: rows(part, vectors, PLAIN_WEIGHT if name in PLAIN else 1.0)
        for name, part in talk.items()
    }
    for kind in (True, False):
        for train, test in (("a", "b"), ("b", "a")):
            models = {
                level: fit(*joined([data[it][level] for it in trained_on(train)]), kind)
                for level in LEVELS
            }
            for code in ("en", "zh"):
                name = f"{code}_{test}"
                title = f"{name} {'embedded' if kind else 'words'}"
                report(title, *judged(models, data[name], talk[name]))
    if not chosen.check:
        np.savez_compressed(TARGET, **learned([*data.values()]))
        print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes")


def learned(data: Sequence[dict[str, Rows]]) -> dict[str, npt.NDArray[Any]]:
    """The weights of some files, those of words as bytes."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for level in LEVELS:
        everything = joined([part[level] for part in data])
        for kind in ("both", "words"):
            model = fit(*everything, kind == "both")
            scale = float(np.abs(model.words).max()) / 127
            arrays[f"{level}_{kind}"] = np.round(model.words / scale).astype(np.int8)
            arrays[f"{level}_{kind}_scale"] = np.array(scale, np.float32)
            arrays[f"{level}_{kind}_bias"] = np.array(model.bias, np.float32)
            if kind == "both":
                arrays[f"{level}_dense"] = model.dense.astype(np.float16)
    return arrays


if __name__ == "__main__":
    main()
