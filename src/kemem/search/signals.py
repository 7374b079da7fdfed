"""What the stages of search hand to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kemem.records import Match
from kemem.text.query import Query
from kemem.text.when import TimePhrase

Mode = Literal["hybrid", "lexical", "semantic"]  # the signals to use: all, words, vectors


@dataclass(frozen=True, slots=True)
class Part:
    """A text to look for, as it is embedded and by its words."""

    text: str
    query: Query


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A question with its words, the times it speaks of and the names it may mention."""

    whole: Part
    times: tuple[TimePhrase, ...]
    names: tuple[str, ...]
    mode: Mode = "hybrid"
    keywords: Query | None = None  # what every answer must contain
    parts: tuple[Part, ...] = ()  # the sentences that ask, among others that do not

    @property
    def query(self) -> Query:
        """Its words."""
        return self.whole.query

    @property
    def texts(self) -> tuple[Part, ...]:
        """The whole question, then its parts."""
        return (self.whole, *self.parts)


@dataclass(frozen=True, slots=True)
class SignalHits:
    """What words and vectors rank for one text, best first."""

    words: tuple[Match, ...] = ()
    vectors: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class Signals:
    """What each signal ranks, best first, and which signals could not answer."""

    whole: SignalHits
    depth: int  # how many rows a signal could rank
    parts: tuple[SignalHits, ...] = ()
    graph: tuple[Match, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)  # note -> the relation that led to it
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in the final order, with its reasons."""

    match: Match
    why: tuple[str, ...]
