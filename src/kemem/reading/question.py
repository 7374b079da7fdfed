"""What the stages of search hand to each other."""

from dataclasses import dataclass

from kemem.text.query import Query
from kemem.text.when import TimePhrase
from kemem.types import Match


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its words and the times it speaks of."""

    text: str
    query: Query
    times: tuple[TimePhrase, ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What each signal found, best first, and which signals could not answer."""

    words: tuple[Match, ...]
    meaning: tuple[Match, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in the final order, with its reasons."""

    match: Match
    why: tuple[str, ...]
