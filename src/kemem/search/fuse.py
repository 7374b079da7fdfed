"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from kemem.ports.request import Key
from kemem.records import Match
from kemem.records.times import to_datetime
from kemem.search.understand import VAGUE, ParsedQuery
from kemem.text.when import as_of

# Measured on eight sets: equal weights lose 4 points of recall on LoCoMo, where the vectors are
# weak; words alone lose as many on MADial, where they are strong.
WORDS = 0.77
CURVE = 1.3  # the power of what words are worth: many rows have little of a question
CONTINUED = 0.55  # the share of words in a turn that goes on with a conversation, in other words
PARTS = 0.6  # the share of the sentences that ask, where they make up half the question or more
NEAREST = 20  # rows by meaning that are judged, whatever words they have
UNLISTED = 0.8  # what a row that a signal does not list gets of its last one, where it lists many
IN_TIME = 0.25  # how far a row of the time asked for moves towards 1, and how much more it is worth
LINKED = 0.2  # how far a note moves towards 1 that the graph links to a name in the question, and
# what one is worth at least whose topic is asked for

# What scores 0.5 where no question is judged. Measured on eight sets, before there were judgements:
# that kept 90 % of the evidence among the first ten hits, and dropped more than half of the others.
HALF = 0.34  # of a question of one word or Chinese character;
PER_LENGTH = 0.08  # that much less of one e times as long, as a text holds a smaller share of it,
TOPIC = 0.05  # more of one that tells of a topic, which many rows are about,
CROWD = 0.8  # and more by this share of what the fiftieth row is worth: an answer stands out
HALF_WORDS, PER_LENGTH_OF_WORDS = 0.44, 0.1  # the same where rows borrow no words,
HALF_MEANING = 0.335  # and where only meaning speaks
LEAST, LONGEST = 0.05, 64
ALONE, MANY = 0.5, 50  # among few rows less is enough: chance brings the best of many nearer
_ROUNDING = 2e-6  # values closer than this can be equal
STEEPNESS = 6  # a text that is the question itself scores 0.95 or more
NEWEST = 0.5  # what was said last scores this at most, where one only goes on


class SignalHits(NamedTuple):
    """What words and vectors rank for one text, best first."""

    words: tuple[Match, ...] = ()
    vectors: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class Signals:
    """What each signal ranks, best first, and which signals could not answer."""

    whole: SignalHits
    depth: int  # how many rows a signal could rank
    parts: tuple[SignalHits, ...] = ()
    linked: tuple[tuple[Match, str], ...] = ()  # notes, and the relations that lead to them
    missing: tuple[str, ...] = ()
    in_time: tuple[Match, ...] = ()  # messages of the times that are asked for
    of_topics: tuple[Match, ...] = ()  # notes of the topics that are asked for
    hops: tuple[SignalHits, ...] = ()  # for the question with a name that was found


def fuse(
    signals: Signals,
    query: ParsedQuery,
    most: int | None = None,
    explain: bool = True,
    judged: int = 0,
) -> list[tuple[Match, tuple[str, ...]]]:
    """All candidates, best first, at most `most`; with `explain` the reasons for their places.

    Of the first ones, of which so many will be `judged`, the last are those nearest in meaning:
    what answers in other words has few of the question's.
    """
    whole, rows = signals.whole, dict[Key, Match]()
    # The share of words; where one of the two says nothing of any row, the other has it all.
    share = CONTINUED if query.continues else WORDS
    weight = (share if whole.words else 0.0) if whole.vectors else 1.0
    values = _values(whole, weight, rows, signals.depth)
    if parts := [_values(part, weight, rows, signals.depth) for part in signals.parts]:
        size = max(len(part.query.units) for part in query.parts) / max(len(query.query.units), 1)
        share = PARTS * min(2 * size, 1)
        best_part = {key: max(part.get(key, 0.0) for part in parts) for key in rows}
        values = {key: (1 - share) * values.get(key, 0.0) + share * best_part[key] for key in rows}
    for hop in signals.hops:
        for key, value in _values(hop, weight, rows, signals.depth).items():
            values[key] = max(values.get(key, 0.0), value)
    _add_others(signals, values, rows)
    worths, in_time = dict(values), _in_time(rows, query)
    for key in in_time:
        values[key] += IN_TIME * (1 - values[key])
        worths[key] *= 1 + IN_TIME
    # Only rows that can be among the first are rounded and ordered.
    floor = sorted(values.values())[-most] - _ROUNDING if most and most < len(values) else 0.0
    near = {it[:3] for it in whole.vectors[:NEAREST]} if judged else set[Key]()
    best = sorted(
        (-round(value, 6), -rows[key].ts, key[-1], key)
        for key, value in values.items()
        if value > 0 and (value >= floor or key in near)
    )
    order = _with_nearest([key for *_, key in best], near, judged)
    # None scores less than a later one: a time phrase moves a row up and makes it no better.
    later = max((worths[key] for key, value in values.items() if 0 < value < floor), default=0.0)
    last_first = (worths[key] for key in reversed(order))
    rising = [*accumulate(last_first, max, initial=later)][:0:-1]
    crowd = sorted(worths.values(), reverse=True)[MANY - 1 : MANY]
    half = _half(whole, query, weight, sum(crowd))
    reasons: dict[Key, list[str]] = {key: [] for key in order[:most]}
    if explain:
        _add_reasons(reasons, Signals(SignalHits(), 0) if query.is_bare else signals, in_time)
        if query.continues:
            reasons = {key: [*why, "continues"] for key, why in reasons.items()}
    return [
        (Match(*key, rows[key].ts, round(score, 6)), tuple(why))
        for (key, why), score in zip(reasons.items(), _scores(rising, half, query), strict=False)
    ]


def _scores(worths: Sequence[float], half: float, query: ParsedQuery) -> list[float]:
    """Scores of rows by what they are worth, of which `half` scores 0.5."""
    if query.is_bare:
        return [NEWEST * worth for worth in worths]
    odds = ((worth / half) ** STEEPNESS for worth in worths)
    return [(VAGUE if query.is_polite else 1.0) * each / (1 + each) for each in odds]


def _with_nearest(order: Sequence[Key], near: Set[Key], judged: int) -> list[Key]:
    """Keys of which the first so many include those that are near, in the order that they have."""
    later = [key for key in order[judged:] if key in near]
    spare = [key for key in order[:judged] if key not in near]
    spare = spare[max(len(spare) - len(later), 0) :] if later else []
    moved = {*later, *spare}
    first = [key for key in order[:judged] if key not in moved]
    return [*first, *later, *spare, *(key for key in order[judged:] if key not in moved)]


def _add_others(signals: Signals, values: dict[Key, float], rows: dict[Key, Match]) -> None:
    """Add rows that neither words nor vectors need to rank; collect them in `rows`, too."""
    for match, _ in signals.linked:
        value = values.get(key := match[:3], 0.0)
        rows.setdefault(key, match)
        values[key] = value + LINKED * match.score * (1 - value)
    for match in signals.of_topics:
        rows.setdefault(key := match[:3], match)
        values[key] = max(values.get(key, 0.0), LINKED * match.score)
    for match in signals.in_time:  # candidates, whatever words they have
        rows.setdefault(key := match[:3], match)
        values.setdefault(key, LEAST * match.score)


def _values(
    hits: SignalHits, weight: float, rows: dict[Key, Match], depth: int
) -> dict[Key, float]:
    """What rows are worth by words and vectors; they are collected in `rows`."""
    signals = [(weight, CURVE if weight < 1 else 1.0, hits.words), (1 - weight, 1.0, hits.vectors)]
    # Of a row beyond the end of a list it is only known that it is no better than the last one.
    rests = [
        (UNLISTED * it[-1].score) ** curve if len(it) >= depth else 0.0 for _, curve, it in signals
    ]
    least = sum(share * rest for (share, *_), rest in zip(signals, rests, strict=True))
    values: dict[Key, float] = {}
    for (share, curve, matches), rest in zip(signals, rests, strict=True):
        for match in matches:
            rows[key := match[:3]] = match
            values[key] = values.get(key, least) + share * (match[4] ** curve - rest)
    return values


def _in_time(rows: Mapping[Key, Match], query: ParsedQuery) -> dict[Key, str]:
    """The rows of a time that the question names, with the words that name it."""
    phrases: dict[Key, str] = {}
    newest = max((it.ts for it in rows.values()), default=0) if query.times else 0
    for time in reversed(query.times):
        if newest < time.since:  # all rows are older: the date is meant as of then
            time = as_of(time, to_datetime(newest))
        inside = (key for key, it in rows.items() if time.since <= it.ts < time.until)
        phrases |= dict.fromkeys(inside, time.phrase)
    return phrases


def _add_reasons(
    reasons: Mapping[Key, list[str]], signals: Signals, in_time: Mapping[Key, str]
) -> None:
    """Add to each row what speaks for it."""
    for at, hits in enumerate((signals.whole, *signals.parts)):
        part = f" part {at}" if at else ""
        for name, matches in (("lexical", hits.words), ("semantic", hits.vectors)):
            for rank, match in enumerate(matches, 1):
                if (why := reasons.get(match[:3])) is not None:
                    why.append(f"{name}{part}#{rank} {match.score:.2f}")
    for match, path in signals.linked:
        if (why := reasons.get(match[:3])) is not None:
            why.append(f"graph: {path}")
    for match in signals.of_topics:
        if (why := reasons.get(match[:3])) is not None:
            why.append("topic")
    for key, why in reasons.items():
        why += [f"time: {in_time[key]}"] if key in in_time else []
        why += [f"{signal}: unavailable" for signal in signals.missing]


def _half(hits: SignalHits, query: ParsedQuery, weight: float, crowd: float) -> float:
    """The worth of a row that scores 0.5."""
    length = len({token for unit in query.query.units for token in unit.tokens})
    size = math.log(min(max(length, 1), LONGEST))
    conversation = query.query.conversation
    if conversation and weight:
        half = HALF - PER_LENGTH * size + TOPIC * conversation.length + CROWD * crowd
    else:
        half = weight * (HALF_WORDS - PER_LENGTH_OF_WORDS * size) + (1 - weight) * HALF_MEANING
    # Vectors rank every row there is; how many there are words cannot tell.
    rows = min(max(len(hits.words), len(hits.vectors)), MANY) if hits.vectors else MANY
    return max(half, LEAST) * (ALONE + (1 - ALONE) * math.log(rows) / math.log(MANY))
