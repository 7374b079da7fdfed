"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

from dataclasses import dataclass, field, replace

from kemem.reading.question import Asked, Gathered, Ranked
from kemem.types import Match

# Measured on six sets: at 0.7 hybrid search is nowhere below words alone; equal weights lose 4
# points of recall on LoCoMo, where the vectors are weak.
WORDS = 0.7
IN_TIME = 0.25  # how far a row of the time asked for moves towards 1
LINKED = 0.2  # how far a note moves towards 1 that the graph links to a name in the question


@dataclass(slots=True)
class _Candidate:
    """A row and what the signals said of it so far."""

    match: Match
    score: float = 0.0
    why: list[str] = field(default_factory=list)


def fuse(found: Gathered, asked: Asked) -> list[Ranked]:
    """Everything that was found, best first, with the reasons for its place."""
    weight = 1.0 if "semantic" in found.missing else WORDS
    candidates: dict[tuple[str, str, str], _Candidate] = {}

    def candidate(match: Match) -> _Candidate:
        return candidates.setdefault(_key(match), _Candidate(match))

    for name, share, matches in (
        ("lexical", weight, found.words),
        ("semantic", 1 - weight, found.meaning),
    ):
        for rank, match in enumerate(matches, 1):
            each = candidate(match)
            each.score += share * match.score
            each.why.append(f"{name}#{rank} {match.score:.2f}")
    for match in found.graph:
        each = candidate(match)
        each.score += LINKED * match.score * (1 - each.score)
        each.why.append(f"graph: {found.paths[match.id]}")
    for each in candidates.values() if asked.times else ():
        _prefer_time(each, asked)
    best = sorted(
        (each for each in candidates.values() if each.score > 0),
        key=lambda each: (-round(each.score, 6), -each.match.ts, each.match.id),
    )
    unavailable = [f"{signal}: unavailable" for signal in found.missing]
    return [
        Ranked(replace(each.match, score=round(each.score, 6)), (*each.why, *unavailable))
        for each in best
    ]


def _key(match: Match) -> tuple[str, str, str]:
    return (match.agent_id, match.user_id, match.id)


def _prefer_time(candidate: _Candidate, asked: Asked) -> None:
    """A row of the time that is asked for is worth more."""
    for time in asked.times:
        if time.since <= candidate.match.ts < time.until:
            candidate.score += IN_TIME * (1 - candidate.score)
            candidate.why.append(f"time: {time.phrase}")
            return
