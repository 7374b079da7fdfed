"""An embedder for tests: no model, no download, the same numbers on every machine."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Literal

import numpy as np

from kemem.records import Matrix, Vector
from kemem.text.segment import is_cjk, search_text


class HashingEmbedder:
    """A bag of hashed search tokens and CJK pairs: alike means sharing words. For tests only."""

    in_process = True

    def __init__(self, width: int = 64, name: str = "hashing") -> None:
        self.width = width
        self.name = name

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """One row of length 1 for each text, whatever its purpose."""
        rows = [self._row(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.width)

    def _row(self, text: str) -> Vector:
        row = np.zeros(self.width, dtype=np.float32)
        for feature in _features(text):
            row[_hash(feature) % self.width] += 1  # never subtracted: a row cannot cancel to zero
        return row / np.float32(np.linalg.norm(row))


def _features(text: str) -> Iterator[str]:
    tokens = search_text(text).split()
    yield from tokens or [text]
    yield from (left + right for left, right in pairwise(tokens) if is_cjk(left) and is_cjk(right))


def _hash(feature: str) -> int:
    return int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest())
