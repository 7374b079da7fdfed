"""What an extractor finds in messages, whether it is a model or a set of rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kemem.records import Micros


@dataclass(frozen=True, slots=True)
class Triple:
    """One relation by the names of its ends.  李明 --studies_at--> 北京大学"""

    source: str
    relationship: str
    destination: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing worth remembering, understandable by itself, in the language it was said in."""

    text: str  # empty: what it replaces is over, and nothing is in its place
    sources: tuple[str, ...]  # ids of the messages that say it
    memory_type: str = "general"
    keywords: tuple[str, ...] = ()
    importance: float = 0.5  # 0-1
    when: Micros | None = None  # when it happens or happened; None: when it was said
    topic: str | None = None  # facts of one topic replace each other: "user/lives_in"
    replaces: tuple[str, ...] = ()  # ids of notes that it makes untrue
    relations: tuple[Triple, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of some messages, and the types of the entities that they speak of."""

    facts: tuple[Fact, ...] = ()
    entities: Mapping[str, str] = field(default_factory=dict)  # name -> person, place, …
