"""What a turn needs that goes on with an earlier conversation: "I'm back, what's next?"

It asks for no fact, and shares few words with what it goes on with. So the session that a message
stands in tells more than its own words. What is new, and what the user said, counts a little more;
what was said just now counts least: who goes on in the middle of a session still sees that. That a
message opened its session makes it no better: see `kemem.text.conversation`.
"""

from dataclasses import dataclass

import numpy as np

from kemem.records import Micros
from kemem.text.conversation import Conversation, Ints, Numbers, Scores
from kemem.text.query import Mask

USUAL = 0.75  # of a message's worth by meaning: the mean of its session
FRESH, OWN = 0.05, 0.03  # and by words, too: how new it is, and whether the user said it
FADES = 20 * 86_400_000_000  # microseconds in which what is new fades to a third
RUNNING = 0.25  # what a message keeps of its worth while its session is running,
PAUSE = 30 * 60_000_000  # which it is until so many microseconds after its last message;
SITTING = 12 * 3_600_000_000  # what was said this long ago is not in sight any more
_SEEN = 1e-3  # where only time counts: what a message keeps while its session is running,
_APART = 0.5  # and what a row keeps that is in no session


@dataclass(frozen=True, slots=True)
class Continuation:
    """A turn that goes on with one of the conversations of a scope, and when it was sent."""

    talk: Conversation
    times: Ints  # of all rows of the scope,
    own: Mask  # and which of them the user said
    sent: Micros

    def by_words(self, rows: Numbers, scores: Scores) -> Scores:
        """What some rows are worth by words."""
        return self._timed(rows, scores)

    def by_meaning(self, rows: Numbers, scores: Scores, *, all_rows: bool) -> Scores:
        """The same by vectors, with their sessions; of some rows alone, a mean tells nothing."""
        if all_rows:
            sessions = self.talk.session_of_row[rows] + 1
            sums = np.bincount(sessions, scores, self._size)
            means = sums / np.maximum(np.bincount(sessions, minlength=self._size), 1)
            lent = np.where(sessions == 0, scores, means[sessions])
            scores = (1 - USUAL) * scores + USUAL * lent
        return self._timed(rows, scores)

    def by_time(self, rows: Numbers) -> Scores:
        """What some rows are worth where the turn says nothing else: how new their sessions are.

        Notes, and sessions in which only one side speaks, come later: they are what nobody goes on
        with.
        """
        sessions = self.talk.session_of_row[rows]
        last = np.full(self._size, np.iinfo(np.int64).min)
        np.maximum.at(last, sessions, self.times[rows])
        last = np.where(sessions < 0, self.times[rows], last[sessions])
        kept = np.where(self._in_sight(rows), _SEEN, np.where(sessions < 0, _APART, 1.0))
        return np.asarray(np.round(kept * FADES / (FADES + np.maximum(self.sent - last, 0)), 9))

    @property
    def _size(self) -> int:
        return len(self.talk.openings) + 1  # the first or last place is for rows of no session

    def _timed(self, rows: Numbers, scores: Scores) -> Scores:
        """Scores with what their time is worth, rounded: equal rows stay equal."""
        fresh = np.exp(-np.maximum(self.sent - self.times[rows], 0) / FADES)
        worth = (1 - FRESH - OWN) * np.where(self._in_sight(rows), RUNNING, 1.0) * scores
        worth += (scores > 0) * (FRESH * fresh + OWN * self.own[rows])
        return np.round(worth, 9)

    def _in_sight(self, rows: Numbers) -> Mask:
        """Which rows were said lately in a session that is running."""
        sessions, age = self.talk.session_of_row[rows], self.sent - self.times[rows]
        running: Mask = np.zeros(self._size, np.bool_)
        running[sessions[np.abs(age) <= PAUSE]] = True  # clocks may differ a little
        running[-1] = False
        return np.asarray(running[sessions] & (np.abs(age) <= SITTING))
