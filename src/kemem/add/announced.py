"""Changes that are told before their day: what they wait for, and what takes them back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kemem.add.extract import digest
from kemem.add.rules import Fact
from kemem.facts.announced import (
    clauses,
    from_day,
    is_of_another,
    kind_of,
    names_it,
    speaks_of,
    start_of,
)
from kemem.facts.kinds import signs
from kemem.records import Micros, Note

CALLED_OFF = frozenset({"TAKEN_BACK", "STAYS", "PUT_OFF"})  # signs of what concerns announcements


def is_announced(note: Note) -> bool:
    """Whether a note tells of a change before its day.  "User lives in Ghent (from 2026-05)" """
    return note.memory_type == "plan" and note.ts == note.valid_from


def lies_ahead(note: Note, at: Micros) -> bool:
    """Whether a note announces what had not begun at a time, and still was to come."""
    return is_announced(note) and note.valid_from > at and not note.ended(at)


def from_their_day(facts: Sequence[Fact], times: Mapping[str, Micros]) -> list[Fact]:
    """Facts of which a new job begins on the day that its message tells elsewhere.

    "I got the job at Telenor! I start on 1 June."
    """
    begun = []
    for fact in facts:
        said = max((times[name] for name in fact.sources if name in times), default=None)
        is_now = said is not None and (fact.since or said) <= said
        if said is not None and is_now and kind_of(fact.topic) == "job" and fact.told:
            day = start_of(fact.told.message, said)
            fact = replace(fact, memory_type="plan", when=day, since=day) if day else fact
        begun.append(fact)
    return begun


def put_off(fact: Fact, notes: Collection[Note], at: Micros) -> Fact:
    """A fact that gives what is announced another day, with what was announced; else as it is.

    "The move is postponed to 1 July" -> "User lives in Ghent (from 2026-07-01)"
    """
    day = fact.when or fact.since
    settled = fact.topic is not None and "/date/" not in fact.topic
    if settled or day is None or day <= at or "PUT_OFF" not in signs(fact.text):
        return fact
    for note in notes:
        if lies_ahead(note, at) and note.topic and _is_meant(note, fact, ()):
            return replace(
                fact,
                text=from_day(note.content, fact.text),
                sources=(*note.sources, *fact.sources),
                memory_type="plan",
                keywords=note.keywords,
                topic=note.topic,
                when=day,
                since=day,
                tentative=False,
            )
    return fact


def are_off(fact: Fact, notes: Collection[Note], at: Micros) -> tuple[str, ...]:
    """The ids of the notes that announce what a fact takes back, or announces otherwise."""
    ahead = [it for it in notes if lies_ahead(it, at) and not {*it.sources} >= {*fact.sources}]
    if fact.since is not None and fact.since > at and fact.topic:
        return tuple(
            it.note_id for it in ahead if it.topic == fact.topic and it.digest != digest(fact)
        )
    if not signs(fact.text) & CALLED_OFF:  # put off without a day, it does not come on its own
        return ()
    return tuple(it.note_id for it in ahead if _is_meant(it, fact, _waiting(it, notes)))


def held_again(fact: Fact, notes: Collection[Note], at: Micros, now: Micros) -> dict[str, Note]:
    """The notes that were to end by announcements which a fact takes back."""
    dropped = [it for it in notes if it.note_id in fact.replaces and lies_ahead(it, at)]
    return {
        it.note_id: replace(it, valid_until=None, updated=now)
        for note in dropped
        for it in _waiting(note, notes)
    }


def _waiting(note: Note, notes: Collection[Note]) -> list[Note]:
    """The notes that hold until what another one announces begins."""
    return [
        it
        for it in notes
        if it.valid_until == note.valid_from
        and (it.note_id == note.supersedes or (it.topic is not None and it.topic == note.topic))
    ]


def _is_meant(note: Note, fact: Fact, waiting: Sequence[Note]) -> bool:
    """Whether a clause of a fact says that what a note announces is off, put off, or not to be."""
    if is_of_another(note.topic, fact.text, note.content):
        return False
    names = note.keywords
    for clause in clauses(fact.text):
        own = signs(clause)
        if "STAYS" in own and any(speaks_of(clause, it.content) for it in waiting):
            return True
        if own & {"TAKEN_BACK", "PUT_OFF"}:
            if kind_of(note.topic) in own and "ELSEWHERE" not in own:
                return True
            if names_it(clause, names):
                return True
    return False
