"""Vectors of large spaces by the signs of their numbers: one bit for each, compared by counting.

The nearest by signs are few enough to be read from the database and compared exactly.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kemem.records import Matrix, Vector
from kemem.text.query import Mask

EXACT = 100_000  # rows of a space up to which every vector is compared
_BITS = 64
_ROUGH = 4  # times as many rows are kept by counting signs as by weighing them,
_SPARE = 12  # and so many times these by counting some of the signs
_STEP = 17  # every so many rows one is looked at to learn how near those are; sides alternate by 2
_BLOCK = 1 << 15  # rows that are compared at once: they stay in the processor's cache

Plane = NDArray[np.uint64]  # 64 signs of each row
Rows = NDArray[np.intp]


def planes_of(width: int) -> int:
    """How many planes vectors of a width need."""
    return -(-width // _BITS)


def encode(vectors: Matrix) -> list[Plane]:
    """The signs of vectors, plane by plane."""
    signs = np.packbits(vectors > 0, axis=1, bitorder="little")
    count = planes_of(vectors.shape[1])
    padded = np.zeros((len(vectors), count * _BITS // 8), np.uint8)
    padded[:, : signs.shape[1]] = signs
    return [*np.ascontiguousarray(padded.view(np.uint64).T)]


def nearest(planes: Sequence[Plane], vector: Vector, among: Mask, count: int) -> Rows:
    """Places of the `count` rows whose signs agree best with a vector, and of their equals.

    A sign weighs as much as the vector's number in its place. What weighs most is looked for among
    the rows of which the fewest signs differ.
    """
    rows = _alike(planes, vector, among, count * _ROUGH)
    if len(rows) <= count:
        return rows
    codes = np.stack([plane[rows] for plane in planes], axis=1).view(np.uint8)
    signs = np.unpackbits(codes, axis=1, count=len(vector), bitorder="little")
    weights: Vector = np.vecdot(signs.astype(np.float32), vector)
    least = np.partition(weights, len(rows) - count)[len(rows) - count]
    return np.asarray(rows[weights >= least])


def _alike(planes: Sequence[Plane], vector: Vector, among: Mask, count: int) -> Rows:
    """Places of the rows of which the fewest signs differ from a vector's.

    Some of the signs tell which rows may be among them; the others are counted of these only.
    """
    wanted = [plane[0] for plane in encode(vector[np.newaxis])]
    some = max(1, len(planes) * 3 // 8)
    # The smallest type that holds them: this is the part of a search that visits every row.
    kind = np.uint8 if some * _BITS < 256 else np.uint16
    distances: NDArray[Any] = np.zeros(len(among), kind)
    differing, counts = np.zeros(_BLOCK, np.uint64), np.zeros(_BLOCK, np.uint8)
    for start in range(0, len(among), _BLOCK):
        block = distances[start : start + _BLOCK]
        size = len(block)
        for plane, bits in zip(planes[:some], wanted, strict=False):
            np.bitwise_xor(plane[start : start + size], bits, out=differing[:size])
            np.bitwise_count(differing[:size], out=counts[:size])
            block += counts[:size]
    sample = distances[::_STEP][among[::_STEP]]
    rows = np.flatnonzero(among & (distances <= _farthest(sample, count * _SPARE // _STEP)))
    distances = distances[rows].astype(np.uint16)
    for plane, bits in zip(planes[some:], wanted[some:], strict=True):
        distances += np.bitwise_count(plane[rows] ^ bits)
    return rows[distances <= _farthest(distances, count)]


def _farthest(distances: NDArray[Any], count: int) -> int:
    """The distance within which the `count` nearest are; any, if there are not so many."""
    totals = np.cumsum(np.bincount(distances))  # how many rows, up to each distance
    is_enough = len(totals) and totals[-1] >= count
    return int(np.searchsorted(totals, count)) if is_enough else np.iinfo(np.uint16).max
