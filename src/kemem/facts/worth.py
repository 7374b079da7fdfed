"""Whether a clause is worth keeping: a linear model of its words, its form and its embedding.

The weights are learned from labelled turns by `bench/extraction/train.py`. A clause is rated
together with the sentence and the message around it: "I live in Rome" is worth keeping, and after
"translate:" it is not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations, pairwise
from typing import Any, Literal
from zlib import crc32

import numpy as np
import numpy.typing as npt

from kemem.records import Vector
from kemem.text.lexicon import load

BUCKETS = 1 << 14  # of hashed features
SCALE = 3.0  # of embeddings beside the other features
WIDTH = 512  # floats of an embedding
PRODUCT = 12.0  # of two embeddings beside each: their entries are small
# Whose embeddings the weights fit. They learned from those of USE-multilingual v3, from which
# it was tuned: learned again with it, they missed changes that these find.
EMBEDDER = "kemem-multilingual-1"
LEVELS = ("clause", "sentence")
# What a unit may be: worth keeping, or one of the kinds that are not; each has its own direction.
KINDS = (
    *("kept", "idle", "question", "order", "pasted", "fiction", "hypothetical", "quote"),
    *("passing", "other"),
)
MOST_CHARACTERS = 600  # of a message that its clauses are rated by
_AROUND = ("FICTION", "PASTE", "HYPO", "MATERIAL", "ORDER", "QUOTE", "QUESTION")
_TOKEN = re.compile(r"[a-z0-9']+|[\u4e00-\u9fff]|[^\s\w]")

Vectors = Mapping[str, Vector]
Weights = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Unit:
    """A clause, or a whole sentence, where it stands."""

    text: str  # as it was said
    notes: tuple[str, ...]  # as its clauses would be kept; their mean embedding is its own
    language: Literal["zh", "en"]
    before: str | None = None  # the clause, or sentence, before
    after: str | None = None
    asks: bool = False
    position: tuple[int, int, int] = (0, 1, 0)  # in its sentence, of how many, of which sentence
    types: tuple[str, ...] = ()  # what rules read in it
    silent: bool = False  # it states nothing


@cache
def _classes(language: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    words, prefix = load(__package__, "worth.rules"), f"{language.upper()}_"
    names = [name for name in words.lines if name.startswith(prefix)]
    return tuple((name.removeprefix(prefix), words.pattern(name)) for name in names)


def _flags(text: str, language: str) -> list[str]:
    return [name for name, pattern in _classes(language) if pattern.search(text)]


def _tokens(text: str) -> list[str]:
    tokens = _TOKEN.findall(text.lower())
    return ["0" * min(len(it), 4) if it.isdigit() else it for it in tokens]


def _ends(tokens: Sequence[str], mark: str, first: int, last: int) -> Iterator[str]:
    yield from (f"{mark}^{'_'.join(tokens[:count])}" for count in range(1, first + 1))
    yield from (f"{mark}${'_'.join(tokens[-count:])}" for count in range(1, last + 1))


class Ratings:
    """Rates the clauses and sentences of one message."""

    def __init__(self, message: str, weights: Weights) -> None:
        self.message = message
        self._weights = weights
        self._around: dict[str, tuple[list[str], list[str]]] = {}
        self._read: dict[tuple[str, str], tuple[list[str], list[str]]] = {}

    def _of_message(self, language: str) -> tuple[list[str], list[str]]:
        """What all clauses of a message share: features, and classes of words."""
        if language not in self._around:
            tokens, flags = self._words(self.message, language)
            names = [f"m{it}" for it in tokens] + [*_ends(tokens, "m", 3, 0)]
            names += [f"M{it}" for it in flags]
            names += [f"O{it}" for it in _flags(self.message[:40], language)]
            names += [f"mlen{min(len(tokens) // 10, 12)}"]
            signs = ("[:：]", '["“「【]')
            names += [f"{it}{bool(re.search(it, self.message))}" for it in signs]
            self._around[language] = names, [it for it in flags if it in _AROUND]
        return self._around[language]

    def _words(self, text: str, language: str) -> tuple[list[str], list[str]]:
        """Tokens and classes of a text, which is looked at once for itself and its neighbours."""
        if (text, language) not in self._read:
            self._read[text, language] = _tokens(text), _flags(text, language)
        return self._read[text, language]

    def features(self, unit: Unit) -> list[int]:
        """The hashed features of a clause or a sentence, each once."""
        shared, around = self._of_message(unit.language)
        tokens, flags = self._words(unit.text, unit.language)
        at, count, number = unit.position
        names = [*shared, *(f"u{it}" for it in tokens), *_ends(tokens, "", 3, 2)]
        names += ["b" + "_".join(pair) for pair in pairwise(tokens)]
        if unit.language == "zh":
            triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
            names += ["t" + "".join(triple) for triple in triples]
        for mark, text in (("p", unit.before), ("n", unit.after)):
            near, kinds = self._words(text, unit.language) if text else (["<none>"], [])
            names += _ends(near, mark, 2, 2)
            names += [mark.upper() + it for it in kinds]
        names += [f"C{it}" for it in flags] + [f"R{it}" for it in unit.types]
        names += [f"CC{one}&{two}" for one, two in combinations(flags, 2)]
        names += [f"CM{own}&{other}" for own in flags for other in around]
        names += [f"asks{unit.asks}{at == count - 1}", f"read{len(unit.types)}"]
        names += [f"len{min(len(tokens), 30) // 3}", f"pos{min(at, 3)}_{min(count, 5)}"]
        names += [f"sent{min(number, 3)}", f"classes{min(len(flags), 6)}"]
        return sorted({crc32(f"{unit.language}{it}".encode()) % BUCKETS for it in names})

    def rate(self, unit: Unit, level: str, vectors: Vectors | None) -> float:
        """The log odds that a unit is worth keeping; by words alone without its embedding."""
        own = embedding(unit, vectors) if vectors else None
        around = vectors.get(self.message) if vectors else None
        weights = self._weights
        features, kind = self.features(unit), "words" if own is None or around is None else "both"
        scale, table = float(weights[f"{level}_{kind}_scale"]), weights[f"{level}_{kind}"]
        logits = weights[f"{level}_{kind}_bias"].astype(np.float64)
        logits[0] += scale * float(table[features].sum(dtype=np.int64)) / len(features) ** 0.5
        if own is not None and around is not None:
            dense = weights[f"{level}_dense"].astype(np.float32)
            logits += SCALE * (paired(own, around) @ dense)
        return float(logits[0] - np.logaddexp.reduce(logits[1:]))


def paired(own: Vector, around: Vector) -> Vector:
    """The embeddings of a unit and its message, and what is strong in both."""
    return np.concatenate([own, around, PRODUCT * own * around])


def embedding(unit: Unit, vectors: Vectors) -> Vector | None:
    """The embedding of a clause, or the mean of those of a sentence's clauses."""
    return mean([vectors[note] for note in unit.notes if note in vectors])


def mean(vectors: Sequence[Vector]) -> Vector | None:
    """The direction that some vectors of unit length have in common; None for none."""
    if len(vectors) <= 1:
        return vectors[0] if vectors else None
    whole: Vector = np.mean(vectors, axis=0)
    return whole / np.linalg.norm(whole)


@cache
def weights() -> Weights:
    """The weights that come with the package."""
    with (files(__package__) / "worth.npz").open("rb") as file, np.load(file) as arrays:
        return {name: arrays[name] for name in arrays.files}
