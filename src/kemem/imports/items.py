"""What readers of files give: messages, memories and documents, each with its place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any

from kemem.errors import InvalidArgument
from kemem.records.times import to_micros, to_rfc3339
from kemem.text.parts import Fields

UNKNOWN = "no known format; see the page Import of the documentation"
_SHOWN = 60  # characters of a derived id, then a hash: another limit would give other ids
_FRACTION = re.compile(r"(\.\d{6})\d+")
_MILLISECONDS = 100_000_000_000  # as seconds, a time in the year 5138


@dataclass(frozen=True, slots=True)
class Item:
    """One message as a file has it, in any shape that `kemem.text.shapes` reads."""

    place: str  # where it stands: "chats.json:1: conversation 3: message 2"
    format: str  # "ChatGPT"
    fields: Fields
    user_id: str | None = None  # whom the file names
    other_user: str | None = None  # whom it belongs to where neither file nor caller names a user
    is_memory: bool = False  # it is kept as a note, word for word
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of such a note
    expires_at: str | None = None  # of such a note


@dataclass(frozen=True, slots=True)
class Document:
    """A text whose sections become knowledge; it replaces what was known of its source."""

    folder: str  # what was imported together
    source: str  # its path there
    sections: tuple[str, ...]

    def ids(self, agent_id: str) -> tuple[str, ...]:
        """An id for each section: the same as long as its text and its document are."""
        ids: dict[str, None] = {}
        place = (agent_id, self.folder, self.source)
        for text in self.sections:
            count = 0
            while (made := stable_id("doc", *place, text, count)) in ids:
                count += 1
            ids[made] = None
        return tuple(ids)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a folder that no reader knows, or that is wrong from some place on."""

    name: str
    reason: str
    is_wrong: bool = False

    @property
    def line(self) -> str:
        """The file and what is to be said of it."""
        return self.reason if self.is_wrong else f"{self.name}: {self.reason}"


Read = Item | Document | Skipped


def wrong(place: str, reason: str) -> InvalidArgument:
    """The error of a file: where it is, then what was expected."""
    return InvalidArgument(f"{place}: {reason}")


def stable_id(prefix: str, *parts: object) -> str:
    """An id that is the same whenever the same comes again."""
    digest = sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()
    return f"{prefix}-{digest[:32]}"


def source_id(prefix: str, *parts: object) -> str:
    """An id that shows where something comes from.  ("mem0", "7f3a") -> "mem0-7f3a" """
    made = "-".join([prefix, *map(str, parts)])
    fits = len(made) <= _SHOWN and made.isprintable() and made == made.strip()
    return made if fits else stable_id(prefix, *parts)


def version_of(text: str) -> str:
    """A few characters that tell versions of a text apart: ids stand for one content for ever."""
    return stable_id("", text)[1:9]


def readable(text: object) -> str:
    """A text without lone surrogates, which exports hold where an emoji was cut."""
    return text.encode(errors="replace").decode() if isinstance(text, str) else ""


def moment(value: object) -> str | None:
    """A time as exports write it, as RFC 3339: seconds, milliseconds, ISO 8601; None for others.

    A time without a zone is taken for UTC.
    """
    try:
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int | float):
            seconds = value / 1000 if abs(value) >= _MILLISECONDS else value
            return to_rfc3339(int(seconds * 1_000_000))
        if not isinstance(value, str):
            return None
        text = value.strip()
        if text.replace(".", "", 1).isdecimal() and len(text) >= 9:
            return moment(float(text))
        parsed = datetime.fromisoformat(_FRACTION.sub(r"\1", text.replace("/", "-")))
        aware = parsed if parsed.utcoffset() is not None else parsed.replace(tzinfo=UTC)
        return to_rfc3339(to_micros(aware))
    except (ValueError, OverflowError, InvalidArgument):
        return None


def end_of(day: object) -> str | None:
    """The end of a day, which is when a memory of mem0 expires."""
    try:
        last = date.fromisoformat(str(day)[:10]) + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    return datetime.combine(last, time(), UTC).isoformat()
