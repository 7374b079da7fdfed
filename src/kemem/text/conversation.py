"""Context of a message in ranking: a short turn means what the turns near it say.

"Yes, in May" answers "Did you see Rome?" and holds none of its words. So a word of the query that a
message lacks counts in part where a message near it has the word. The shares were measured on eight
sets in Chinese and English; `docs/benchmarks.md` says what each of them is worth.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kemem.records import MESSAGES, ROLES, Where
from kemem.text.query import Mask

SPEAKERS = ROLES[:2]  # user and assistant; systems and tools take no part in a conversation
NEAR = (0.6, 0.4, 0.3, 0.25, 0.2)  # what a word counts that is said 1, 2, … messages away,
ASKED = 0.9  # in the question right before,
SESSION = 0.12  # elsewhere in the session,
OPENING, TOPIC = 0.25, 0.7  # and there for its first message, which sets out what it is about:
# the more, the longer the question
RECENT = 14 * 86_400_000_000  # microseconds in which a message's news falls to a third
_SHARES = np.array([0, *reversed(NEAR), ASKED, 1])
_CELLS = 1 << 20  # of the table of words and messages that is worked on at once

Numbers = NDArray[np.intp]
Shares = NDArray[np.float64]


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
    times: NDArray[np.int64]
    asks: Mask  # whether each is a question
    sessions: Numbers  # numbered from 0
    before: Numbers  # messages of the session that come earlier
    after: Numbers  # and later

    @classmethod
    def of(
        cls,
        sessions: NDArray[np.int64],
        times: NDArray[np.int64],
        speakers: NDArray[np.int8],
        asks: Mask,
        visible: Mask,
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
        return cls(
            rows=rows,
            times=times[rows],
            asks=asks[rows],
            sessions=np.repeat(np.arange(len(starts)), sizes),
            before=before,
            after=np.repeat(sizes, sizes) - before - 1,
        )

    @classmethod
    def join(cls, parts: Sequence["Conversation"], starts: Iterable[int]) -> "Conversation":
        """The conversations of several spaces as one; a space's rows begin at its start."""
        pairs = [(part, at) for part, at in zip(parts, starts, strict=False) if len(part.rows)]
        if len(pairs) == 1:
            ((part, start),) = pairs
            return replace(part, rows=part.rows + start) if start else part
        offsets = np.cumsum([0, *(part.sessions[-1] + 1 for part, _ in pairs)])

        def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate([*arrays, np.zeros(0, np.intp)])

        return cls(
            rows=joined([part.rows + start for part, start in pairs]),
            times=joined([part.times for part, _ in pairs]),
            asks=joined([part.asks for part, _ in pairs]).astype(np.bool_),
            sessions=joined([it.sessions + n for (it, _), n in zip(pairs, offsets, strict=False)]),
            before=joined([part.before for part, _ in pairs]),
            after=joined([part.after for part, _ in pairs]),
        )

    @property
    def opens(self) -> Mask:
        """Which messages are the first of their sessions."""
        return np.equal(self.before, 0)

    @property
    def news(self) -> Shares:
        """0-1: how near each message is to the newest one of all."""
        age = (self.times.max(initial=0) - self.times) / RECENT
        return np.asarray(np.exp(-age), np.float64)

    def word_weights(self, words: Sequence[tuple[Mask, float]], length: float) -> Shares:
        """The weight of the words that each message has, itself or by its context."""
        least = np.where(self.opens, OPENING + (TOPIC - OPENING) * length, SESSION)
        weights = np.zeros(len(self.rows))
        step = max(_CELLS // max(len(self.rows), 1), 1)
        for start in range(0, len(words) if len(self.rows) else 0, step):
            weights += self._context_share(words[start : start + step], least)
        return weights

    def _context_share(self, words: Sequence[tuple[Mask, float]], least: Shares) -> Shares:
        size = len(self.rows)
        present = np.concatenate([mask[self.rows] for mask, _ in words])
        cells = np.flatnonzero(present)  # of a table: words by messages
        at = cells % size
        before, after, asks = self.before[at], self.after[at], self.asks[at]
        levels = np.zeros(len(present), np.int8)  # places in _SHARES: a byte each, few are set
        # From far to near, so that the greater share stays.
        for away in range(len(NEAR), 0, -1):
            level = len(NEAR) + 1 - away
            levels[cells[before >= away] - away] = level
            levels[cells[after >= away] + away] = level
        levels[cells[asks & (after > 0)] + 1] = len(NEAR) + 1
        levels[cells] = len(NEAR) + 2
        in_session = np.zeros((len(words), int(self.sessions[-1]) + 1), np.bool_)
        in_session[cells // size, self.sessions[at]] = True
        weights = np.array([weight for _, weight in words])
        of_session: Shares = np.einsum("w,ws->s", weights, in_session)
        near = np.flatnonzero(levels)
        word, row = np.divmod(near, size)
        above = np.maximum(_SHARES[levels[near]] - least[row], 0)
        own = np.bincount(row, weights[word] * above, minlength=size)
        return own + least * of_session[self.sessions]
