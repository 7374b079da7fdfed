"""Part of the fourth stage of search: a small network that reads candidates beside each other.

A linear model weighs each candidate by itself; which of two messages makes the other untrue, and
whether any of them answers, is seen from all of them together. The network has a token for each
candidate and one for the question as a whole, which stands for "none of them". What it sees of a
candidate are the judge's features, and no text and no vector: so it does not know its teachers'
topics by heart. `attention.npz` has its weights, which `python -m bench.train_attention` learns.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kemem.records import Note
from kemem.search.features import DAY, Candidate, Column, Features, flags, sittings
from kemem.text.reading import Question, read

FARTHEST = 5.0  # deviations of a feature from its mean at which it is cut
_TYPES = """
identity health residence work relationship user_preference plan event general possession education
skill setting
"""
_ASKED = ("past", "original", "present", "was", "of_assistant")

Weights = Mapping[str, NDArray[np.float64]]


class Attended(NamedTuple):
    """How the network judges candidates: logarithms of odds."""

    values: Column  # that each is the answer, beside the best one
    chance: float  # that one of them is


def attend(question: Question, candidates: Sequence[Candidate], about: Features) -> Attended:
    """Judge candidates by their features and by what they are to each other."""
    weights = _weights()
    seen, nothing = about | columns(question, candidates), np.zeros(len(candidates))
    rows = np.stack([seen.get(str(name), nothing) for name in weights["names"]], axis=1)
    values, none = network(weights, rows, pairs(candidates))
    best = values.max()
    return Attended(values - best, best + math.log(np.exp(values - best).sum()) - none)


def columns(question: Question, candidates: Sequence[Candidate]) -> Features:
    """What the network sees of candidates beside the features of `kemem.search.features`."""
    size, said = len(candidates), np.array([it.said for it in candidates])
    notes = [it.row if isinstance(it.row, Note) else None for it in candidates]
    order = np.argsort(np.argsort(said, kind="stable"), kind="stable")
    own = {
        "is_note": flags(notes),
        "of_topic": flags([it and it.topic in question.topics for it in notes]),
        "ended": flags([it.context.ended for it in candidates]),
        "order": order / max(size - 1, 1),
        "age": np.log1p((said.max() - said) / DAY),
        "event_words": np.array(
            [len(question.before & read(it.row.content).words) for it in candidates], np.float64
        ),
    }
    for name in _TYPES.split():
        own[f"type_{name}"] = flags([it and it.memory_type == name for it in notes])
    asked = {name: bool(getattr(question, name)) for name in _ASKED}
    asked |= {"whether": "whether" in question.answers}
    asked |= {"times": bool(question.times), "before": bool(question.before)}
    own |= {f"asked_{name}": np.full(size, float(value)) for name, value in asked.items()}
    return own | {"few": np.full(size, 1 / size)}


def pairs(candidates: Sequence[Candidate]) -> NDArray[np.float64]:
    """What candidates are to each other: alike, of one sitting, later, and both."""
    alike = similarities(candidates)
    said = np.array([it.said for it in candidates])
    sitting = sittings(candidates)
    same = np.equal.outer(sitting, sitting).astype(np.float64)
    later = np.less.outer(said, said).astype(np.float64)  # the second than the first
    return np.stack([alike, same, later, later * alike, later * (1 - same)], axis=-1)


def similarities(candidates: Sequence[Candidate]) -> Column:
    """How alike rows are in meaning, each with each."""
    width = next((len(it.context.vector) for it in candidates if it.context.vector is not None), 1)
    vectors = [it.context.vector for it in candidates]
    matrix = np.concatenate([np.zeros(width) if it is None else it for it in vectors])
    matrix = matrix.reshape(-1, width)
    # Not "@": see `kemem.store.search`.
    return np.asarray(np.maximum(np.vecdot(matrix[:, None, :], matrix[None, :, :]), 0.0))


def network(weights: Weights, rows: Column, beside: NDArray[np.float64]) -> tuple[Column, float]:
    """The values of rows of features, and of "none of them"."""
    units = np.clip((rows - weights["mean"]) / weights["scale"], -FARTHEST, FARTHEST)
    all_of_them = _linear(weights, "question", units.mean(0)[None])
    tokens = _gelu(np.concatenate([all_of_them, _linear(weights, "candidate", units)]))
    known = np.pad(beside, ((1, 0), (1, 0), (0, 0)))  # the question's token has no session
    for layer in range(int(weights["layers"])):
        tokens = tokens + _attention(weights, f"{layer}.", tokens, known)
        wide = _gelu(_linear(weights, f"{layer}.wide", _normal(weights, f"{layer}.second", tokens)))
        tokens = tokens + _linear(weights, f"{layer}.narrow", wide)
    tokens = _normal(weights, "last", tokens)
    values = _linear(weights, "value", tokens[1:]) + _product(units, weights["plain"])
    return values[:, 0], float(_linear(weights, "none", tokens[:1])[0, 0])


def _attention(
    weights: Weights, layer: str, tokens: Column, known: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each token takes from the others, by several heads."""
    heads, size = weights[f"{layer}beside"], len(tokens)
    three = _linear(weights, f"{layer}heads", _normal(weights, f"{layer}first", tokens))
    asks, keys, told = three.reshape(size, 3, len(heads), -1).transpose(1, 2, 0, 3)
    odds = np.einsum("hid,hjd->hij", asks, keys) / math.sqrt(asks.shape[-1])
    odds += np.einsum("ijc,hc->hij", known, heads)
    shares = np.exp(odds - odds.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    taken = np.einsum("hij,hjd->ihd", shares, told).reshape(size, -1)
    return _linear(weights, f"{layer}taken", taken)


def _product(rows: Column, matrix: Column) -> NDArray[np.float64]:
    # Not "@": see `kemem.store.search`.
    return np.asarray(np.einsum("ij,kj->ik", rows, matrix))


def _linear(weights: Weights, name: str, rows: Column) -> NDArray[np.float64]:
    return np.asarray(_product(rows, weights[name]) + weights[f"{name}.bias"])


def _normal(weights: Weights, name: str, rows: Column) -> NDArray[np.float64]:
    away = rows - rows.mean(-1, keepdims=True)
    units = away / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(units * weights[name] + weights[f"{name}.bias"])


def _gelu(rows: Column) -> NDArray[np.float64]:
    inner = math.sqrt(2 / math.pi) * (rows + 0.044715 * rows**3)
    return np.asarray(rows * (1 + np.tanh(inner)) / 2)


@cache
def _weights() -> Weights:
    with (files(__package__) / "attention.npz").open("rb") as file, np.load(file) as arrays:
        kept = {name: arrays[name] for name in arrays.files}
    return {it: kept[it] if it == "names" else kept[it].astype(np.float64) for it in kept}
