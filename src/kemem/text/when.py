"""Time phrases, Chinese and English, read against a clock.

- A day runs from local midnight to local midnight; weeks start on Monday; seasons are northern.
- A unit counted back is the calendar unit it lands in: "3 days ago" is that day, "两个月前" that
  month; hours and minutes are one unit wide around the moment.
- A stretch ("最近三天", "the past week") rolls: it ends with now, and now is part of it.
- A month, date, season or weekday without further words is the latest that has begun.
- A date that does not exist ("2月30日", "99999 years ago") is not a phrase.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, partial
from itertools import chain

from kemem.errors import InvalidArgument
from kemem.text.lexicon import load


@dataclass(frozen=True, slots=True)
class TimePhrase:
    """Words that name a range of time, and the range.  "昨天" -> yesterday, midnight to midnight"""

    since: int  # UTC microseconds, inclusive
    until: int  # UTC microseconds, exclusive
    phrase: str  # verbatim: text[start:end]
    start: int
    end: int
    yearly: bool = field(default=False, compare=False)  # a date of which the year is not said


_Range = tuple[datetime, datetime]
_Build = Callable[..., _Range]  # called with now and the named groups of its pattern

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


def time_phrases(text: str, now: datetime) -> list[TimePhrase]:
    """The time phrases of a text, in order; the user's time zone is that of `now`.

    "昨天下午 or last May" -> [TimePhrase(…, "昨天下午", 0, 4), TimePhrase(…, "last May", 8, 16)]
    """
    if now.utcoffset() is None:
        raise InvalidArgument(f"now must carry a time zone, not {now!r}", field="now")
    folded, phrases, last = text.translate(_FOLD), [], 0
    rules = chain(*(_rules(it) for it, sign in _SIGNS.items() if sign.search(folded)))
    matches = [(match, build) for pattern, build in rules for match in pattern.finditer(folded)]
    # Without overlap: the leftmost, of these the longest, of these the first rule's.
    for match, build in sorted(matches, key=lambda each: (each[0].start(), -each[0].end())):
        start, end = match.span()
        if start < last:
            continue
        last = end
        groups = {slot: " ".join(it.lower().split()) for slot, it in match.groupdict("").items()}
        try:
            since, until = ((moment - _EPOCH) // _TICK for moment in build(now, **groups))
        except (ValueError, OverflowError):  # no such date
            continue
        if since < until:  # a zone can skip a whole day: Samoa had no 30 December 2011
            yearly = build is _dated and not (groups.get("year") or groups.get("which"))
            phrases.append(TimePhrase(since, until, text[start:end], start, end, yearly))
    return phrases


def as_of(time: TimePhrase, then: datetime) -> TimePhrase:
    """What a date without a year meant at an earlier time; others stay.  "5月4日" -> that year's"""
    return next(iter(time_phrases(time.phrase, then)), time) if time.yearly else time


# One character for one, so that positions in the folded text are positions in the text.
_FOLD = str.maketrans(
    "後週個剛來過這禮號兩两鐘鍾時幾裡裏間陣頭淩〇　" + "".join(map(chr, range(0xFF01, 0xFF5F))),
    "后周个刚来过这礼号二二钟钟时几里里间阵头凌零 " + "".join(map(chr, range(0x21, 0x7F))),
)
_AHEAD = {"后", "未来", "接下来", "今后", "from now", "next", "coming"}
_FEW = {"几", "好几", "few", "several"}
_DIGITS = str.maketrans("零一二三四五六七八九", "0123456789")
_HOURS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
# Half a month is said loosely: a week is a better answer than one day.
_HALVES = {"hour": (30, "minute"), "day": (12, "hour"), "month": (2, "week"), "year": (6, "month")}


def _table(name: str) -> Mapping[str, str]:
    return load(__package__, "when.rules").tables[name]


def _number(word: str) -> int:
    """A number in words or digits.  "二十三" -> 23, "twenty-two" -> 22"""
    tens, ten, ones = word.rpartition("十")
    chinese, english = _table("ZH_NUMBERS"), _table("EN_NUMBERS")
    if ten:
        return 10 * int(chinese[tens or "一"]) + (int(chinese[ones]) if ones else 0)
    return sum(int(chinese.get(it) or english.get(it) or it) for it in re.split("[ -]", word))


def _offset(word: str) -> int:
    return int(_table("OFFSETS")[word])  # from the current unit: 上 -> -1


def _amount(count: str, unit: str, way: str) -> tuple[int, str]:
    """Whole units, back or ahead.  ("半", "年", "后") -> (6, "month")"""
    unit = _table("UNITS").get(unit, unit)
    number, unit = _HALVES[unit] if count.startswith(("半", "half")) else (_number(count), unit)
    return number if way in _AHEAD else -number, unit


def _index(day: date) -> int:
    return day.year * 12 + day.month - 1  # months since year 0: 2024-05-03 -> 24292


def _first(index: int) -> date:
    return date(index // 12, index % 12 + 1, 1)  # 24292 -> 2024-05-01


def _days(first: date, count: int, now: datetime, part: str = "") -> _Range:
    """Local days, or a part of them.  (2024-05-03, 1, "下午") -> 12:00 to 18:00"""
    hours = _table("PARTS")[part] if part else "0-24"
    opens, closes = (timedelta(hours=int(hour)) for hour in hours.split("-"))
    midnight = datetime.combine(first, time(), now.tzinfo)
    # Adding to an aware datetime moves the wall clock: noon stays noon when the zone shifts.
    return midnight + opens, midnight + timedelta(count - 1) + closes


def _period(unit: str, offset: int, now: datetime) -> _Range:
    """A calendar unit, counted from the current one.  ("week", -1) -> last week"""
    if unit in _DAYS:
        length = _DAYS[unit]
        return _days(now.date() + timedelta(offset * length - now.weekday() % length), length, now)
    length = _MONTHS[unit]
    return _months(now, (_index(now) // length + offset) * length, length)


def _months(now: datetime, index: int, count: int, day: str = "", part: str = "") -> _Range:
    """Calendar months, or a day or a third of one.  (24292, 1, "初") -> 1 to 10 May 2024"""
    first, past = _first(index), _first(index + count)
    if day:
        first = first.replace(day=_number(day))
        past = min(past, first + timedelta(int(_table("THIRDS").get(day, 1))))
    return _days(first, (past - first).days, now, part)


def _shift(now: datetime, count: int, unit: str) -> datetime:
    """Now moved by so many units: hours by elapsed time, days and longer by the wall clock."""
    if unit in _HOURS:
        return now.astimezone(UTC) + count * _HOURS[unit]
    if unit in _DAYS:
        return now + timedelta(count * _DAYS[unit])
    month = _first(_index(now) + count * _MONTHS[unit])
    last = monthrange(month.year, month.month)[1]
    return now.replace(year=month.year, month=month.month, day=min(now.day, last))


def _latest_year(month: int, day: int, now: datetime) -> int:
    """The year when such a date last began; 29 February can lie eight years back."""
    for year in range(now.year, now.year - 9, -1):
        if day <= monthrange(year, month)[1] and date(year, month, day) <= now.date():
            return year
    raise ValueError(f"no month {month} has a day {day}")


def _year(which: str, month: int, count: int, now: datetime) -> int:
    """The year when the last, this or the next turn of a month or season begins."""
    if which == "next":
        return now.year + (month <= now.month)
    # In January, the winter of last year is still this winter.
    this = now.year - (month + count - 12 > now.month)
    over = this * 12 + month + count <= now.year * 12 + now.month
    return this - (which == "last" and not over)


def _named_day(now: datetime, day: str = "this", part: str = "") -> _Range:
    return _days(now.date() + timedelta(_offset(day)), 1, now, part)


def _named_period(now: datetime, which: str, unit: str) -> _Range:
    return _period(_table("UNITS").get(unit, unit), _offset(which), now)


def _named_month(now: datetime, which: str = "这", **inner: str) -> _Range:
    return _months(now, _index(now) + _offset(which), 1, **inner)


def _weekday(now: datetime, weekday: str, which: str = "", part: str = "") -> _Range:
    """A weekday or weekend of a week, or the latest.  (weekday="三", which="上") -> 上周三"""
    number, length = int(_table("WEEKDAYS")[weekday]), 2 if weekday in ("末", "weekend") else 1
    weeks = _offset(which) if which else -(number > now.weekday())
    if which == "last" and number + length <= now.weekday():
        weeks = 0  # on a Friday, last Monday lies in the same week; 上周一 does not
    first = now.date() + timedelta(7 * weeks + number - now.weekday())
    return _days(first, length, now, part)


def _dated(now: datetime, month: str = "", year: str = "", which: str = "", **inner: str) -> _Range:
    """A year, season, month, date or part of it.  (year="去", month="5") -> May of last year"""
    cycle = _table("CYCLES").get(month[:3]) or (f"{_number(month)}+1" if month else "1+12")
    number, count = map(int, cycle.split("+"))
    if year:
        digits = year.translate(_DIGITS)
        begins = int(digits) if digits.isdecimal() else now.year + _offset(year)
    elif which:
        begins = _year(which, number, count, now)
    else:
        begins = _latest_year(number, _number(inner.get("day") or "1"), now)
    return _months(now, _index(date(begins, number, 1)), count, **inner)


def _ago(now: datetime, count: str, unit: str, way: str) -> _Range:
    if count in _FEW:
        return _stretch(now, unit, count, way)
    offset, unit = _amount(count, unit, way)
    if unit not in _HOURS:
        return _period(unit, offset, now)
    moment = _shift(now, offset, unit)
    return moment - _HOURS[unit] / 2, moment + _HOURS[unit] / 2


def _stretch(now: datetime, unit: str, count: str = "1", way: str = "ago") -> _Range:
    here, there = now.astimezone(UTC), _shift(now, *_amount(count, unit, way))
    return (here, there) if way in _AHEAD else (there, here + _TICK)


# By the headings of `when.rules`.
_BUILDS: dict[str, _Build] = {
    **{"named_day": _named_day, "named_period": _named_period, "named_month": _named_month},
    **{"weekday": _weekday, "dated": _dated, "ago": _ago, "stretch": _stretch},
    "recent": partial(_stretch, unit="day", count="30"),
    "just_now": partial(_stretch, unit="hour"),
}
# What a phrase of a language contains; the rules of the other one need not be tried.
_SIGNS = {"zh": re.compile(r"[^\x00-\x7f]|\d"), "en": re.compile("[A-Za-z]")}
_WORDS = r"\b(?=\w)(?<!\w-)(?<!\d[.,])(?:%s)(?!\w|[.:]\d)"


@cache  # not at import: compiling takes longer than everything else here
def _rules(language: str) -> list[tuple[re.Pattern[str], _Build]]:
    """The patterns of a language, ready; a space in them is any short gap."""
    lexicon = load(__package__, "when.rules")
    flags = re.ASCII | re.IGNORECASE  # ASCII: in "我yesterday去" the English word starts after 我
    rules = []
    for heading, lines in lexicon.rules:
        of_language, _, name = heading.text.partition(" ")
        if name not in _BUILDS or of_language not in _SIGNS:
            names = ", ".join(_BUILDS)
            lexicon.refuse(heading, f"{heading.text!r} is not zh or en and one of {names}")
        for line in lines if of_language == language else ():
            text = lexicon.expand(line)
            whole = (_WORDS % text if language == "en" else text).replace(" ", r"\s{1,3}")
            rules.append((lexicon.compile(line, whole, flags), _BUILDS[name]))
    return rules
