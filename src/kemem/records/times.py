"""Times at the edges: RFC 3339 outside, integer UTC microseconds inside."""

import re
from datetime import UTC, date, datetime, timedelta
from reprlib import repr as shown

from kemem.errors import InvalidArgument

Micros = int  # a point in time: UTC microseconds since 1970

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000  # in microseconds
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EARLIEST: Micros = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LATEST: Micros = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LIKELY = (10**14, 5 * 10**15)  # 1973 to 2128, which no two of the units take for one another
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)", re.ASCII)
_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_RFC3339 = re.compile(
    rf"(\d{{4}}-\d{{2}}-\d{{2}})[Tt ]({_MINUTE}):(\d{{2}})(?:\.(\d{{1,9}}))?([Zz]|[+-]{_MINUTE})",
    re.ASCII,
)


def to_micros(value: str | datetime, field: str = "ts") -> Micros:
    """A point in time as microseconds.  "2026-01-26T10:47:00Z" -> 1769424420000000"""
    if isinstance(value, str):
        micros = _parse(value, field)
    elif not isinstance(value, datetime):
        raise wrong_time(value, field)
    elif value.utcoffset() is None:
        raise InvalidArgument(f"{field} needs a time zone: {value.isoformat()!r}", field=field)
    else:
        micros = (value - _EPOCH) // timedelta(microseconds=1)
    if not EARLIEST <= micros <= LATEST:  # a zone can lead out of the years that can be written
        raise wrong_time(value, field)
    return micros


def to_datetime(micros: Micros) -> datetime:
    """Microseconds as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def to_rfc3339(micros: Micros) -> str:
    """Microseconds as text that sorts by time: in UTC, always with six digits of a second."""
    text = to_datetime(micros).isoformat(timespec="microseconds")
    return text.removesuffix("+00:00") + "Z"


def _parse(text: str, field: str) -> Micros:
    match = _RFC3339.fullmatch(text)
    if not match:
        raise wrong_time(text, field)
    day, minute, second, fraction, zone = match.groups()
    leap = second == "60"  # datetime has no leap seconds: the last second counts twice
    try:
        moment = datetime.fromisoformat(
            f"{day}T{minute}:{'59' if leap else second}{zone.replace('z', 'Z')}"
        )
        whole = (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise wrong_time(text, field) from None
    return whole + int((fraction or "").ljust(6, "0")[:6]) + (1_000_000 if leap else 0)


def wrong_time(value: object, field: str) -> InvalidArgument:
    """The error of what is no time; of a number that counts from 1970 it says what to write."""
    reason = f"{field} must be an RFC 3339 time such as '2026-01-26T10:47:00Z', not {shown(value)}"
    if isinstance(value, str) and (day := _DAY.match(value)):
        try:
            date.fromisoformat(day[0])
        except ValueError:
            return InvalidArgument(f"{reason}: there is no such day", field=field)
    if meant := since_1970(value):
        return InvalidArgument(f"{reason}: write {meant!r}", field=field)
    return InvalidArgument(reason, field=field)


def since_1970(number: object) -> str | None:
    """The time that seconds, milliseconds or microseconds since 1970 mean, if it is a likely one.

    1769424420 -> "2026-01-26T10:47:00Z"
    """
    if not isinstance(number, int | float):
        return None
    for unit in (1_000_000, 1_000, 1):
        if _LIKELY[0] <= number * unit < _LIKELY[1]:
            text = to_datetime(round(number * unit)).isoformat()
            return text.removesuffix("+00:00") + "Z"
    return None
