"""When a statement holds: its time phrase, read against the moment at which it was said."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kemem.records import Micros
from kemem.records.times import to_datetime
from kemem.text.lexicon import load
from kemem.text.when import TimePhrase, time_phrases

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "dates.rules").pattern(name)


@dataclass(frozen=True, slots=True)
class Dated:
    """The time that a statement names, and how to write it.  昨天 -> (…, "2026-01-19", past)"""

    since: Micros
    written: str  # "" where the statement itself is exact
    tense: int  # -1 past, 1 future, 0 where now lies inside and the words do not tell


def without_times(text: str) -> str:
    """The text without its time phrases.  "我下周三去上海" -> "我去上海" """
    kept, end = [], 0
    for phrase in time_phrases(text, _EPOCH) if _pattern("HINT").search(text) else ():
        kept.append(text[end : phrase.start])
        end = phrase.end
    return " ".join(
        _pattern("HOUR").sub("", _pattern("AHEAD").sub("", "".join([*kept, text[end:]]))).split()
    )


def dated(text: str, ts: Micros) -> Dated | None:
    """The first time that a statement names; None for none, or for a habit."""
    now, past = to_datetime(ts), bool(_pattern("PAST").search(text))
    timeless = _pattern("HABIT").search(text) or not _pattern("HINT").search(text)
    phrase = None if timeless else _first(text, now, past)
    if phrase is None:
        return None
    tense = (phrase.since > ts) - (phrase.until <= ts) or (-1 if past else 0)
    exact = re.search(r"\d{4}", phrase.phrase)
    return Dated(phrase.since, "" if exact else _written(phrase, text), tense)


def _first(text: str, now: datetime, past: bool) -> TimePhrase | None:
    """The first phrase; "on Friday" lies ahead where nothing says that it is over."""
    plain = _pattern("AHEAD").sub(r"\1 from now", text)
    rolling = (now - _EPOCH) // _TICK + 1  # 最近, recently: no date
    for at, phrase in enumerate(time_phrases(plain, now)):
        if phrase.until == rolling:
            continue
        if past or _pattern("SPECIFIC").search(phrase.phrase) or phrase.until > rolling:
            return phrase
        return _coming(plain, at, phrase, now)
    return None


def _coming(text: str, at: int, phrase: TimePhrase, now: datetime) -> TimePhrase:
    for days in (6, 364):  # the latest Friday within a week from now, the latest May within a year
        try:
            later = time_phrases(text, now + timedelta(days))[at]
        except (OverflowError, IndexError):
            break
        if later.since > phrase.since:
            return later
    return phrase


def _written(phrase: TimePhrase, text: str) -> str:
    """A range as briefly as it can be: a day, a month, a year, or first and last day."""
    opens, closes = map(to_datetime, (phrase.since, phrase.until - 1))
    first, last = opens.date(), closes.date()
    if closes - opens <= _DAY:
        return first.isoformat()
    months = (first.day, (last + _DAY).day if last.year < 9999 else 0)
    if months != (1, 1):
        return f"{first} {'–' if text.isascii() else '至'} {last}"
    if (first.year, first.month) == (last.year, last.month):
        return f"{first:%Y-%m}"
    return str(first.year) if first.month == 1 else f"{first:%Y-%m} – {last:%Y-%m}"
