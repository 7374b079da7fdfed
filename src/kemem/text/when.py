"""Time phrases, Chinese and English, read against a clock.

- A day runs from local midnight to local midnight; weeks start on Monday; seasons are northern.
- A unit counted back is the calendar unit it lands in: "3 days ago" is that day, "两个月前" that
  month; hours and minutes are one unit wide around the moment.
- A stretch ("最近三天", "the past week") rolls: it ends with now, and now is part of it.
- Parts of a month are thirds: "early June", 六月上旬 are its first ten days.
- A month, date, season, holiday or weekday without further words is the latest that has begun; read
  ahead, as in a plan, the first that is not over.
- A date that does not exist ("2月30日", "99999 years ago") is not a phrase.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache, partial

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
    yearly: bool = field(default=False, compare=False)  # a past date of which the year is not said
    holiday: bool = field(default=False, compare=False)  # named by a holiday, which is also a topic


_Range = tuple[datetime, datetime]
_Build = Callable[..., _Range]  # called with now and the named groups of its pattern

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


def time_phrases(text: str, now: datetime, ahead: bool = False) -> list[TimePhrase]:
    """The time phrases of a text, in order; the user's time zone is that of `now`.

    With `ahead`, dates without a year, weekdays and the like lie ahead: see `speaks_of_plans`.

    "昨天下午 or last May" -> [TimePhrase(…, "昨天下午", 0, 4), TimePhrase(…, "last May", 8, 16)]
    """
    if now.utcoffset() is None:
        raise InvalidArgument(f"now must carry a time zone, not {now!r}", field="now")
    phrases, last = [], 0
    for match, build in _matches(text):
        start, end = match.span()
        if start < last:  # phrases do not overlap
            continue
        last = end
        groups = {slot: " ".join(it.lower().split()) for slot, it in match.groupdict("").items()}
        recurs = build in _RECURRING and not (groups.get("year") or groups.get("which"))
        try:
            turn = {"ahead": True} if ahead and recurs else {}
            since, until = ((it - _EPOCH) // _TICK for it in build(now, **groups, **turn))
        except (ValueError, OverflowError):  # no such date
            continue
        if since < until:  # a zone can skip a whole day: Samoa had no 30 December 2011
            yearly, holiday = recurs and not ahead and build in _YEARLY, build is _holiday
            phrase = text[start:end]
            phrases.append(TimePhrase(since, until, phrase, start, end, yearly, holiday))
    return phrases


@lru_cache(maxsize=8192)
def times_told(text: str, said: datetime) -> tuple[TimePhrase, ...]:
    """The times that a message tells of: they lie ahead, unless it tells what is over."""
    return tuple(time_phrases(text, said, bool(_matches(text)) and not speaks_of_past(text)))


@lru_cache(maxsize=256)  # a question is looked at by several stages
def _matches(text: str) -> Sequence[tuple[re.Match[str], _Build]]:
    """What may be time phrases: the leftmost first, of these the longest, then the first rule's."""
    folded = text.translate(_FOLD)
    words = set(_TOKEN.findall(folded.lower()))
    matches = [
        (match, build)
        for at, triggers in enumerate(_triggers())
        if not triggers.isdisjoint(words)
        for pattern, build in _rules(at)
        for match in pattern.finditer(folded)
    ]
    return sorted(matches, key=lambda each: (each[0].start(), -each[0].end()))


@lru_cache(maxsize=256)
def speaks_of_plans(text: str) -> bool:
    """Whether the dates of a text lie ahead: "booked a table for May 3", 十二月初有什么安排"""
    rules = load(__package__, "when.rules")
    # What clashed in one clause is over, and what it was moved to in the next one lies ahead.
    clauses = [rules.pattern("PLANNED").subn(" ", part) for part in _CLAUSE.split(text)]
    if any(planned and not speaks_of_past(rest) for rest, planned in clauses):
        return True
    rest = " ".join(rest for rest, _ in clauses)
    return rules.pattern("FUTURE").search(rest) is not None and not speaks_of_past(rest)


def speaks_of_past(text: str) -> bool:
    """Whether a text tells what is over.  "we met on Friday" -> True"""
    return load(__package__, "when.rules").pattern("PAST").search(text) is not None


def tells_what_is_over(text: str) -> bool:
    """Whether a text tells of the past more than that something was booked or moved."""
    rules = load(__package__, "when.rules")
    return speaks_of_past(rules.pattern("MOVED").sub(" ", rules.pattern("PLANNED").sub(" ", text)))


def is_arranged(text: str, start: int, end: int) -> bool:
    """Whether a date is that of an arrangement, which lies ahead however that is told.

    "The test was moved to the 28th", 科目三约到28号了 -> True; "we met on the 28th" -> False
    """
    to = _TO.match(text, start, end)
    before = _CLAUSE.split(text[max(0, start - _NEAR) : to.end() if to else start])[-1]
    return load(__package__, "when.rules").pattern("ARRANGED").search(before.rstrip()) is not None


def without_parts_of_times(text: str, times: Sequence[TimePhrase]) -> str:
    """A text without what only tells which part of a time is meant.

    "dinner yesterday evening" -> "dinner yesterday  ", "in early May" -> "in   May"
    """
    part = load(__package__, "when.rules").pattern("PART")
    for phrase in reversed(times):
        text = f"{text[: phrase.start]}{part.sub(' ', phrase.phrase)}{text[phrase.end :]}"
    return text


def as_of(time: TimePhrase, then: datetime) -> TimePhrase:
    """What a date without a year meant at an earlier time; others stay.  "5月4日" -> that year's"""
    return next(iter(time_phrases(time.phrase, then)), time) if time.yearly else time


# One character for one, so that positions in the folded text are positions in the text.
_FOLD = str.maketrans(
    "後週個剛來過這禮號兩两鐘鍾時幾裡裏間陣頭淩節慶聖誕開國雙兒〇’　"
    + "".join(map(chr, range(0xFF01, 0xFF5F))),
    "后周个刚来过这礼号二二钟钟时几里里间阵头凌节庆圣诞开国双儿零' "
    + "".join(map(chr, range(0x21, 0x7F))),
)
_CLAUSE = re.compile("[，。,;；.!?！？]")
_TO = re.compile(r"(?:until|till|for)(?=\s)", re.IGNORECASE)  # a phrase can begin with these
_NEAR = 80  # characters before a date that tell whether it is arranged
_TOKEN = re.compile(r"[a-z]+|\S")
_AHEAD = {"后", "未来", "接下来", "今后", "from now", "next", "coming"}
_FEW = {"几", "好几", "few", "several"}
_DIGITS = str.maketrans("零一二三四五六七八九", "0123456789")
_HOURS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
# Half a month is said loosely: a week is a better answer than one day.
_LONGER = {"fortnight": (2, "week"), "decade": (10, "year")}
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
    if count.startswith(("半", "half")):
        number, unit = _HALVES[unit]
    else:
        times, unit = _LONGER.get(unit, (1, unit))
        number = _number(count) * times
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


def _months(
    now: datetime, index: int, count: int, day: str = "", part: str = "", **inner: str
) -> _Range:
    """Calendar months, or a day, week or third of one.  (24292, 1, "初") -> 1 to 10 May 2024"""
    first, past = _first(index), _first(index + count)
    upto, around = inner.get("upto") or day, inner.get("around")
    if inner.get("nth"):
        first, past = _nth(first, past, inner["nth"], inner.get("weekday", ""))
    elif third := _table("THIRDS").get(day):
        opens, length = map(int, third.split("+"))
        if count > 1:  # of a season, a month
            return _months(now, index + opens // 10 * count // 3, count // 3)
        first = first.replace(day=opens)
        past = min(past, first + timedelta(length))
    elif day:
        first, past = (first.replace(day=_number(it)) for it in (day, upto))
        past += timedelta(1)
    if around:
        weekend = around in ("周末", "weekend")
        first += timedelta(5 * weekend - first.weekday())
        past = first + timedelta(2 if weekend else 7)
    return _days(first, (past - first).days, now, part)


def _nth(first: date, past: date, nth: str, weekday: str) -> tuple[date, date]:
    """A week, weekend or weekday of a month, counted from its first or last day."""
    number = int(_table("ORDINALS").get(nth) or _number(nth))
    if weekday in ("", "week"):
        first = first + timedelta(7 * number - 7) if number else past - timedelta(7)
        return first, min(first + timedelta(7), past)
    opens, length = _weekdays(weekday)
    if number:
        first += timedelta((opens - first.weekday()) % 7 + 7 * number - 7)
        if first >= past:
            raise ValueError(f"no {nth} {weekday} in this month")
    else:
        first = past - timedelta((past.weekday() - 1 - opens) % 7 + 1)
    return first, first + timedelta(length)


def _shift(now: datetime, count: int, unit: str) -> datetime:
    """Now moved by so many units: hours by elapsed time, days and longer by the wall clock."""
    if unit in _HOURS:
        return now.astimezone(UTC) + count * _HOURS[unit]
    if unit in _DAYS:
        return now + timedelta(count * _DAYS[unit])
    month = _first(_index(now) + count * _MONTHS[unit])
    last = monthrange(month.year, month.month)[1]
    return now.replace(year=month.year, month=month.month, day=min(now.day, last))


def _turn(build: Callable[[int], _Range], now: datetime, ahead: bool, near: int = 0) -> _Range:
    """The latest turn that has begun, or begins in `near` days; ahead the first that is not over.

    `build` makes the turn of so many units from now; 29 February can lie eight years away.
    """
    today = now.date() + timedelta(near)
    for step in range(-1, 9) if ahead else range(0, -9, -1):
        try:
            since, until = build(step)
        except ValueError:  # 31 June
            continue
        if until > now if ahead else since.date() <= today:
            return since, until
    raise ValueError("no such date")


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


def _within(now: datetime, side: str, unit: str = "") -> _Range:
    """The rest of a period, or what is over of it, with today.  "later this month" """
    since, until = _period(_table("UNITS").get(unit, unit or "day"), 0, now)
    opens, closes = _days(now.date(), 1, now)
    return (since, closes) if side in ("earlier", "早些时候") else (opens, until)


def _in_week(now: datetime, third: str, which: str = "", ahead: bool = False) -> _Range:
    """Some days of a week.  (third="early", which="next") -> Monday to Wednesday of next week"""
    opens, length = map(int, _table("WEEK_THIRDS")[third].split("+"))

    def week(offset: int) -> _Range:
        first = now.date() + timedelta(7 * offset + opens - now.weekday())
        return _days(first, length, now)

    return week(_offset(which)) if which else _turn(week, now, ahead, near=7)


def _in_month(now: datetime, which: str = "", ahead: bool = False, **inner: str) -> _Range:
    """A month counted from this one, or a part of it; a part alone is the latest."""
    if which:
        return _months(now, _index(now) + _offset(which), 1, **inner)
    # Parts of "the month" are this month's also where they begin soon: 月底.
    near = 14 if inner.get("nth") or inner.get("day") in _table("THIRDS") else 0
    return _turn(lambda step: _months(now, _index(now) + step, 1, **inner), now, ahead, near)


def _weekdays(weekday: str, upto: str = "") -> tuple[int, int]:
    """The first of some weekdays and how many they are.  "weekend" -> (5, 2)"""
    table = _table("WEEKDAYS")
    first, weekend = int(table[weekday]), weekday in ("末", "weekend")
    return first, 2 if weekend else (int(table[upto or weekday]) - first) % 7 + 1


def _weekday(
    now: datetime, weekday: str, which: str = "", part: str = "", ahead: bool = False, **more: str
) -> _Range:
    """Weekdays or the weekend of a week, or the latest.  (weekday="三", which="上") -> 上周三"""
    number, length = _weekdays(weekday, more.get("upto", ""))

    def week(offset: int) -> _Range:
        first = now.date() + timedelta(7 * offset + number - now.weekday())
        return _days(first, length, now, part)

    if more.get("week"):
        return week(_offset(more["week"]))
    if more.get("way"):  # on Monday two weeks ago
        return week(_amount(more["count"], "week", more["way"])[0])
    if more.get("count"):  # two Sundays ago
        return week((number < now.weekday()) - _number(more["count"]))
    if not which:
        return _turn(week, now, ahead)
    if which.endswith(("coming", "week")):  # this coming Sunday, Sunday week
        return week((number <= now.weekday()) + which.endswith("week"))
    # On a Friday, last Monday lies in the same week, and 上周一 does not. Nor does last Thursday:
    # whoever means the day before says "yesterday".
    between = now.weekday() - number - length
    over = between >= 0 if which.endswith("past") else between > 0 and which.endswith("last")
    return week(_offset(which.removeprefix("the ")) + over)


def _dated(
    now: datetime,
    month: str = "",
    year: str = "",
    which: str = "",
    ahead: bool = False,
    **inner: str,
) -> _Range:
    """A year, season, month, date or part of it.  (year="去", month="5") -> May of last year"""
    cycles = _table("CYCLES")
    cycle = "1+12"
    if month:
        cycle = cycles.get(month) or cycles.get(month[:3]) or f"{_number(month)}+1"
    number, count = map(int, cycle.split("+"))

    def of(year: int) -> _Range:
        return _months(now, _index(date(year, number, 1)), count, **inner)

    if year:
        return of(_number_of_year(year, now))
    if which:
        return of(_year(which, number, count, now))
    near = 180 if month in _table("YEAR_PARTS") else 0  # 年底 is this year's from summer on
    return _turn(lambda step: of(now.year + step), now, ahead, near)


def _number_of_year(year: str, now: datetime) -> int:
    digits = year.translate(_DIGITS)
    return int(digits) if digits.isdecimal() else now.year + _offset(year)


def _holiday(
    now: datetime, holiday: str, year: str = "", which: str = "", ahead: bool = False
) -> _Range:
    """A holiday, some of which follow the moon.  ("中秋", "2024") -> 17 September"""
    tables = load(__package__, "when.rules").tables
    meaning = tables["ZH_HOLIDAYS"].get(holiday) or tables["EN_HOLIDAYS"][holiday]
    day, shift, length = meaning.split(",")

    def of(year: int) -> _Range:
        written = tables[day].get(str(year), "unknown") if day in tables else day
        first = date.fromisoformat(f"{year:04}-{written}") + timedelta(int(shift))
        return _days(first, int(length), now)

    if year or which == "this":
        return of(_number_of_year(year or "this", now))
    if str(now.year) not in tables.get(day, str(now.year)):
        raise ValueError(f"no dates of {holiday} around {now.year}")
    then = now - timedelta(int(length)) if which == "last" else now
    return _turn(lambda step: of(now.year + step), then, ahead or which == "next")


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
    **{"named_day": _named_day, "named_period": _named_period, "within": _within},
    **{"in_week": _in_week, "in_month": _in_month, "weekday": _weekday, "dated": _dated},
    **{"holiday": _holiday, "ago": _ago, "stretch": _stretch},
    "recent": partial(_stretch, unit="day", count="30"),
    "just_now": partial(_stretch, unit="hour"),
}
_YEARLY = (_dated, _holiday)
_RECURRING = (*_YEARLY, _weekday, _in_week, _in_month)
_WORDS = r"\b(?=\w)(?<!\w-)(?<!\d[.,])(?:%s)(?!\w|[.:]\d)"


@cache
def _triggers() -> list[frozenset[str]]:
    """By heading of `when.rules`, the words of which a text must have one."""
    lexicon, triggers = load(__package__, "when.rules"), []
    for heading, _ in lexicon.rules:
        language, _, rest = heading.text.partition(" ")
        name, *lists = rest.split() or [""]
        if name not in _BUILDS or language not in ("zh", "en"):
            names = ", ".join(_BUILDS)
            lexicon.refuse(heading, f"{heading.text!r} is not zh or en and one of {names}")
        if not lists or not lexicon.tables.keys() >= set(lists):
            lexicon.refuse(heading, f"{heading.text!r} does not end with lists of this file")
        triggers.append(frozenset(word for it in lists for word in lexicon.tables[it]))
    return triggers


@cache  # not before a text needs them: compiling takes longer than everything else here
def _rules(at: int) -> list[tuple[re.Pattern[str], _Build]]:
    """The patterns below a heading, ready; a space in them is any short gap."""
    lexicon, rules = load(__package__, "when.rules"), []
    heading, lines = lexicon.rules[at]
    language, name, *_ = heading.text.split()
    flags = re.ASCII | re.IGNORECASE  # ASCII: in "我yesterday去" the English word starts after 我
    for line in lines:
        text = lexicon.expand(line)
        whole = (_WORDS % text if language == "en" else text).replace(" ", r"\s{1,3}")
        rules.append((lexicon.compile(line, whole, flags), _BUILDS[name]))
    return rules
