"""Times at the edges: any RFC 3339 text in, one spelling out, nothing else accepted."""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.records.times import to_micros, to_rfc3339
from kemem.serve.cli.language import translated_error
from tests.cases import each

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
SECOND = 1_000_000
DAY = 86_400 * SECOND
ZONES = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda m: timezone(timedelta(minutes=m)))
NEAR_THE_ENDS = st.integers(0, 2 * DAY).flatmap(lambda n: st.sampled_from([FIRST + n, LAST - n]))


@settings(deadline=None)
@given(micros=st.integers(FIRST, LAST) | NEAR_THE_ENDS)
def test_what_we_write_we_read_again(micros: int) -> None:
    """For every microsecond from the year 1 to the year 9999."""
    text = to_rfc3339(micros)
    assert to_micros(text) == micros
    assert text.endswith("Z")
    assert len(text) == len("2026-01-26T10:47:00.000000Z")  # so that it sorts as text


@settings(deadline=None)
@given(moment=st.datetimes(timezones=ZONES))
def test_a_datetime_and_its_text_mean_the_same(moment: datetime) -> None:
    """Both are refused where the moment, in UTC, lies outside the calendar."""
    exact = (moment - EPOCH) // timedelta(microseconds=1)
    if FIRST <= exact <= LAST:
        assert to_micros(moment) == to_micros(moment.isoformat()) == exact
        return
    for value in (moment, moment.isoformat()):
        with pytest.raises(InvalidArgument):
            to_micros(value)


DIGITS = st.integers(0, 99).map("{:02}".format)
LIKE_TIMES = st.builds(
    "{}-{}-{}{}{}:{}:{}{}{}".format,
    st.sampled_from(["2026", "0001", "9999", "0000", "1969", "2024"]),
    DIGITS | st.sampled_from(["01", "02", "12"]),
    DIGITS | st.sampled_from(["01", "28", "29", "31"]),
    st.sampled_from(["T", "t", " ", "", "\n"]),
    DIGITS | st.sampled_from(["00", "23", "24"]),
    DIGITS | st.sampled_from(["00", "59", "60"]),
    DIGITS | st.sampled_from(["00", "59", "60"]),
    st.sampled_from(["", ".5", ".123456789", ".", ",5", ".1234567890"]),
    st.sampled_from(["Z", "z", "+08:00", "-08:00", "+23:59", "-23:59", "+24:00", "+08:60", ""]),
)


@given(text=LIKE_TIMES | st.text(max_size=25))
def test_what_is_accepted_can_be_written(text: str) -> None:
    """A time that is stored but cannot be shown would break every later read."""
    try:
        micros = to_micros(text)
    except InvalidArgument as error:
        assert error.details == {"field": "ts"}
        return
    assert to_micros(to_rfc3339(micros)) == micros


@each(
    ("text", "same"),
    [
        ("2026-01-26T10:47:00Z", "2026-01-26T10:47:00.000000Z"),
        ("2026-01-26t10:47:00z", "2026-01-26T10:47:00.000000Z"),
        ("2026-01-26 10:47:00Z", "2026-01-26T10:47:00.000000Z"),
        ("2026-01-26T18:47:00+08:00", "2026-01-26T10:47:00.000000Z"),
        ("2026-01-26T05:17:00-05:30", "2026-01-26T10:47:00.000000Z"),
        ("2026-01-26T10:47:00-00:00", "2026-01-26T10:47:00.000000Z"),
        ("2026-01-01T00:30:00+08:00", "2025-12-31T16:30:00.000000Z"),
        ("2026-01-26T10:47:00.5Z", "2026-01-26T10:47:00.500000Z"),
        ("2026-01-26T10:47:00.000001Z", "2026-01-26T10:47:00.000001Z"),
        ("2026-01-26T10:47:00.123456789Z", "2026-01-26T10:47:00.123456Z"),
        ("2026-01-26T10:47:00.999999999Z", "2026-01-26T10:47:00.999999Z"),
        ("1969-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59.999999Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000000Z"),
        ("2017-01-01T07:59:60.5+08:00", "2017-01-01T00:00:00.500000Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("0001-01-01T08:00:00+08:00", "0001-01-01T00:00:00.000000Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_a_time_may_be_written_in_these_ways(text: str, same: str) -> None:
    """Any zone, either case; finer fractions are cut; a leap second is the next one."""
    assert to_rfc3339(to_micros(text)) == same


@each(
    "text",
    [
        *("", "now", "昨天", "yesterday", "1769424420", "2026-01-26", "10:47:00Z", "\ud800"),
        *("20260126T104700Z", "2026-01-26T10:47:00", "2026-01-26T10:47Z", "2026-01-26T10:47:00 Z"),
        *(" 2026-01-26T10:47:00Z", "2026-01-26T10:47:00Z\n"),
        *("2026-01-26T10:47:00Z" * 1000, "2026-01-26T10:47:00+08", "2026-01-26T10:47:00+0800"),
        *("2026-01-26T10:47:00.Z", "2026-01-26T10:47:00,5Z", "2026-01-26T10:47:00.1234567890Z"),
        *("2026-01-26T24:00:00Z", "2026-01-26T10:60:00Z", "2026-01-26T10:47:61Z"),
        *("2026-01-26T10:47:00+24:00", "2026-01-26T10:47:00+08:60", "2026-01-26T10:47:00−08:00"),
        *("2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z"),
        *("0000-01-01T00:00:00Z", "-001-01-01T00:00:00Z", "10000-01-01T00:00:00Z"),
        *("0001-01-01T00:00:00+08:00", "9999-12-31T23:59:59-08:00", "9999-12-31T23:59:60Z"),
        *("２０２６-01-26T10:47:00Z", "2026-01-26T10:47:00Ｚ", "2026-W05-1T10:47:00Z"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """With the field, an example of what would be right, and only a glimpse of the rest."""
    with pytest.raises(InvalidArgument, match="since must be an RFC 3339 time such as") as caught:
        to_micros(text, "since")
    assert caught.value.details == {"field": "since"}
    assert len(caught.value.message) < 200


@each("text", ["2026-02-30", "2026-02-30T10:47:00Z", "2026-13-01 10:47:00+08:00", "0000-01-01"])
def test_a_day_that_does_not_exist_is_said(text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"not '{re.escape(text)}': there is no such day"):
        to_micros(text, "since")
    with pytest.raises(InvalidArgument, match=r"not '2026-02-28'$"):
        to_micros("2026-02-28")


@each("value", [None, 0, 1_769_424_420, 1.5, True, b"2026-01-26T10:47:00Z", date(2026, 1, 26), []])
def test_only_texts_and_datetimes_are_times(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="ts must be an RFC 3339 time"):
        to_micros(value)


@each("value", [1_769_424_420, 1_769_424_420.0, 1_769_424_420_000, 1_769_424_420_000_000])
def test_a_number_since_1970_is_said_as_a_time(value: float) -> None:
    """In seconds, milliseconds or microseconds, as programs count them; in Chinese, too."""
    with pytest.raises(InvalidArgument, match=r": write '2026-01-26T10:47:00Z'$") as caught:
        to_micros(value, "ts")  # type: ignore[arg-type]
    assert translated_error(caught.value.message, "zh").endswith("：请写 '2026-01-26T10:47:00Z'")


@each("value", [0, 12, 2026, 20_260_126, 1e300, float("inf"), float("nan"), -1_769_424_420])
def test_another_number_is_no_time(value: float) -> None:
    with pytest.raises(InvalidArgument, match=f"not {re.escape(repr(value))}$"):
        to_micros(value, "ts")  # type: ignore[arg-type]


class Nowhere(tzinfo):
    """A zone that does not know its offset: such a datetime is naive in all but name."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@each("zone", [None, Nowhere()])
def test_a_datetime_needs_a_zone(zone: tzinfo | None) -> None:
    """Nobody guesses which clock was meant."""
    with pytest.raises(InvalidArgument, match="until needs a time zone: '2026-01-26T10:47:00'"):
        to_micros(datetime(2026, 1, 26, 10, 47, tzinfo=zone), "until")
