"""Segments: columns of large spaces as they were read once, so that a new process has them at once.

A segment covers 8,192 numbers of a space's sequence. It is written when no row can come into it any
more, and removed by the transaction that changes or removes one of its rows. So one that is there
is true, whoever wrote it; and all of them can be made again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from kemem.store.database import Space, bound
from kemem.store.schema import SEQ_BITS, space_segment, space_state

SIZE = 8192
LEAST = 4 * SIZE  # rows of a space that has segments
COLUMNS = 0  # in the place of a model
_FORMAT = 1

_load = (
    sa.select(space_segment.c.number, space_segment.c.body)
    .where(*bound(space_segment, space_no="of_space", model_no="of_model"))
    .order_by(space_segment.c.number)
)
_numbers = _load.with_only_columns(space_segment.c.number)
_remove = sa.delete(space_segment).where(
    *bound(space_segment, space_no="of_space", number="of_number")
)
_epoch = sa.select(space_state.c.epoch).where(*bound(space_state, space_no="of_space"))


def pack(arrays: Sequence[NDArray[Any]]) -> bytes:
    """Arrays of one dimension as one body."""
    header = np.array([_FORMAT, *(it.nbytes for it in arrays)], np.int64)
    return b"".join(it.tobytes() for it in (header, *arrays))


def unpack(body: bytes, *kinds: str) -> list[NDArray[Any]]:
    """The arrays of a body, whose types are given; none if it has another format."""
    form, *sizes = np.frombuffer(body, np.int64, 1 + len(kinds)).tolist()
    starts = np.cumsum([8 * (1 + len(kinds)), *sizes]).tolist()
    if form != _FORMAT or starts[-1] != len(body):
        return []
    return [
        np.frombuffer(body, kind, size // np.dtype(kind).itemsize, start)
        for kind, size, start in zip(kinds, sizes, starts, strict=False)
    ]


def load(connection: sa.Connection, space_no: int, model_no: int) -> Iterator[tuple[int, bytes]]:
    """The segments of a space with their numbers, in order; one at a time is in memory."""
    result = connection.execute(_load, {"of_space": space_no, "of_model": model_no})
    return ((number, body) for number, body in result)


def numbers(connection: sa.Connection, space_no: int, model_no: int) -> set[int]:
    """Which segments there are."""
    return {*connection.execute(_numbers, {"of_space": space_no, "of_model": model_no}).scalars()}


def put(
    connection: sa.Connection, space: Space, model_no: int, bodies: Mapping[int, bytes]
) -> None:
    """Store segments that are missing, unless rows of the space have changed since its epoch."""
    this = {"of_space": space.space_no, "of_model": model_no}
    if connection.execute(_epoch.with_for_update(), this).scalar() != space.epoch:
        return
    known = numbers(connection, space.space_no, model_no)
    rows = [
        {"space_no": space.space_no, "model_no": model_no, "number": number, "body": body}
        for number, body in bodies.items()
        if number not in known
    ]
    if rows:
        connection.execute(sa.insert(space_segment), rows)


def remove(connection: sa.Connection, ids: Iterable[int]) -> None:
    """Remove the segments of rows that change; to be called when their epochs have been raised."""
    segments = {(row >> SEQ_BITS, (row & ((1 << SEQ_BITS) - 1)) // SIZE) for row in ids}
    rows = [{"of_space": space_no, "of_number": number} for space_no, number in sorted(segments)]
    if rows:
        connection.execute(_remove, rows)


def clear(connection: sa.Connection) -> None:
    """Remove all segments."""
    connection.execute(sa.delete(space_segment))
