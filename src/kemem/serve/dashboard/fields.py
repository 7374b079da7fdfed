"""What the fields of a form say; one that is blank is not given."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.datastructures import ImmutableMultiDict

from kemem.errors import InvalidArgument
from kemem.serve.http.strict import parse_object


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a form, those whose names begin with a prefix."""

    given: ImmutableMultiDict[str, Any]
    prefix: str = ""

    def text(self, name: str) -> str | None:
        """A text without the blanks around it."""
        return str(self.given.get(self.prefix + name, "")).strip() or None

    def texts(self, name: str) -> list[str]:
        """The texts of all fields of a name."""
        return [str(each) for each in self.given.getlist(self.prefix + name) if each]

    def one_of(self, name: str, known: tuple[str, ...], default: str) -> str:
        """One of some texts."""
        found = self.text(name) or default
        if found not in known:
            raise self._wrong(name, f"one of {', '.join(known)}", found)
        return found

    def whole(self, name: str, most: int, default: int) -> int:
        """A whole number from 1 on."""
        text = self.text(name) or str(default)
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
            raise self._wrong(name, f"1-{most}", text)
        return int(text)

    def share(self, name: str) -> float | None:
        """A number from 0 to 1."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number <= 1:
            raise self._wrong(name, "0-1", text)
        return number

    def moment(self, name: str) -> datetime | None:
        """A point in time; one without a zone is in that of the server, in which pages show it."""
        text = self.text(name)
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.astimezone()
        except (ValueError, OverflowError):
            raise self._wrong(name, "a time such as 2026-01-26T10:47", text) from None

    def mapping(self, name: str) -> dict[str, Any] | None:
        """A JSON object."""
        text = self.text(name)
        return None if text is None else parse_object(text.encode(), name, field=name)

    def _wrong(self, name: str, right: str, value: str) -> InvalidArgument:
        field = self.prefix + name
        return InvalidArgument(f"{field} must be {right}, not {value!r:.80}", field=field)
