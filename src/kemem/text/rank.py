"""Ranking by words: BM25 with the statistics of one scope, each word of a message counted once.

Counting repetitions (the tf of BM25) was measured and does not pay in conversations: recall@10 on
LongMemEval rises by 3 points without it, other sets move within their error. Leaving it out makes
the score exact from row sets alone, the same on every engine.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kemem.text.query import Mask, Phrase, Query

K1 = 1.2
B = 0.6  # how much a long message has to say more to be worth the same
_STEEPNESS = 1.6  # a message of usual length that holds the whole query scores 0.8

Scores = NDArray[np.float64]


def word_scores(
    query: Query,
    rows_with: Mapping[Phrase, Mask],
    lengths: NDArray[np.int64],
    counted: Mask | None = None,
) -> Scores:
    """How well each row of a scope answers the query's words, 0-1 and comparable across queries.

    The share of the query's information (idf) that a row contains, weighted by the row's length.
    Where rows are `counted`, only they make up the statistics, and no other row may be in a mask.
    """
    total = len(lengths) if counted is None else int(counted.sum())
    held = np.zeros(len(lengths))
    asked = 0.0
    for unit in query.units:
        rows = rows_with[unit]
        weight = _idf(int(rows.sum()), total)
        held += weight * rows
        asked += weight
    if not asked or not total:
        return held
    usual = max(float((lengths if counted is None else lengths[counted]).mean()), 1.0)
    raw = held / asked * (K1 + 1) / (1 + K1 * (1 - B + B * lengths / usual))
    # Rounded so that equal rows stay equal whatever the order of additions was.
    return np.round(1 - np.exp(-_STEEPNESS * raw), 9)


def _idf(rows: int, total: int) -> float:
    return float(np.log(1 + (total - rows + 0.5) / (rows + 0.5)))
