"""Vectors for the corpus: computed once by hashing, then only looked up."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]

WIDTH = 384
TERM = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")


@lru_cache(maxsize=50_000)  # bounded: every order number is a new term
def direction(term: str) -> NDArray[np.int8]:
    """A fixed random corner of the 384-dimensional cube for a term."""
    bits = np.frombuffer(blake2b(term.encode(), digest_size=WIDTH // 8).digest(), np.uint8)
    return (np.unpackbits(bits).astype(np.int8) * 2 - 1).astype(np.int8)


def vector_of(text: str) -> Matrix:
    """The normalised sum of the directions of a text's terms and pairs of terms."""
    terms = TERM.findall(text.lower())
    pairs = [f"{first} {second}" for first, second in pairwise(terms)]
    total = np.sum([direction(term) for term in (*terms, *pairs)], axis=0, dtype=np.float32)
    length = float(np.linalg.norm(total)) or 1.0
    return np.asarray(total / length, dtype=np.float32)


def vectors_of(texts: Iterable[str]) -> Matrix:
    return np.stack([vector_of(text) for text in texts])


class Vectors(Protocol):
    """Whatever gives texts their vectors."""

    def look_up(self, texts: Sequence[str]) -> Matrix: ...


class VectorTable:
    """Reads the vector of a known text from a table; counts the texts it had to compute."""

    def __init__(self, texts: Sequence[str], vectors: Matrix) -> None:
        self._row = {text: row for row, text in enumerate(texts)}
        self._vectors = vectors
        self.misses = 0

    def look_up(self, texts: Sequence[str]) -> Matrix:
        rows = [self._row.get(text) for text in texts]
        known = [row for row in rows if row is not None]
        if len(known) == len(rows):
            return self._vectors[known]
        self.misses += len(rows) - len(known)
        return vectors_of(texts)
