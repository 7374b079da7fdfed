"""A tool call that was written as text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Written(str):
    """A value as text, whose type only the tool's schema can tell."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LeakedCall:
    """A call as it could be read: `Written` values where the form gives no types."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Calls found in a text, and where their markup ends."""

    form: str
    end: int
    calls: tuple[LeakedCall, ...]
    sure: bool = True  # False: prose may look alike, so the tool must be a known one


@dataclass(frozen=True, slots=True)
class Opener:
    """Where the mark stands that calls of a form begin with."""

    form: str
    start: int
    end: int
