"""What messages borrow from the talk around them, against a definition that anyone can read."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.text import conversation
from kemem.text.conversation import (
    BRIEF,
    HALF,
    NEAR,
    OPENING,
    SESSION,
    TOPIC,
    WHOLE,
    Conversation,
)
from kemem.text.query import ConversationQuery, Phrase, Query
from kemem.text.rank import word_scores

WORDS = (Phrase(("火",)), Phrase(("hot",)), Phrase(("tea",)))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a scope: where and when it was said, by whom, and what it holds."""

    session: int
    time: int
    voice: int  # 0 user, 1 assistant, 2 somebody else
    asks: bool
    seen: bool
    holds: tuple[bool, ...]
    words: int = 3


ROWS = st.builds(
    Row,
    st.integers(0, 2),
    st.integers(0, 30),
    st.sampled_from((0, 1, 0, 1, 2)),
    st.booleans(),
    st.sampled_from((True, True, True, False)),
    st.tuples(*(st.booleans() for _ in WORDS)),
    st.sampled_from((0, 3, BRIEF, 2 * BRIEF, 3 * BRIEF, 100_000)),
)
SCOPES = st.lists(ROWS, max_size=12)


def talk_of(rows: list[Row]) -> Conversation:
    return Conversation.of(
        np.array([row.session for row in rows], np.int64),
        np.array([row.time for row in rows], np.int64),
        np.array([row.voice for row in rows], np.int8),
        np.array([row.asks for row in rows], np.bool_),
        np.array([row.words for row in rows], np.int64),
        np.array([row.seen for row in rows], np.bool_),
    )


def sessions_of(rows: list[Row]) -> list[list[int]]:
    """The rows of each session in which both sides speak, in the order of their times."""
    found = []
    for session in sorted({row.session for row in rows}):
        spoken = [
            at for at, it in enumerate(rows) if it.session == session and it.seen and it.voice < 2
        ]
        if {rows[at].voice for at in spoken} == {0, 1}:
            found.append(sorted(spoken, key=lambda at: (rows[at].time, at)))
    return found


def borrowed(rows: list[Row], session: list[int], place: int, word: int, length: float) -> float:
    """What a word counts for one message: the best that any of its session can lend."""
    if rows[session[place]].holds[word]:
        return 1.0
    elsewhere = OPENING + (TOPIC - OPENING) * length if place == 0 else SESSION
    shares = [0.0]
    for other, at in enumerate(session):
        if rows[at].holds[word]:
            away = abs(other - place)
            fades = round(HALF * math.log2(max(rows[at].words / BRIEF, 1)))
            near = 0.0
            if away <= len(NEAR) and fades + NEAR[away - 1] < WHOLE:
                near = 0.5 ** ((fades + NEAR[away - 1]) / HALF)
            shares.append(max(near, elsewhere))
    return max(shares)


@settings(deadline=None)
@given(
    rows=SCOPES,
    length=st.sampled_from((0.0, 0.5, 1.0)),
    rare=st.sampled_from((0, 3, 1 << 20)),
)
def test_a_word_counts_by_the_best_that_lends_it(rows: list[Row], length: float, rare: int) -> None:
    """Whichever words are rare, and where only some rows are looked at."""
    weights = (1.0, 0.5, 2.0)
    masks = [np.array([row.holds[word] for row in rows], np.bool_) for word in range(len(WORDS))]
    words = [*zip(masks, weights, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation, "_RARE", rare)
        found = talk_of(rows)
        held = dict(zip(found.rows, found.word_weights(words, length), strict=True))
    some = found.rows[::2]
    if len(some):
        assert found.weights_at(some, words, length) == pytest.approx([held[at] for at in some])
    wanted = {
        at: sum(
            weight * borrowed(rows, session, place, word, length)
            for word, weight in enumerate(weights)
        )
        for session in sessions_of(rows)
        for place, at in enumerate(session)
    }
    assert held == pytest.approx(wanted)


@settings(deadline=None)
@given(rows=SCOPES, length=st.sampled_from((0.0, 1.0)))
def test_scores_of_a_talk_stay_between_0_and_1(rows: list[Row], length: float) -> None:
    """A row scores where it holds or borrows a word, and nowhere else."""
    voice = Phrase(("\ue000小",))
    query = Query(WORDS[0], WORDS, ConversationQuery(length, (voice,)))
    masks = {
        phrase: np.array([row.holds[word] for row in rows], np.bool_)
        for word, phrase in enumerate(WORDS)
    }
    named = np.array([row.voice == 1 for row in rows], np.bool_)
    lengths = np.array([3 * sum(row.holds) for row in rows], np.int64)
    scores = word_scores(query, {**masks, voice: named}, lengths, conversation=talk_of(rows))
    lent = {
        at
        for session in sessions_of(rows)
        if any(any(rows[other].holds) for other in session)
        for at in session
    }
    for at, (row, score) in enumerate(zip(rows, scores, strict=True)):
        assert 0 <= score < 1
        assert (score > 0) == (any(row.holds) or at in lent)


@pytest.mark.parametrize("length", [0.0, 1.0])
def test_what_a_message_says_counts_alike_wherever_it_stands(length: float) -> None:
    """The first message of a session, an old one and the newest score alike."""
    day = 86_400_000_000
    rows = [Row(0, at * day, at % 2, False, True, (at in (0, 20, 40),)) for at in range(41)]
    query = Query(WORDS[0], WORDS[:1], ConversationQuery(length, ()))
    masks = {WORDS[0]: np.array([row.holds[0] for row in rows], np.bool_)}
    lengths = np.full(len(rows), 3, np.int64)
    scores = word_scores(query, masks, lengths, conversation=talk_of(rows))
    assert scores[0] == scores[20] == scores[40] == scores.max()


@pytest.mark.parametrize(("words", "keeps"), [(BRIEF, False), (BRIEF + 1, True)])
def test_only_a_short_question_counts_less(words: int, keeps: bool) -> None:
    """Who asks at length tells as well."""
    rows = [Row(0, at, at % 2, at < 2, True, (at in (0, 9),), words) for at in range(10)]
    query = Query(WORDS[0], WORDS[:1], ConversationQuery(0.0, ()))
    masks = {WORDS[0]: np.array([row.holds[0] for row in rows], np.bool_)}
    lengths = np.full(len(rows), words, np.int64)
    scores = word_scores(query, masks, lengths, conversation=talk_of(rows))
    some = word_scores(query, masks, lengths, None, talk_of(rows), np.array([0, 9]))
    assert bool(scores[0] == scores[9]) is keeps
    assert some.tolist() == scores[[0, 9]].tolist()
