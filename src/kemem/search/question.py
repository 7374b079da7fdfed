"""What the stages of search hand to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kemem.records import Match, Row
from kemem.text.query import Query
from kemem.text.when import TimePhrase

Mode = Literal["hybrid", "lexical", "semantic"]  # the signals to ask: all, words, meaning


Key = tuple[str, str, str]


def key_of(row: Match | Row) -> Key:
    """What tells rows apart: several users' messages can have the same id."""
    return (row.agent_id, row.user_id, row.id)


@dataclass(frozen=True, slots=True)
class Part:
    """A text to look for, as it is embedded and by its words."""

    text: str
    query: Query


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its words, the times it speaks of and the names it may mention."""

    whole: Part
    times: tuple[TimePhrase, ...]
    names: tuple[str, ...]
    mode: Mode = "hybrid"
    wanted: Query | None = None  # what every answer must contain
    parts: tuple[Part, ...] = ()  # the sentences that ask, among others that do not

    @property
    def query(self) -> Query:
        """Its words."""
        return self.whole.query


@dataclass(frozen=True, slots=True)
class Found:
    """What words and meaning found of one text, best first."""

    words: tuple[Match, ...] = ()
    meaning: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What each signal found, best first, and which signals could not answer."""

    whole: Found
    depth: int  # how many rows a signal could find
    parts: tuple[Found, ...] = ()
    graph: tuple[Match, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)  # note -> the relation that led to it
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in the final order, with its reasons."""

    match: Match
    why: tuple[str, ...]
