"""Which rows of spaces contain a phrase, by the word index of the engine."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from kemem.store.database import Database, Lookup, Space
from kemem.text.query import Mask, Phrase

_COMMON = 500  # rows; phrases of fewer are looked up fast enough
_REMEMBERED = 32  # phrases of a space

Ids = NDArray[np.int64]
# The last sequence number that was looked at, and the rows; those used longest ago come first.
Postings = OrderedDict[Phrase, tuple[int, Ids]]


def rows_with(
    connection: Connection,
    database: Database,
    spaces: Sequence[tuple[Space, Ids, Postings]],
    phrases: Sequence[Phrase],
) -> dict[Phrase, Mask]:
    """For each phrase the rows that contain it, of one space after the other.

    Of common phrases the rows are remembered, and only newer ones are looked up.
    """
    starts = np.cumsum([0, *(len(ids) for _, ids, _ in spaces)])
    masks = {phrase: np.zeros(starts[-1], np.bool_) for phrase in phrases}
    pairs = [(at, phrase) for at in range(len(spaces)) for phrase in phrases]
    nothing = (0, np.zeros(0, np.int64))
    remembered = [spaces[at][2].get(phrase, nothing) for at, phrase in pairs]
    lookups = [
        (spaces[at][0], phrase, last)
        for (at, phrase), (last, _) in zip(pairs, remembered, strict=True)
    ]
    news = lookup(connection, database, lookups)
    for (at, phrase), (_, before), after in zip(pairs, remembered, news, strict=True):
        space, ids, postings = spaces[at]
        rows = np.concatenate([before, after]) if len(after) else before
        if len(rows) >= _COMMON:
            postings.pop(phrase, None)
            postings[phrase] = (space.next_seq - 1, rows)
            if len(postings) > _REMEMBERED:
                postings.popitem(last=False)
        mark_rows(masks[phrase][starts[at] : starts[at + 1]], ids, rows)
    return masks


def lookup(connection: Connection, database: Database, lookups: Sequence[Lookup]) -> list[Ids]:
    """The rows of each lookup."""
    rows = [np.zeros(0, np.int64)] * len(lookups)
    if lookups:
        for number, joined in connection.execute(*database.phrase_query(lookups)):
            if joined is not None:
                rows[number] = numbers_in(joined) + lookups[number][0].first_id
    return rows


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
