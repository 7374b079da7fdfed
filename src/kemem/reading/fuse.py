"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

import math
from dataclasses import dataclass, field, replace
from itertools import accumulate

from kemem.reading.question import Asked, Gathered, Ranked
from kemem.types import Match

# Measured on six sets: at 0.7 hybrid search is nowhere below words alone; equal weights lose 4
# points of recall on LoCoMo, where the vectors are weak.
WORDS = 0.7
IN_TIME = 0.25  # how far a row of the time asked for moves towards 1, and how much more it is worth
LINKED = 0.2  # how far a note moves towards 1 that the graph links to a name in the question

# What scores 0.5. Measured on 2,332 questions of eight sets: that keeps 91 % of the evidence among
# the first ten hits, in Chinese and in English, and drops 63 % of best hits in a stranger's store.
HALF_WORDS = 0.44  # of a question of one word or Chinese character;
PER_LENGTH = 0.1  # that much less of one e times as long, as a text holds a smaller share of it
LONGEST = 64
HALF_MEANING = 0.335
ALONE, MANY = 0.5, 50  # among few rows less is enough: chance brings the best of many nearer
STEEPNESS = 5  # a text that is the question itself scores 0.95 or more


@dataclass(slots=True)
class _Candidate:
    """A row and what the signals said of it so far: its place, and what it is worth."""

    match: Match
    value: float = 0.0
    worth: float = 0.0
    why: list[str] = field(default_factory=list)


def fuse(found: Gathered, asked: Asked) -> list[Ranked]:
    """Everything that was found, best first, with the reasons for its place."""
    weight = _weight(found)
    candidates = _candidates(found, weight)
    for each in candidates:
        each.worth = each.value
        _prefer_time(each, asked)
    best = sorted(
        (each for each in candidates if each.value > 0),
        key=lambda each: (-round(each.value, 6), -each.match.ts, each.match.id),
    )
    scores = _scores(best, _half(found, asked, weight))
    unavailable = [f"{signal}: unavailable" for signal in found.missing]
    return [
        Ranked(replace(each.match, score=score), (*each.why, *unavailable))
        for each, score in zip(best, scores, strict=True)
    ]


def _weight(found: Gathered) -> float:
    """The share of words; where one of the two says nothing of any row, the other has it all."""
    if not found.meaning:
        return 1.0
    return WORDS if found.words else 0.0


def _candidates(found: Gathered, weight: float) -> list[_Candidate]:
    """Each row once, with what the signals say of it."""
    candidates: dict[tuple[str, str, str], _Candidate] = {}

    def candidate(match: Match) -> _Candidate:
        key = (match.agent_id, match.user_id, match.id)
        return candidates.setdefault(key, _Candidate(match))

    for name, share, matches in (
        ("lexical", weight, found.words),
        ("semantic", 1 - weight, found.meaning),
    ):
        for rank, match in enumerate(matches, 1):
            each = candidate(match)
            each.value += share * match.score
            each.why.append(f"{name}#{rank} {match.score:.2f}")
    for match in found.graph:
        each = candidate(match)
        each.value += LINKED * match.score * (1 - each.value)
        each.why.append(f"graph: {found.paths[match.id]}")
    return list(candidates.values())


def _prefer_time(candidate: _Candidate, asked: Asked) -> None:
    """A row of the time that is asked for comes earlier."""
    for time in asked.times:
        if time.since <= candidate.match.ts < time.until:
            candidate.value += IN_TIME * (1 - candidate.value)
            candidate.worth *= 1 + IN_TIME
            candidate.why.append(f"time: {time.phrase}")
            return


def _half(found: Gathered, asked: Asked, weight: float) -> float:
    """The worth of a row that scores 0.5."""
    length = len({token for unit in asked.query.units for token in unit.tokens})
    words = HALF_WORDS - PER_LENGTH * math.log(min(max(length, 1), LONGEST))
    half = weight * words + (1 - weight) * HALF_MEANING
    # Meaning finds every row there is; how many there are words cannot tell.
    rows = min(max(len(found.words), len(found.meaning)), MANY) if found.meaning else MANY
    return half * (ALONE + (1 - ALONE) * math.log(rows) / math.log(MANY))


def _scores(best: list[_Candidate], half: float) -> list[float]:
    """What rows in order are worth, 0-1, the same for every question; none less than a later one.

    So a time phrase moves a row up and does not make it an answer.
    """
    odds = [(each.worth / half) ** STEEPNESS for each in reversed(best)]
    rising = accumulate((round(it / (1 + it), 6) for it in odds), max)
    return [*rising][::-1]
