"""Which rows of a space hold a phrase, by the word index of the engine."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from kemem.store.database import Database, Space
from kemem.text.query import Mask, Phrase


def rows_with(
    connection: Connection,
    database: Database,
    space: Space,
    ids: NDArray[np.int64],
    phrases: Sequence[Phrase],
) -> dict[Phrase, Mask]:
    """For each phrase the rows of a space, given by their ids in order, that contain it."""
    rows = connection.execute(*database.look_up(phrases, space))
    return _masks(phrases, rows.all(), ids - space.first_id)


def _masks(
    phrases: Sequence[Phrase], rows: Sequence[Sequence[Any]], seqs: NDArray[np.int64]
) -> dict[Phrase, Mask]:
    masks = {phrase: np.zeros(len(seqs), dtype=np.bool_) for phrase in phrases}
    dense = len(seqs) and seqs[-1] - seqs[0] == len(seqs) - 1
    for number, joined in rows:
        if joined is None:
            continue
        found = np.fromstring(joined, dtype=np.int64, sep=",")
        at = found - seqs[0] if dense else np.searchsorted(seqs, found)
        inside = (at >= 0) & (at < len(seqs))
        at = at[inside]
        masks[phrases[number]][at[seqs[at] == found[inside]]] = True
    return masks
