"""The fields of a form or query, by their types; a blank one counts as missing."""

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import ImmutableMultiDict

from kemem.errors import InvalidArgument
from kemem.serve.http.errors import parse_object


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a form whose names begin with a prefix."""

    values: ImmutableMultiDict[str, Any]
    prefix: str = ""

    def text(self, name: str) -> str | None:
        """A text without surrounding whitespace."""
        return str(self.values.get(self.prefix + name, "")).strip() or None

    def texts(self, name: str) -> list[str]:
        """The texts of all fields of a name."""
        return [str(each) for each in self.values.getlist(self.prefix + name) if each]

    def one_of(self, name: str, options: tuple[str, ...], default: str) -> str:
        """One of some texts."""
        text = self.text(name) or default
        if text not in options:
            raise self._invalid(name, f"one of {', '.join(options)}", text)
        return text

    def integer(self, name: str, most: int, default: int) -> int:
        """An integer from 1 to `most`."""
        text = self.text(name) or str(default)
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
            raise self._invalid(name, f"1-{most}", text)
        return int(text)

    def fraction(self, name: str) -> float | None:
        """A number from 0 to 1."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number <= 1:
            raise self._invalid(name, "0-1", text)
        return number

    def datetime(self, name: str) -> dt.datetime | None:
        """A point in time; one without a zone is in that of the server, in which pages show it."""
        text = self.text(name)
        if text is None:
            return None
        try:
            moment = dt.datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.astimezone()
        except (ValueError, OverflowError):
            raise self._invalid(name, "a time such as 2026-01-26T10:47", text) from None

    def mapping(self, name: str) -> dict[str, Any] | None:
        """A JSON object."""
        text = self.text(name)
        return None if text is None else parse_object(text.encode(), name, field=name)

    def _invalid(self, name: str, expected: str, value: str) -> InvalidArgument:
        field = self.prefix + name
        return InvalidArgument(f"{field} must be {expected}, not {value!r:.80}", field=field)
