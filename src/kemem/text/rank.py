"""Ranking by words: BM25 with the statistics of one scope, each word of a message counted once.

Counting repetitions (the tf of BM25) was measured and does not pay in conversations: recall@10 on
LongMemEval rises by 3 points without it, other sets move within their error. Leaving it out makes
the score exact from row sets alone, the same on every engine.

The context of a message counts, too: a short turn means what the turns near it say. "Yes, in May"
answers "Did you see Rome?" and holds none of its words. So a word of the query that a message lacks
counts in part where a message near it has the word. The shares were measured on eight sets in
Chinese and English; `docs/benchmarks.md` says what each of them is worth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from kemem.records import MESSAGES, ROLES, Where
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

SPEAKERS = ROLES[:2]  # user and assistant; systems and tools take no part in a conversation
NEAR = (0.6, 0.4, 0.3, 0.25, 0.2)  # what a word counts that is said 1, 2, … messages away,
ASKED = 0.9  # in the question right before,
SESSION = 0.12  # elsewhere in the session,
OPENING, TOPIC = 0.25, 0.7  # and there for its first message, which sets out what it is about:
# the more, the longer the question
RECENT = 14 * 86_400_000_000  # microseconds in which a message's news falls to a third
_SHARES = np.array([0, *reversed(NEAR), ASKED, 1])
_CELLS = 1 << 17  # of the table of words and messages that is worked on at once
_RARE = 100  # a word that one of so many messages has is rare

Numbers = NDArray[np.intp]
Ints = NDArray[np.int64]
Scores = NDArray[np.float64]


def context_scope(where: Where) -> Where:
    """The messages that serve as context: all that a Where lets be seen.

    What only narrows an answer (a role, a beginning, ids, kinds, filters) does not narrow this;
    what hides does: a session, an end, what is sensitive, what was not yet known.
    """
    seen = replace(where, kinds=MESSAGES, role=None, since=None, ids=None, marks=None)
    return replace(seen, sources=None, filters=None)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of sessions in which both sides speak, session by session, as they were said."""

    rows: Numbers  # their places among the rows of a scope
    times: Ints
    asks: Mask  # whether each is a question
    sessions: Numbers  # numbered from 0
    before: Numbers  # messages of the session that come earlier
    after: Numbers  # and later

    @classmethod
    def of(
        cls, sessions: Ints, times: Ints, speakers: NDArray[np.int8], asks: Mask, visible: Mask
    ) -> "Conversation":
        """The conversation among the `visible` rows; a speaker is a place in SPEAKERS."""
        rows = np.flatnonzero(visible & (speakers < len(SPEAKERS)))
        speaks = np.zeros((int(sessions.max(initial=-1)) + 1, len(SPEAKERS)), np.bool_)
        speaks[sessions[rows], speakers[rows]] = True
        rows = rows[(speaks[:, 0] & speaks[:, 1])[sessions[rows]]]
        rows = rows[np.lexsort((times[rows], sessions[rows]))]
        starts = np.flatnonzero(np.diff(sessions[rows], prepend=-1))
        sizes = np.diff(starts, append=len(rows))
        before = np.arange(len(rows)) - np.repeat(starts, sizes)
        after = np.repeat(sizes, sizes) - before - 1
        numbers = np.repeat(np.arange(len(starts)), sizes)
        return cls(rows, times[rows], asks[rows], numbers, before, after)

    @classmethod
    def join(cls, parts: Sequence["Conversation"], starts: Iterable[int]) -> "Conversation":
        """The conversations of several spaces as one; a space's rows begin at its start."""
        pairs = [(part, at) for part, at in zip(parts, starts, strict=False) if len(part.rows)]
        if len(pairs) == 1:
            ((part, start),) = pairs
            return replace(part, rows=part.rows + start) if start else part
        none = np.zeros(0, np.intp)
        columns, sessions = [(none, none, none.astype(np.bool_), none, none, none)], 0
        for part, start in pairs:
            rows, numbers = part.rows + start, part.sessions + sessions
            columns.append((rows, part.times, part.asks, numbers, part.before, part.after))
            sessions += int(part.sessions[-1]) + 1
        return cls(*map(np.concatenate, zip(*columns, strict=True)))

    @property
    def opens(self) -> Mask:
        """Which messages are the first of their sessions."""
        return np.equal(self.before, 0)

    @property
    def news(self) -> Scores:
        """0-1: how near each message is to the newest one of all."""
        age = (self.times.max(initial=0) - self.times) / RECENT
        return np.asarray(np.exp(-age), np.float64)

    def word_weights(self, words: Sequence[tuple[Mask, float]], length: float) -> Scores:
        """The weight of the words that each message has, itself or by its context."""
        size, openings = len(self.rows), np.flatnonzero(self.opens)
        own = np.zeros(size)
        of_opening, of_session = np.zeros(len(openings)), np.zeros(len(openings))
        # The least that a word of the session counts, in a message and in its first one.
        least = (SESSION, OPENING + (TOPIC - OPENING) * length)
        above, above_first = (np.maximum(_SHARES - share, 0) for share in least)
        step = max(_CELLS // max(size, 1), 1)
        for start in range(0, len(words) if size else 0, step):
            part = words[start : start + step]
            weights = np.array([weight for _, weight in part])
            has = np.stack([mask.take(self.rows) for mask, _ in part])
            if np.count_nonzero(has) * _RARE < has.size:
                levels = self._levels_near(np.flatnonzero(has), len(part))
                near = np.flatnonzero(levels)
                word, row = np.divmod(near, size)
                np.add.at(own, row, weights[word] * above[levels.ravel()[near]])
            else:
                levels = self._levels_by_shifts(has)
                shares = np.outer(weights, above)
                for at, row in enumerate(levels):  # take() is slow with other numbers than intp
                    own += shares[at].take(row.astype(np.intp), mode="clip")
            at_first = (above_first - above)[levels[:, openings]]
            of_opening += np.einsum("w,wo->o", weights, at_first)
            in_session = np.logical_or.reduceat(has, openings, axis=1)
            of_session += np.einsum("w,ws->s", weights, in_session)
        own[openings] += of_opening
        return own + np.where(self.opens, least[1], least[0]) * of_session[self.sessions]

    def _levels_near(self, cells: Numbers, words: int) -> NDArray[np.uint8]:
        """For each word and message a place in _SHARES, by visiting the messages that have it."""
        size = len(self.rows)
        levels = np.zeros(words * size, np.uint8)
        at = cells % size
        before, after, asks = self.before[at], self.after[at], self.asks[at]
        for away in range(len(NEAR), 0, -1):  # from far to near: the greater share stays
            levels[cells[before >= away] - away] = len(NEAR) + 1 - away
            levels[cells[after >= away] + away] = len(NEAR) + 1 - away
        levels[cells[asks & (after > 0)] + 1] = len(NEAR) + 1
        levels[cells] = len(NEAR) + 2
        return levels.reshape(words, size)

    def _levels_by_shifts(self, has: Mask) -> NDArray[np.uint8]:
        """The same for common words, which too many messages have to visit each."""
        levels = has.view(np.uint8) * np.uint8(len(NEAR) + 2)
        for away in range(1, min(len(NEAR) + 1, has.shape[1])):
            same = self.sessions[away:] == self.sessions[:-away]
            earlier, later = has[:, :-away] & same, has[:, away:] & same
            lent = [(earlier, levels[:, away:], away), (later, levels[:, :-away], away)]
            if away == 1:
                lent.append((earlier & self.asks[:-1], levels[:, 1:], 0))
            for lends, target, distance in lent:
                level = np.uint8(len(NEAR) + 1 - distance)
                np.maximum(target, lends.view(np.uint8) * level, out=target)
        return levels


def word_scores(
    query: Query,
    rows_with: Mapping[Phrase, Mask],
    lengths: Ints,
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
    counts = [int(np.count_nonzero(rows)) for rows in masks]
    idfs = [float(np.log(1 + (total - count + 0.5) / (count + 0.5))) for count in counts]
    words = list(zip(masks, idfs, strict=True))
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
    raw = weights * ((K1 + 1) / query_weight)
    raw /= 1 + K1 * (1 - B) + (K1 * B / usual) * lengths
    if question and question.speakers:
        named = reduce(np.bitwise_or, map(rows_with.__getitem__, question.speakers))
        raw += (named & (raw > 0)) * _NAMED
    if question and conversation:
        places, length = conversation.rows, question.length
        openings = places[conversation.opens]
        raw[openings] += (raw[openings] > 0) * (_OPENING + _TOPIC * length)
        if length:
            raw[places] += (raw[places] > 0) * (_NEWS * length * conversation.news)
    # In place from here on: every array of a large scope costs as much as a step of the arithmetic.
    scores = np.exp(np.multiply(raw, -_STEEPNESS, out=raw), out=raw)
    np.subtract(1, scores, out=scores)
    if question and conversation:
        scores[conversation.rows[conversation.asks]] *= _ASKING + (1 - _ASKING) * question.length
    return np.round(scores, 9, out=scores)  # equal rows stay equal whatever was added first
