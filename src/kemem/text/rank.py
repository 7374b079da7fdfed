"""Ranking by words: BM25 with the statistics of one scope, each word of a message counted once.

Counting repetitions (the tf of BM25) was measured and does not pay in conversations: recall@10 on
LongMemEval rises by 3 points without it, other sets move within their error. Leaving it out makes
the score exact from row sets alone, the same on every engine.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from kemem.text.conversation import Conversation
from kemem.text.query import Mask, Phrase, Query

K1 = 1.2
B = 0.5  # how much a long message has to say more to be worth the same
_STEEPNESS = 1.6  # a message of usual length that holds the whole query scores 0.8

# What a message of a conversation is worth before its words count, in shares of the question.
_OPENING = 0.026  # the first of a session, and more where the question is long
_TOPIC = 0.13
_NEWS = 0.2  # one said just now, where the question is long: it goes on with something
_NAMED = 0.13  # one said by somebody whom the question names
_ASKING = 0.8  # and what one that asks keeps of its score, unless the question is long

Scores = NDArray[np.float64]


def word_scores(
    query: Query,
    rows_with: Mapping[Phrase, Mask],
    lengths: NDArray[np.int64],
    counted: Mask | None = None,
    conversation: Conversation | None = None,
) -> Scores:
    """How well each row of a scope answers the query's words, 0-1 and comparable across queries.

    The share of the query's information (idf) that a row contains, weighted by the row's length.
    Where rows are `counted`, only they make up the statistics, and no other row may be in a mask.
    With a `conversation` the context of a row counts, too.
    """
    total = len(lengths) if counted is None else int(counted.sum())
    masks = [rows_with[unit] for unit in query.units]
    words = [(rows, _idf(int(np.count_nonzero(rows)), total)) for rows in masks]
    query_weight = sum(weight for _, weight in words)
    weights = np.zeros(len(lengths))
    if not query_weight or not total:
        return weights
    question = query.conversation
    if question is None or conversation is None or len(conversation.rows) < len(weights):
        for rows, weight in words:
            weights[rows] += weight
    if question and conversation:
        weights[conversation.rows] = conversation.word_weights(words, question.length)
    usual = max(float((lengths if counted is None else lengths[counted]).mean()), 1.0)
    raw = weights / query_weight * (K1 + 1) / (1 + K1 * (1 - B + B * lengths / usual))
    kept = np.ones(len(raw))
    if question:
        named = _any([rows_with[it] for it in question.speakers], len(raw))
        raw += (raw > 0) * _NAMED * named
    if question and conversation:
        places = conversation.rows
        raw[places] += (raw[places] > 0) * _favour(conversation, question.length)
        kept[places[conversation.asks]] = _ASKING + (1 - _ASKING) * question.length
    # Rounded so that equal rows stay equal whatever the order of additions was.
    return np.asarray(np.round(kept * (1 - np.exp(-_STEEPNESS * raw)), 9), np.float64)


def _idf(rows: int, total: int) -> float:
    return float(np.log(1 + (total - rows + 0.5) / (rows + 0.5)))


def _any(masks: Sequence[Mask], size: int) -> Mask:
    return reduce(np.bitwise_or, masks, np.zeros(size, np.bool_))


def _favour(conversation: Conversation, length: float) -> Scores:
    """What messages are worth for their places in a conversation."""
    favour = np.where(conversation.opens, _OPENING + _TOPIC * length, 0.0)
    return favour + _NEWS * length * conversation.news if length else favour
