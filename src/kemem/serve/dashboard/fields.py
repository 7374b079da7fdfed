"""Forms and queries: their fields by type, and what a refused form shows again."""

import datetime as dt
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import ImmutableMultiDict

from kemem.errors import InvalidArgument, KeMemError
from kemem.serve.http.errors import parse_object

Ids = dict[str, Any]  # a text or None by each name
_SEARCH = "query mode limit threshold rerank kinds since until as_of keywords filters past"
# What the addresses of pages may ask for, beside what those of all pages may.
_PARAMETERS = {
    "": "since until span",
    "/figures": "since until span",
    "/login": "to",
    "/users": "query",
    "/memories": "kind type text as_of",
    "/memories/{memory_id:path}": "ask",
    "/playground": f"compare {_SEARCH} b_{_SEARCH.replace(' ', ' b_')}",
    "/conversations/message": "message_id beside",
    "/conversations/memory": "max_tokens",
    "/graph": "around as_of hops relationship",
    "/quality": "metric",
    "/ontology": "group name",
    "/ontology/remove": "group name",
    "/audit": "actor operation since until",
    "/system/restore": "name",
    "/system/backup/delete": "name",
}
_OF_ALL = ["user_id", "agent_id", "session_id", "cursor", "language", "theme", "project"]


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a form or query whose names begin with a prefix, by their types.

    A blank field counts as missing.
    """

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
            raise self._invalid(name, f"an integer from 1 to {most}", text)
        return int(text)

    def fraction(self, name: str) -> float | None:
        """A number from 0 to 1."""
        text, number = self.text(name), math.nan
        if text is None:
            return None
        with suppress(ValueError):
            number = float(text)
        if not 0 <= number <= 1:
            raise self._invalid(name, "a number from 0 to 1", text)
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

    @property
    def ids(self) -> Ids:
        """The ids of user, agent and session."""
        return {name: self.text(name) for name in ("user_id", "agent_id", "session_id")}

    @property
    def owner(self) -> tuple[str | None, str | None]:
        """The ids of user and agent."""
        return self.text("user_id"), self.text("agent_id")

    def _invalid(self, name: str, expected: str, value: str) -> InvalidArgument:
        field = self.prefix + name
        return InvalidArgument(f"{field} must be {expected}, not {value!r:.80}", field=field)


def ignored(path: str, query: ImmutableMultiDict[str, Any]) -> list[str]:
    """The names in the query of a page that mean nothing there; `path` is that of its route."""
    known = {*_OF_ALL, *_PARAMETERS.get(path.removeprefix("/dashboard"), "").split()}
    return [name[:40] for name in query if name not in known]


def refusal(problem: KeMemError, fields: Fields) -> dict[str, Any]:
    """What the page of a refused form shows: the reason beside its field, and what was typed."""
    return {"status": problem.status, "problem": problem, "typed": fields.values}


def check_typed(fields: Fields, expected: str) -> None:
    """Refuse to go on unless a name was typed to confirm it."""
    typed = fields.text("typed") or ""
    if typed != expected:
        raise InvalidArgument(f"type {expected!r} to confirm, not {typed!r:.80}", field="typed")
