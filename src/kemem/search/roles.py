"""What the names in a question stand for: Pip is "my cousin", where a row says so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kemem.ports.request import Key, key_of
from kemem.records import Row
from kemem.search.features import by_person, speaker_of
from kemem.search.understand import ParsedQuery
from kemem.text.naming import Naming, is_named, may_share_name, namings, unnamed
from kemem.text.reading import content
from kemem.text.things import Thing, tells_of

MOST = 2  # names that are followed
OTHERWISE = frozenset(("where", "when", "how_much"))  # what a question can ask without more words


@dataclass(frozen=True, slots=True)
class Role:
    """What a name in a question stands for: "my cousin" for Pip."""

    naming: Naming
    thing: Thing
    speaker: str  # whose it is,
    given_by: Key  # and in which row the speaker gives it the name
    exact: bool = False  # there is another one: "my younger sister"

    @property
    def name(self) -> str:
        """What is asked about in the place of the name."""
        return self.thing.text

    @property
    def said(self) -> str:
        """What gives the name."""
        return self.naming.said

    @property
    def terms(self) -> tuple[str, ...]:
        """What a row has that the hop may lead to."""
        return (*self.thing.kinds, *filter(None, (self.naming.bearer,)))

    def leads_to(self, row: Row) -> bool:
        """Whether the same speaker tells of it in a row, and of no other such thing."""
        text, own = row.content, self.naming
        others = (it for it in namings(text) if not (it.is_place or _same_name(it, own)))
        if any(kind in it.said for it in others for kind in self.thing.kinds):
            return False
        if own.bearer and is_named(own.bearer, text):
            return True
        return self.is_of(row) and tells_of(self.thing, text, own.known, self.exact)

    def is_of(self, row: Row) -> bool:
        """Whether "my" means the same person in a row."""
        same = key_of(row)[:2] == self.given_by[:2] and speaker_of(row) == self.speaker
        return same and by_person(row)

    def speaks_of(self, text: str) -> bool:
        """Whether a text uses the name."""
        return is_named(self.naming.name, text)


def roles(query: ParsedQuery, rows: Sequence[Row]) -> tuple[Role, ...]:
    """What the names in a question stand for by some rows, where it asks for more than that.

    "Where does Pip work?" + "Pip is my cousin" -> my cousin, for Pip
    """
    question, text = query.question, query.whole.text
    if question is None or "what_name" in question.answers or question.advice:
        return ()
    speakers, found = {*map(speaker_of, rows)}, dict[str, Role]()
    for row in filter(by_person, rows):
        for it in namings(row.content) if may_share_name(row.content, text) else ():
            thing, name = it.thing, it.name.casefold()
            if thing is None or name in speakers or unnamed(it, text) is None:
                continue
            if not tells_of(thing, text, it.known):
                found.setdefault(name, Role(it, thing, speaker_of(row), key_of(row)))
    asked = {*question.words} - {word for it in found.values() for word in content(it.naming.known)}
    if not (asked or question.answers & OTHERWISE):
        return ()
    sure = filter(None, (certain(it, rows) for it in found.values()))
    return tuple(sorted(sure, key=lambda it: -len(it.naming.full)))[:MOST]


def certain(role: Role, rows: Sequence[Row]) -> Role | None:
    """A role without doubt whose it is; None where rows give another name to such a thing."""
    for row in filter(role.is_of, rows):
        for it in namings(row.content):
            if it.thing is None or _same_name(it, role.naming):
                continue
            if {*it.thing.kinds}.isdisjoint(role.thing.kinds):
                continue
            if not role.thing.more or it.thing.more in ("", role.thing.more):
                return None
            role = replace(role, exact=True)
    return role


def _same_name(naming: Naming, other: Naming) -> bool:
    one, two = naming.full.casefold(), other.full.casefold()
    return one in two or two in one or bool(naming.names & other.names)
