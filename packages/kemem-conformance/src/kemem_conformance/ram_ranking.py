"""How the reference store ranks: by words, by vectors, and where a page goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kemem.errors import InvalidArgument
from kemem.records import Match, Matrix, Message, Micros, Model, Rank, Row
from kemem.text.conversation import SPEAKERS, Conversation
from kemem.text.query import ASKING, Phrase, Query, length
from kemem.text.rank import word_scores

Direction = NDArray[np.float64]  # a vector of length 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A message or note, its search text and its place in the order of arrival."""

    row: Row
    words: str
    arrival: int


def contains(words: str, phrase: Phrase) -> bool:
    """Whether the phrase's tokens stand side by side in a search text, which has one blank between.

    "hotpot 火 锅", Phrase(("hot",), prefix=True) -> True
    """
    wanted = " " + " ".join(phrase.tokens) + ("" if phrase.prefix else " ")
    return wanted in f" {words} "


def matches(query: Query, rows: Sequence[Stored], lent: Sequence[bool]) -> list[tuple[Row, float]]:
    """The rows that match, scored by the statistics of all that are given.

    Of messages of a session that are `lent` the others may borrow words.
    """
    if not rows:
        return []
    with_phrase = {
        phrase: np.array([contains(row.words, phrase) for row in rows]) for phrase in query.phrases
    }
    lengths = np.array([length(row.words) for row in rows], dtype=np.int64)
    scores = word_scores(query, with_phrase, lengths, conversation=_talk(rows, lent))
    found = query.evaluate(with_phrase.__getitem__, np.ones(len(rows), dtype=np.bool_))
    if query.conversation:
        found |= scores > 0
    return [
        (stored.row, float(score))
        for stored, score, hit in zip(rows, scores, found, strict=True)
        if hit
    ]


def _talk(rows: Sequence[Stored], lent: Sequence[bool]) -> Conversation:
    numbers: dict[tuple[str, str, str | None], int] = {}
    of_rows = [(it.row.agent_id, it.row.user_id, it.row.session_id) for it in rows]
    voices = [
        SPEAKERS.index(it.row.role)
        if isinstance(it.row, Message) and it.row.role in SPEAKERS
        else len(SPEAKERS)
        for it in rows
    ]
    return Conversation.of(
        np.array([numbers.setdefault(each, len(numbers)) for each in of_rows], np.int64),
        np.array([it.row.ts for it in rows], np.int64),
        np.array(voices, np.int8),
        np.array([contains(it.words, ASKING) for it in rows], np.bool_),
        np.array([length(it.words) for it in rows], np.int64),
        np.array(lent, np.bool_),
    )


def directions(matrix: Matrix, model: Model) -> Direction:
    """The rows of a matrix brought to length 1; rows without a direction are refused."""
    if matrix.ndim != 2 or matrix.shape[1] != model.width:
        raise InvalidArgument(f"vectors must have {model.width} numbers, not {matrix.shape!r}")
    wide = matrix.astype(np.float64)
    if not np.isfinite(wide).all() or not wide.any(axis=1).all():
        raise InvalidArgument("vectors must be finite and not zero")
    lengths: Direction = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / lengths


def similarity(one: Direction, other: Direction) -> float:
    """The cosine, 0-1."""
    return round(float(np.clip(one @ other, 0, 1)), 6)


def names(row: Row | Match) -> tuple[str, str, str]:
    """What breaks ties."""
    return (row.id, row.agent_id, row.user_id)


def place(match: Match) -> tuple[float, Micros, str, str, str]:
    """Best first, then newest, then by id."""
    return (-match.score, -match.ts, *names(match))


def beyond(ranking: list[Match], after: Rank | None) -> list[Match]:
    """What follows the row `after` names or, when that is gone, what follows its place."""
    if after is None:
        return ranking
    for index, hit in enumerate(ranking):
        if hit.id == after.id:
            return ranking[index + 1 :]
    border = (-after.score, -after.ts, after.id)
    return [hit for hit in ranking if place(hit)[:3] > border]
