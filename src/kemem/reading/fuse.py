"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

from dataclasses import dataclass, field, replace

from kemem.reading.question import Asked, Gathered, Ranked
from kemem.types import Match

# Measured on six sets: at 0.7 hybrid search is nowhere below words alone; equal weights lose 4
# points of recall on LoCoMo, where the vectors are weak.
WORDS = 0.7
IN_TIME = 0.25  # how far a message of the time asked for moves towards 1


@dataclass(slots=True)
class _Candidate:
    """A message and what the signals said of it so far."""

    match: Match
    score: float = 0.0
    why: list[str] = field(default_factory=list)


def fuse(found: Gathered, asked: Asked) -> list[Ranked]:
    """Everything that was found, best first, with the reasons for its place."""
    weight = 1.0 if found.missing else WORDS
    candidates: dict[tuple[str, str, str], _Candidate] = {}
    for name, share, matches in (
        ("lexical", weight, found.words),
        ("semantic", 1 - weight, found.meaning),
    ):
        for rank, match in enumerate(matches, 1):
            key = (match.agent_id, match.user_id, match.message_id)
            candidate = candidates.setdefault(key, _Candidate(match))
            candidate.score += share * match.score
            candidate.why.append(f"{name}#{rank} {match.score:.2f}")
    for candidate in candidates.values() if asked.times else ():
        _prefer_time(candidate, asked)
    best = sorted(
        (each for each in candidates.values() if each.score > 0),
        key=lambda each: (-round(each.score, 6), -each.match.ts, each.match.message_id),
    )
    unavailable = [f"{signal}: unavailable" for signal in found.missing]
    return [
        Ranked(replace(each.match, score=round(each.score, 6)), (*each.why, *unavailable))
        for each in best
    ]


def _prefer_time(candidate: _Candidate, asked: Asked) -> None:
    """A message of the time that is asked for is worth more."""
    for time in asked.times:
        if time.since <= candidate.match.ts < time.until:
            candidate.score += IN_TIME * (1 - candidate.score)
            candidate.why.append(f"time: {time.phrase}")
            return
