"""What the messages of a conversation borrow from each other.

A short turn means what the turns near it say. "Yes, in May" answers "Did you see Rome?" and holds
none of its words. So a word of the query that a message lacks counts in part where a message near
it has the word: the more, the nearer and the shorter that one is. A page of an assistant has many
words, and says little about the turns around it. The shares were measured on eight sets in Chinese
and English; `docs/benchmarks.md` says what each of them is worth. That a message opens its session,
or is new, makes it no better by itself: that helped only the sets it was chosen on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kemem.records import ROLES
from kemem.text.query import Mask

SPEAKERS = ROLES[:2]  # user and assistant; systems and tools take no part in a conversation
HALF = 16  # steps in which a word fades to half of its weight when one message lends it to another:
NEAR = (11, 21, 28, 32, 37)  # so many for 1, 2, … messages away, which leave 0.62, 0.4, 0.3, …
BRIEF = 40  # words; and from a longer message HALF whenever it is twice as long
SESSION = 0.12  # what a word counts that is said elsewhere in the session,
OPENING, TOPIC = 0.25, 0.7  # and there for its first message, which sets out what it is about:
# the more, the longer the question
WHOLE = 128  # the level of a word that a message has itself; each step takes one away
_SHARES = 2.0 ** ((np.arange(WHOLE + 1) - WHOLE) / HALF)
_SHARES[0] = 0
_AROUND = np.arange(-len(NEAR), len(NEAR) + 1)
_PIECE = 1 << 13  # slots that are worked on at once: they stay in the processor's cache
_RARE = 40  # a word that one of so many messages has is rare
_VISITED = 1 << 17  # places near rare words that a guess looks at

Numbers = NDArray[np.intp]
Ints = NDArray[np.int64]
Scores = NDArray[np.float64]
Guess = NDArray[np.float32]
Levels = NDArray[np.uint8]  # places in _SHARES


@dataclass(frozen=True)
class Conversation:
    """The messages of sessions in which both sides speak, session by session, as they were said.

    Each has a slot. Sessions lie so far apart that none lends a word to the next.
    """

    rows: Numbers  # their places among the rows of a scope
    questions: Numbers  # places of those that ask; a longer one than BRIEF tells as well
    openings: Numbers  # which of them are the first of their sessions
    slots: Numbers
    slot_of: Numbers  # for each row of the scope; -1 where it is not among them
    lends: Levels  # for each row of the scope: at which level those right beside it would have it

    @property
    def sizes(self) -> Numbers:
        """How many messages each session has."""
        return np.diff(self.openings, append=len(self.rows))

    @cached_property
    def session_of(self) -> Numbers:
        """For each slot its session, numbered from 0."""
        sessions = np.repeat(np.arange(len(self.openings)), self.sizes + len(NEAR))
        return np.pad(sessions, (len(NEAR) if len(self.rows) else 0, 0))

    @cached_property
    def row_at(self) -> NDArray[np.int32]:
        """For each slot its row; -1 between sessions."""
        last = int(self.slots[-1]) if len(self.slots) else 0
        rows = np.full(last + 2 * len(NEAR) + 1, -1, np.int32)
        rows[self.slots] = self.rows.astype(np.int32)
        return rows

    @cached_property
    def session_of_row(self) -> NDArray[np.int32]:
        """For each row of the scope its session; -1 where it is in none."""
        sessions = np.full(len(self.slot_of), -1, np.int32)
        sessions[self.rows] = np.repeat(np.arange(len(self.openings), dtype=np.int32), self.sizes)
        return sessions

    @cached_property
    def asks(self) -> Mask:
        """For each row of the scope whether it asks."""
        asking = np.zeros(len(self.slot_of), np.bool_)
        asking[self.questions] = True
        return asking

    def before(self, rows: Numbers, count: int) -> list[list[int]]:
        """For each of some rows those said right before it, nearest first; at most len(NEAR)."""
        slots = self.slot_of[rows[:, np.newaxis]]
        said = self.row_at[(slots - np.arange(1, count + 1)).clip(0)]
        return [[it for it in some if it >= 0] for some in np.where(slots < 0, -1, said).tolist()]

    @property
    def nbytes(self) -> int:
        """The memory of its arrays."""
        return sum(it.nbytes for it in vars(self).values())

    @classmethod
    def of(
        cls,
        sessions: Ints,
        times: Ints,
        speakers: NDArray[np.int8],
        asks: Mask,
        lengths: Ints,
        visible: Mask,
    ) -> "Conversation":
        """The conversation among the `visible` rows; a speaker is a place in SPEAKERS."""
        rows = np.flatnonzero(visible & (speakers < len(SPEAKERS)))
        of_rows = sessions[rows]
        speaks = np.zeros((int(sessions.max(initial=-1)) + 1) * len(SPEAKERS), np.bool_)
        speaks[of_rows * len(SPEAKERS) + speakers[rows]] = True
        is_talk = np.all(speaks.reshape(-1, len(SPEAKERS)), axis=1)[of_rows]
        if not is_talk.all():
            rows, of_rows = rows[is_talk], of_rows[is_talk]
        if _has_inversion(of_rows, times[rows]):  # else rows came as they were said
            order = np.lexsort((times[rows], of_rows))
            rows, of_rows = rows[order], of_rows[order]
        openings = np.flatnonzero(np.diff(of_rows, prepend=-1))
        faded = np.rint(HALF * np.log2(np.maximum(lengths, BRIEF) / BRIEF))
        lends = (WHOLE - np.minimum(faded, WHOLE)).astype(np.uint8)
        return cls._with_slots(rows, rows[(asks & (lengths <= BRIEF))[rows]], openings, lends)

    @classmethod
    def _with_slots(
        cls, rows: Numbers, questions: Numbers, openings: Numbers, lends: Levels
    ) -> "Conversation":
        sizes = np.diff(openings, append=len(rows))
        slots = np.arange(len(rows)) + len(NEAR) * np.repeat(np.arange(len(openings)) + 1, sizes)
        slot_of = np.full(len(lends), -1)
        slot_of[rows] = slots
        return cls(rows, questions, openings, slots, slot_of, lends)

    @classmethod
    def join(cls, parts: Sequence["Conversation"], starts: Numbers) -> "Conversation":
        """The conversations of several spaces as one; a space's rows begin at its start."""
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.intp)
        columns, size = [(none, none, none)], 0
        for part, start in zip(parts, starts, strict=False):
            rows, questions = part.rows + start, part.questions + start
            columns.append((rows, questions, part.openings + size))
            size += len(rows)
        merged: list[Numbers] = [np.concatenate(each) for each in zip(*columns, strict=True)]
        lends = np.concatenate([np.zeros(0, np.uint8), *(part.lends for part in parts)])
        return cls._with_slots(merged[0], merged[1], merged[2], lends)

    def word_weights(self, words: Sequence[tuple[Mask, float]], length: float) -> Scores:
        """The weight of the words that each message has, itself or by its context."""
        size, first = len(self.session_of), self.slots[self.openings]
        own, levels = np.zeros(size), np.zeros(size, np.uint8)
        of_opening, of_session = np.zeros(len(first)), np.zeros(len(first))
        # The least that a word of the session counts, in a message and in its first one.
        least = (SESSION, OPENING + (TOPIC - OPENING) * length)
        above, above_first = (np.maximum(_SHARES - share, 0) for share in least)
        for mask, weight in words if size else ():
            rows = np.flatnonzero(mask)
            slots = self.slot_of.take(rows, mode="clip")
            has, lends = slots[slots >= 0], self.lends[rows[slots >= 0]]
            shares, is_rare = weight * above, len(has) * _RARE < size
            near = np.add.outer(_AROUND, has) if is_rare else np.zeros(0, np.intp)
            if is_rare:
                np.maximum.at(levels, near, _faded(lends))
            else:  # too many messages have it to visit the slots near each
                levels = _levels_by_shifts(has, lends, size)
            levels[has] = WHOLE
            near = near.ravel()
            # A slot that is there twice is added once. take() is slow with other numbers than intp.
            own[near] += shares.take(levels.take(near).astype(np.intp), mode="clip")
            for at in range(0, 0 if is_rare else size, _PIECE):
                piece = levels[at : at + _PIECE].astype(np.intp)
                own[at : at + _PIECE] += shares.take(piece, mode="clip")
            of_opening += weight * (above_first - above)[levels[first]]
            in_session = np.zeros(len(first), np.bool_)
            in_session[self.session_of.take(has, mode="clip")] = True
            of_session += weight * in_session
            levels[near if is_rare else ...] = 0
        weights = of_session.take(self.session_of, mode="clip")
        weights *= SESSION
        weights[first] = least[1] * of_session + of_opening
        weights += own
        return weights.take(self.slots, mode="clip")

    def weights_at(
        self, rows: Numbers, words: Sequence[tuple[Mask, float]], length: float
    ) -> Scores:
        """The same for some rows, in a time that hardly depends on how many others there are; rows
        that are not among the messages have their own words.
        """
        slots, sessions = self.slot_of[rows], self.session_of_row[rows]
        inside = slots >= 0
        near = self.row_at[np.add.outer(_AROUND, slots * inside)].astype(np.intp)
        near[:, ~inside], near[len(NEAR)] = -1, rows
        is_row = near >= 0
        first = inside & (slots == self.slots[self.openings].take(sessions, mode="clip"))
        least = np.where(first, OPENING + (TOPIC - OPENING) * length, SESSION) * inside
        weights = np.zeros(len(rows))
        heard = _faded(self.lends[near] * is_row)
        heard[len(NEAR)] = WHOLE
        for mask, weight in words:
            levels = (mask[near] * heard).max(axis=0, initial=0)
            lends = self._sessions_with(np.flatnonzero(mask))[sessions]
            weights += weight * np.maximum(_SHARES[levels], least * lends)
        return weights

    def guess(self, words: Sequence[tuple[Mask, float]], length: float) -> Guess:
        """About what weights_at() tells of every row: what is lent counts for rare words only."""
        # The last place: between sessions.
        guess, lent = np.zeros((2, len(self.slot_of) + 1), np.float32)
        of_session, room = np.zeros(len(self.openings) + 1, np.float32), _VISITED
        common, shares = list[tuple[Mask, float]](), _SHARES.astype(np.float32)
        for mask, weight in sorted(words, key=lambda it: -it[1]):
            room -= int(np.count_nonzero(mask)) * len(_AROUND)
            if room < 0:
                common.append((mask, weight))
                continue
            rows = np.flatnonzero(mask)
            guess[rows] += weight
            of_session += weight * self._sessions_with(rows)
            inside = self.slot_of[rows] >= 0
            near = self.row_at[np.add.outer(_AROUND, self.slot_of[rows[inside]])].astype(np.intp)
            np.maximum.at(lent, near, shares[_faded(self.lends[rows[inside]])])
            lent[near[len(NEAR)]] = 0
            near = near.ravel()
            guess[near] += np.float32(weight) * lent[near]
            lent[near] = 0
        for at in range(0, len(common), 8):
            guess[:-1] += _sums(common[at : at + 8])
        first = self.rows[self.openings]
        least = (OPENING + (TOPIC - OPENING) * length) * of_session[:-1]
        guess[first] = np.maximum(guess[first], least)
        return guess[:-1]

    def _sessions_with(self, rows: Numbers) -> Mask:
        """Which sessions have a word that some rows have; the last is none."""
        sessions = np.zeros(len(self.openings) + 1, np.bool_)
        sessions[self.session_of_row[rows]] = True
        sessions[-1] = False
        return sessions


def _has_inversion(sessions: Ints, times: Ints) -> bool:
    """Whether some message comes after one of a later session, or a later one of its own."""
    apart = sessions[1:] - sessions[:-1]
    return bool((apart < 0).any() or ((times[1:] < times[:-1]) & (apart == 0)).any())


def _faded(lends: Levels) -> Levels:
    """What is left of levels as many messages away as _AROUND tells, each in a row."""
    fades = np.array([*NEAR[::-1], 0, *NEAR], np.uint8)[:, np.newaxis]
    return np.asarray(np.maximum(lends, fades) - fades)


def _levels_by_shifts(has: Numbers, lends: Levels, size: int) -> Levels:
    """The levels of a word by the messages near each slot that have and lend it."""
    held, levels = np.zeros((2, size), np.uint8)
    held[has] = lends
    inner = levels[len(NEAR) : -len(NEAR)]
    for away, fades in enumerate(map(np.uint8, NEAR), 1):
        start, end = len(NEAR) - away, size - len(NEAR) - away
        lent = np.maximum(held[start:end], held[start + 2 * away : end + 2 * away])
        np.maximum(lent, fades, out=lent)
        lent -= fades
        np.maximum(inner, lent, out=inner)
    return levels


def _sums(words: Sequence[tuple[Mask, float]]) -> Guess:
    """For each row the weight of those of at most eight words that it has."""
    held, sums = np.zeros(len(words[0][0]), np.uint8), np.zeros(1, np.float32)
    for at, (mask, weight) in enumerate(words):
        held |= mask.view(np.uint8) << np.uint8(at)
        sums = np.append(sums, sums + np.float32(weight))
    return sums.take(held, mode="clip")
