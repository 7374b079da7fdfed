"""Ranking by words: BM25 with the statistics of one scope, each word of a message counted once.

Counting repetitions (the tf of BM25) was measured and does not pay in conversations: recall@10 on
LongMemEval rises by 3 points without it, other sets move within their error. Leaving it out makes
the score exact from row sets alone, the same on every engine.

The context of a message counts, too: see `kemem.text.conversation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from kemem.records import MESSAGES, Where
from kemem.text.conversation import Conversation, Ints, Numbers, Scores
from kemem.text.query import Mask, Phrase, Query

K1 = 1.2
B = 0.5  # how much a long message has to say more to be worth the same
_STEEPNESS = 1.6  # a message of usual length that holds the whole query scores 0.8

_NAMED = 0.13  # what a message said by somebody whom the question names is worth more
_ASKING = 0.8  # what one that asks keeps of its score, unless the question is long

_STEP = 17  # every so many rows one is looked at to learn how good those are; sides alternate by 2


class Scored(NamedTuple):
    """Rows that match, by their places in a scope; and how many do, where some are left out."""

    rows: Numbers
    scores: Scores
    total: int


def context_scope(where: Where) -> Where:
    """The messages that serve as context: all that a Where lets be seen.

    What only narrows an answer (a role, a beginning, ids, kinds, filters) does not narrow this;
    what hides does: a session, an end, what is sensitive, what was not yet known.
    """
    seen = replace(where, kinds=MESSAGES, role=None, since=None, ids=None, marks=None)
    return replace(seen, sources=None, filters=None)


def likely_rows(
    query: Query,
    rows_with: Mapping[Phrase, Mask],
    lengths: Ints,
    visible: Mask,
    most: int,
    conversation: Conversation | None = None,
) -> Numbers:
    """Places of about so many rows of a large scope, the best by a cheap guess; as many more as are
    guessed to be equal to the last.
    """
    words, _ = _weighted(query, rows_with, len(lengths))
    if query.conversation and conversation:
        guess = conversation.guess(words, query.conversation.length)
    else:
        guess = np.zeros(len(lengths), np.float32)
        for rows, weight in words:
            guess += rows * np.float32(weight)
    if not visible.all():
        guess *= visible
    usual = max(int(lengths.sum()) / len(lengths), 1.0) if len(lengths) else 1.0
    divisor = np.multiply(lengths, K1 * B / usual, dtype=np.float32)
    divisor += 1 + K1 * (1 - B)
    guess /= divisor
    if len(guess) > most:
        some = guess[::_STEP]
        last = len(some) - max(most // _STEP, 1)
        least = np.partition(some, last)[last] * (1 - 1e-5)
        return np.flatnonzero(guess >= least if least > 0 else guess > 0)
    return np.flatnonzero(guess > 0)


def _weighted(
    query: Query, rows_with: Mapping[Phrase, Mask], total: int
) -> tuple[list[tuple[Mask, float]], float]:
    """The words of a query with what each is worth (idf), and what all are."""
    masks = [rows_with[unit] for unit in query.units]
    counts = [int(np.count_nonzero(rows)) for rows in masks]
    idfs = [float(np.log(1 + (total - count + 0.5) / (count + 0.5))) for count in counts]
    return list(zip(masks, idfs, strict=True)), sum(idfs)


def word_scores(
    query: Query,
    rows_with: Mapping[Phrase, Mask],
    lengths: Ints,
    counted: Mask | None = None,
    conversation: Conversation | None = None,
    among: Numbers | None = None,
) -> Scores:
    """How well each row of a scope answers the query's words, 0-1 and comparable across queries.

    The share of the query's information (idf) that a row contains, weighted by the row's length.
    Where rows are `counted`, only they make up the statistics, and no other row may be in a mask.
    With a `conversation` the context of a row counts, too. With `among` only these rows are scored.
    """
    total = len(lengths) if counted is None else int(np.count_nonzero(counted))
    words, query_weight = _weighted(query, rows_with, total)
    if not query_weight or not total:
        return np.zeros(len(lengths) if among is None else len(among))
    question = query.conversation
    if among is not None:
        weights = _weights_at(among, words, query, conversation)
    else:
        weights = _weights(len(lengths), words, query, conversation)
    usual = max(int((lengths if total == len(lengths) else lengths[counted]).sum()) / total, 1.0)
    # In place from here on: every array of a large scope costs as much as a step of the arithmetic.
    raw = np.multiply(weights, (K1 + 1) / query_weight, out=weights)
    divisor = (lengths if among is None else lengths[among]) * (K1 * B / usual)
    divisor += 1 + K1 * (1 - B)
    raw /= divisor
    if question and question.speakers:
        by_named = reduce(np.bitwise_or, map(rows_with.__getitem__, question.speakers))
        named = np.flatnonzero(by_named if among is None else by_named[among])
        raw[named] += (raw[named] > 0) * _NAMED
    scores = np.exp(np.multiply(raw, -_STEEPNESS, out=raw), out=raw)
    np.subtract(1, scores, out=scores)
    if question and question.answers and conversation:
        asking = conversation.questions if among is None else conversation.asks[among]
        scores[asking] *= _ASKING + (1 - _ASKING) * question.length
    return np.round(scores, 9, out=scores)  # equal rows stay equal whatever was added first


def _weights(
    size: int,
    words: Sequence[tuple[Mask, float]],
    query: Query,
    conversation: Conversation | None,
) -> Scores:
    """The weight of the words that each row of a scope has."""
    weights, question = np.zeros(size), query.conversation
    if question is None or conversation is None or len(conversation.rows) < size:
        for rows, weight in words:
            weights[rows] += weight
    if question and conversation:
        weights[conversation.rows] = conversation.word_weights(words, question.length)
    return weights


def _weights_at(
    among: Numbers,
    words: Sequence[tuple[Mask, float]],
    query: Query,
    conversation: Conversation | None,
) -> Scores:
    """The same for some rows."""
    if query.conversation and conversation and len(conversation.rows):
        return conversation.weights_at(among, words, query.conversation.length)
    weights = np.zeros(len(among))
    for rows, weight in words:
        weights += weight * rows[among]
    return weights
