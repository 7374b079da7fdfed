"""Conditions on rows, with one meaning on every backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Fields(Protocol):
    """A row as a condition sees it."""

    def field(self, name: str) -> Any:
        """The value under a name; None where there is none."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the fields and metadata of a row. `matches` is its only meaning."""

    operator: str  # AND OR NOT, or one of the comparisons below
    key: str = ""
    value: Any = None
    parts: tuple["Filter", ...] = ()

    def matches(self, row: Fields) -> bool:
        """Whether a row fulfils the condition."""
        match self.operator:
            case "AND":
                return all(part.matches(row) for part in self.parts)
            case "OR":
                return any(part.matches(row) for part in self.parts)
            case "NOT":
                return not any(part.matches(row) for part in self.parts)
        return COMPARISONS[self.operator](row.field(self.key), self.value)


def _equal(stored: Any, value: Any) -> bool:
    """1 equals 1.0 but not True; a list equals its elements, as a tag matches a list of tags."""
    if isinstance(stored, list) and not isinstance(value, list):
        return any(_equal(element, value) for element in stored)
    return bool(stored == value) and isinstance(stored, bool) == isinstance(value, bool)


def _order(stored: Any, value: Any) -> int | None:
    """-1, 0 or 1; None where the two have no order."""
    texts = isinstance(stored, str) and isinstance(value, str)
    if not texts and not (_is_number(stored) and _is_number(value)):
        return None
    return int(stored > value) - int(stored < value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds(stored: Any, value: Any) -> bool:
    if isinstance(stored, str):
        return isinstance(value, str) and value in stored
    return isinstance(stored, list) and _equal(stored, value)


def _fold(value: Any) -> Any:
    if isinstance(value, list):
        return [_fold(element) for element in value]
    return value.casefold() if isinstance(value, str) else value


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": _equal,
    "ne": lambda stored, value: not _equal(stored, value),
    "gt": lambda stored, value: _order(stored, value) == 1,
    "gte": lambda stored, value: _order(stored, value) in (0, 1),
    "lt": lambda stored, value: _order(stored, value) == -1,
    "lte": lambda stored, value: _order(stored, value) in (-1, 0),
    "in": lambda stored, value: any(_equal(stored, each) for each in value),
    "nin": lambda stored, value: not any(_equal(stored, each) for each in value),
    "contains": _holds,
    "icontains": lambda stored, value: _holds(_fold(stored), _fold(value)),
}
