"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

from dataclasses import replace

from kemem.reading.question import Asked, Gathered, Ranked
from kemem.types import Match

WORDS = 0.6  # equal weights lose to words alone when the vectors are weak
IN_TIME = 0.25  # how far a message of the time asked for moves towards 1


def fuse(found: Gathered, asked: Asked) -> list[Ranked]:
    """Everything that was found, best first, with the reasons for its place."""
    weight = 1.0 if found.missing else WORDS
    places: dict[Match, tuple[float, tuple[str, ...]]] = {}
    for name, share, matches in (
        ("lexical", weight, found.words),
        ("semantic", 1 - weight, found.meaning),
    ):
        for rank, match in enumerate(matches, 1):
            score, why = places.get(replace(match, score=0), (0.0, ()))
            reason = f"{name}#{rank} {match.score:.2f}"
            places[replace(match, score=0)] = (score + share * match.score, (*why, reason))
    ranked = [_in_time(match, *place, asked) for match, place in places.items() if place[0] > 0]
    ranked.sort(key=lambda each: (-each.match.score, -each.match.ts, each.match.message_id))
    unavailable = tuple(f"{signal}: unavailable" for signal in found.missing)
    return [replace(each, why=(*each.why, *unavailable)) for each in ranked]


def _in_time(match: Match, score: float, why: tuple[str, ...], asked: Asked) -> Ranked:
    """A message of the time that is asked for is worth more."""
    for time in asked.times:
        if time.since <= match.ts < time.until:
            score += IN_TIME * (1 - score)
            why = (*why, f"time: {time.phrase}")
            break
    return Ranked(replace(match, score=round(score, 6)), why)
