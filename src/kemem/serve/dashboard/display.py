"""Values for people: times with their zone, texts, hits, numbers, durations and sizes."""

import datetime as dt
import re
from collections.abc import Sequence
from contextlib import suppress

from markupsafe import Markup, escape

from kemem.records import MOST_COUNTED, Micros
from kemem.records.times import to_rfc3339
from kemem.results import Hit
from kemem.text.query import CLOSE, OPEN

_CELL = re.compile("<td\\b")
_TAGS = re.compile(f"({OPEN}|{CLOSE})")

Piece = tuple[str, str]  # the name of an element, "" for none, and its text


def local(at: Micros) -> dt.datetime:
    """A time in the zone of the server, in which pages show it."""
    moment = dt.datetime.fromisoformat(to_rfc3339(at))
    with suppress(OverflowError):  # of the year 9999 some zones see the next
        moment = moment.astimezone()
    return moment


def offset(moment: dt.datetime) -> int:
    """Minutes that the clocks of a time's zone are ahead of UTC."""
    return round((moment.utcoffset() or dt.timedelta()).total_seconds() / 60)


def zone(moment: dt.datetime) -> str:
    """The zone of a time by its offset.  "UTC", "UTC+8", "UTC-3:30" """
    minutes = offset(moment)
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else "+"
    return f"UTC{sign}{hours}" + (f":{rest:02}" if rest else "") if minutes else "UTC"


def when(at: Micros | None) -> str:
    """A time with its zone; "–" for none.  0 -> "1970-01-01 08:00:00 UTC+8" """
    if at is None:
        return "–"
    moment = local(at)
    clock = '<span class="clock">{:%H:%M:%S} <span class="zone">{}</span></span>'
    text = f'<time datetime="{{}}">{{:%Y-%m-%d}} {clock}</time>'
    return Markup(text).format(moment.isoformat(), moment, moment, zone(moment))


def day(at: Micros) -> str:
    """The day of a time in the zone of the server.  0 -> "1970-01-01" """
    return local(at).date().isoformat()


def short(text: object, most: int = 80) -> str:
    """A text cut to one line.  "a\\nb" -> "a b" """
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def counted(value: int) -> str:
    """A number of what is counted up to a limit.  10001 -> "10,000+" """
    return number(value) if value <= MOST_COUNTED else f"{number(MOST_COUNTED)}+"


def number(value: float | None) -> str:
    """A number for people; "–" for none.  12345.678 -> "12,345.7" """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """A duration for people.  0.0123 -> "12 ms" """
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value / 60:,.0f} min"


def size(count: int | None) -> str:
    """A number of bytes for people.  2048 -> "2.0 KiB" """
    if count is None:
        return "–"
    units = ("B", "KiB", "MiB", "GiB")
    power = min(len(units) - 1, max(0, count.bit_length() - 1) // 10)
    return f"{count:,} B" if power == 0 else f"{count / 1024**power:,.1f} {units[power]}"


def labelled(rows: Markup, heads: Sequence[str]) -> Markup:
    """Rows of a table, each cell with the head of its column: a phone shows a row as a card."""

    def cells(row: str) -> str:
        names = iter(heads)
        return _CELL.sub(lambda _: f'<td data-label="{escape(next(names, ""))}"', row)

    return Markup("<tr".join(map(cells, str(rows).split("<tr"))))


def highlighted(hit: Hit) -> list[Piece]:
    """The text of a hit, with the words marked that a search matched; extracts of a long text."""
    if not hit.snippets or _TAGS.search(hit.memory):  # whose own tags would pass for marks
        return [("", hit.memory)]
    pieces: list[Piece] = []
    marked = False
    for part in _TAGS.split(" ".join(hit.snippets)):
        if part in (OPEN, CLOSE):
            marked = part == OPEN
        elif part:
            pieces.append(("mark" if marked else "", part))
    return pieces
