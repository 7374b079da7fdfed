"""Which rows of spaces contain a phrase, by the word index of the engine."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from kemem.store.database import Database, Space
from kemem.text.query import Mask, Phrase

Ids = NDArray[np.int64]


def rows_with(
    connection: Connection,
    database: Database,
    rows: Sequence[tuple[Space, Ids]],
    phrases: Sequence[Phrase],
) -> dict[Phrase, Mask]:
    """For each phrase the rows that contain it, of one space after the other."""
    starts = np.cumsum([0, *(len(ids) for _, ids in rows)])
    masks = {phrase: np.zeros(starts[-1], np.bool_) for phrase in phrases}
    for at, phrase, found in lookup(connection, database, [space for space, _ in rows], phrases):
        mark_rows(masks[phrase][starts[at] : starts[at + 1]], rows[at][1], found)
    return masks


def lookup(
    connection: Connection,
    database: Database,
    spaces: Sequence[Space],
    phrases: Sequence[Phrase],
    after: int = 0,
) -> Iterator[tuple[int, Phrase, Ids]]:
    """The number of a space, a phrase, and the rows beyond `after` that contain it."""
    if not spaces or not phrases:
        return
    for number, joined in connection.execute(*database.phrase_query(phrases, spaces, after)):
        if joined is not None:
            at, phrase = divmod(number, len(phrases))
            yield at, phrases[phrase], numbers_in(joined) + spaces[at].first_id


def numbers_in(joined: str) -> Ids:
    """Whole numbers that the database has put together with commas."""
    return np.fromstring(joined, dtype=np.int64, sep=",")


def mark_rows(mask: Mask, ids: Ids, wanted: Ids) -> None:
    """Set the places of the ids that are wanted; `ids` are in order."""
    if not len(ids):
        return
    dense = ids[-1] - ids[0] == len(ids) - 1
    at = wanted - ids[0] if dense else np.searchsorted(ids, wanted)
    inside = (at >= 0) & (at < len(ids))
    at = at[inside]
    mask[at[ids[at] == wanted[inside]]] = True
