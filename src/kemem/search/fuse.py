"""Third stage of search: one ranking from all signals, led by words, scored 0-1."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from kemem.ports.request import Key, key_of
from kemem.records import Match
from kemem.records.times import to_datetime
from kemem.search.signals import ParsedQuery, Ranked, SignalHits, Signals
from kemem.text.when import as_of

# Measured on eight sets: equal weights lose 4 points of recall on LoCoMo, where the vectors are
# weak; words alone lose as many on MADial, where they are strong.
WORDS = 0.77
PARTS = 0.4  # the share of the sentences that ask, where they make up half the question or more
UNLISTED = 0.8  # what a row that a signal does not list gets of its last one, where it lists many
IN_TIME = 0.25  # how far a row of the time asked for moves towards 1, and how much more it is worth
LINKED = 0.2  # how far a note moves towards 1 that the graph links to a name in the question

# What scores 0.5. Measured on the questions of eight sets: that keeps 90 % of the evidence among
# the first ten hits, and drops more than half of those to questions that nothing answers.
HALF = 0.34  # of a question of one word or Chinese character;
PER_LENGTH = 0.08  # that much less of one e times as long, as a text holds a smaller share of it,
TOPIC = 0.05  # more of one that tells of a topic, which many rows are about,
CROWD = 0.8  # and more by this share of what the fiftieth row is worth: an answer stands out
HALF_WORDS, PER_LENGTH_OF_WORDS = 0.44, 0.1  # the same where rows borrow no words,
HALF_MEANING = 0.335  # and where only meaning speaks
LEAST, LONGEST = 0.05, 64
ALONE, MANY = 0.5, 50  # among few rows less is enough: chance brings the best of many nearer
STEEPNESS = 6  # a text that is the question itself scores 0.95 or more


def fuse(signals: Signals, query: ParsedQuery, most: int | None = None) -> list[Ranked]:
    """All candidates, best first, with the reasons for their places; at most `most`."""
    weight = _weight(signals.whole)
    rows: dict[Key, Match] = {}
    values = _values(signals, query, weight, rows)
    for match in signals.graph:
        value = values.get(key_of(match), 0.0)
        rows.setdefault(key_of(match), match)
        values[key_of(match)] = value + LINKED * match.score * (1 - value)
    worths = dict(values)
    in_time = _in_time(rows, query)
    for key in in_time:
        values[key] += IN_TIME * (1 - values[key])
        worths[key] *= 1 + IN_TIME
    best = [
        rows[key]
        for *_, key in sorted(
            (-round(value, 6), -rows[key].ts, key[-1], key)
            for key, value in values.items()
            if value > 0
        )
    ]
    # None scores less than a later one: a time phrase moves a row up and makes it no better.
    rising = accumulate((worths[key_of(match)] for match in reversed(best)), max)
    crowd = sorted(worths.values(), reverse=True)[MANY - 1 : MANY]
    half = _half(signals.whole, query, weight, crowd)
    head = [*zip(best, [*rising][::-1], strict=True)][:most]
    reasons = _reasons(signals, in_time, {key_of(match) for match, _ in head})
    return [
        Ranked(match._replace(score=_score(worth, half)), tuple(reasons[key_of(match)]))
        for match, worth in head
    ]


def _weight(hits: SignalHits) -> float:
    """The share of words; where one of the two says nothing of any row, the other has it all."""
    if not hits.vectors:
        return 1.0
    return WORDS if hits.words else 0.0


def _values(
    signals: Signals, query: ParsedQuery, weight: float, rows: dict[Key, Match]
) -> dict[Key, float]:
    """What rows are worth by words and vectors, the whole question and what it asks.

    They are collected in `rows`.
    """
    whole = _value(signals.whole, weight, rows, signals.depth)
    parts = [_value(part, weight, rows, signals.depth) for part in signals.parts]
    if not parts:
        return whole
    size = max(len(part.query.units) for part in query.parts) / max(len(query.query.units), 1)
    share = PARTS * min(2 * size, 1)
    best = ((key, max(part.get(key, 0.0) for part in parts)) for key in rows)
    return {key: (1 - share) * whole.get(key, 0.0) + share * value for key, value in best}


def _value(hits: SignalHits, weight: float, rows: dict[Key, Match], depth: int) -> dict[Key, float]:
    signals = [(weight, hits.words), (1 - weight, hits.vectors)]
    # Of a row beyond the end of a list it is only known that it is no better than the last one.
    rests = [UNLISTED * it[-1].score if len(it) >= depth else 0.0 for _, it in signals]
    least = sum(share * rest for (share, _), rest in zip(signals, rests, strict=True))
    values: dict[Key, float] = {}
    for (share, matches), rest in zip(signals, rests, strict=True):
        for match in matches:
            key = key_of(match)
            rows[key] = match
            values[key] = values.get(key, least) + share * (match.score - rest)
    return values


def _in_time(rows: Mapping[Key, Match], query: ParsedQuery) -> dict[Key, str]:
    """The rows of a time that is asked for, with the words that name it."""
    found: dict[Key, str] = {}
    newest = max((it.ts for it in rows.values()), default=0)
    for time in reversed(query.times):
        if newest < time.since:  # all that was said is older: the date is meant as of then
            time = as_of(time, to_datetime(newest))
        inside = (key for key, it in rows.items() if time.since <= it.ts < time.until)
        found |= dict.fromkeys(inside, time.phrase)
    return found


def _reasons(
    signals: Signals, in_time: Mapping[Key, str], wanted: set[Key]
) -> dict[Key, list[str]]:
    """What speaks for rows."""
    lists = [("lexical", signals.whole.words), ("semantic", signals.whole.vectors)]
    for at, part in enumerate(signals.parts, 1):
        lists += [(f"lexical part {at}", part.words), (f"semantic part {at}", part.vectors)]
    reasons: dict[Key, list[str]] = {key: [] for key in wanted}
    for name, matches in lists:
        for rank, match in enumerate(matches, 1):
            if (key := key_of(match)) in wanted:
                reasons[key].append(f"{name}#{rank} {match.score:.2f}")
    for match in signals.graph:
        if (key := key_of(match)) in wanted:
            reasons[key].append(f"graph: {signals.paths[match.id]}")
    for key, why in reasons.items():
        why += [f"time: {in_time[key]}"] if key in in_time else []
        why += [f"{signal}: unavailable" for signal in signals.missing]
    return reasons


def _half(hits: SignalHits, query: ParsedQuery, weight: float, crowd: Sequence[float]) -> float:
    """The worth of a row that scores 0.5."""
    length = len({token for unit in query.query.units for token in unit.tokens})
    size = math.log(min(max(length, 1), LONGEST))
    conversation = query.query.conversation
    if conversation and weight:
        half = HALF - PER_LENGTH * size + TOPIC * conversation.length + CROWD * sum(crowd)
    else:
        words = HALF_WORDS - PER_LENGTH_OF_WORDS * size
        half = weight * words + (1 - weight) * HALF_MEANING
    # Vectors rank every row there is; how many there are words cannot tell.
    rows = min(max(len(hits.words), len(hits.vectors)), MANY) if hits.vectors else MANY
    return max(half, LEAST) * (ALONE + (1 - ALONE) * math.log(rows) / math.log(MANY))


def _score(worth: float, half: float) -> float:
    """What a row is worth, 0-1, the same for every question."""
    odds = (worth / half) ** STEEPNESS
    return round(odds / (1 + odds), 6)
