"""The stage that gives what rules read the user's own types, by descriptions and examples."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kemem.add.rules import Reading
from kemem.errors import Unavailable
from kemem.facts.grammar import ME, Relation
from kemem.facts.relations import Found, RelationType, relation_types, relations_in
from kemem.facts.types import (
    OwnTypes,
    Typed,
    TypeProfile,
    match,
    profiles,
    texts_of,
    weights,
)
from kemem.facts.worth import MOST_CHARACTERS, Vectors, mean
from kemem.ports import Deps
from kemem.records.ontology import OwnType

Group = Literal["notes", "entities"]
GROUPS: tuple[Group, ...] = ("notes", "entities")
# A note is in other words than its sentence. Only sentences that are near enough by the vectors of
# their notes are embedded themselves.
_LIKELY = -4.0
_LEAST_NEAR = 0.33  # likeness to an example of a clause that says a relation by a common verb
_MOST = 60  # sentences and clauses of a call that are compared with types

log = logging.getLogger("kemem")


async def own_types(reading: Reading, vectors: Vectors | None, deps: Deps) -> OwnTypes:
    """The own types of what was said, by the vectors of a reading; without any, of names alone."""
    ontology = await deps.ontology.read(deps.store)
    entities = ontology.entities.items()
    names = {text.casefold(): name for name, own in entities for text in own.examples}
    related = await _related(reading, ontology.relations, vectors, deps)
    if not vectors or not (ontology.notes or entities):
        return OwnTypes(names=names, relations=related)
    said = [it for it in _spoken(reading, vectors) if it.vector is not None][:_MOST]
    near, texts = {it.text: it.vector for it in said}, [it.text for it in said]
    typed: dict[Group, Typed] = {}
    try:
        for group in GROUPS:
            if types := getattr(ontology, group):
                known = await _profiles(types, group, deps)
                likely = list(match(texts, near, known, weights(), _LIKELY))
                exact = await deps.embed(likely, purpose="passage") if likely else ()
                found = match(likely, dict(zip(likely, exact, strict=True)), known, weights())
                typed[group] = {it.notes: found[it.text] for it in said if it.text in found}
    except Unavailable as error:
        log.warning("%s; notes get no type of their own", error.message)
    return OwnTypes(**typed, names=names, relations=related)


async def _related(
    reading: Reading, types: Mapping[str, OwnType], vectors: Vectors | None, deps: Deps
) -> dict[str, tuple[Relation, ...]]:
    """The own relations that clauses state, by the notes of the clauses."""
    if not types:
        return {}
    if "relations" not in deps.ontology.derived:
        deps.ontology.derived["relations"] = await asyncio.to_thread(relation_types, types)
    known = deps.ontology.derived["relations"]
    found = await asyncio.to_thread(_found, reading, known)
    certain = {
        note: tuple(
            [it.relation for it in some if not it.weak or await _is_near(note, it, vectors, deps)]
        )
        for note, some in found.items()
    }
    return {note: relations for note, relations in certain.items() if relations}


def _found(reading: Reading, types: Sequence[RelationType]) -> dict[str, list[Found]]:
    parts = (
        (part, speaker.label or ME)
        for _, speaker, sentences in reading.messages
        for sentence in sentences
        for part in sentence.parts
    )
    return {part.note: found for part, me in parts if (found := [*relations_in(part, me, types)])}


async def _is_near(note: str, found: Found, vectors: Vectors | None, deps: Deps) -> bool:
    """Whether a clause means the like of an example, where its verb alone may mean anything."""
    if not vectors or note not in vectors:
        return False
    try:
        examples = await deps.embed(found.own.examples, purpose="passage")
    except Unavailable as error:
        log.warning("%s; an uncertain relation is left out", error.message)
        return False
    return float((examples @ vectors[note]).max()) >= _LEAST_NEAR


async def _profiles(
    types: Mapping[str, OwnType], group: Group, deps: Deps
) -> tuple[TypeProfile, ...]:
    """What texts are compared with; computed once, until the ontology changes."""
    known: tuple[TypeProfile, ...] | None = deps.ontology.derived.get(group)
    if known is None:
        texts = texts_of(types)
        matrix = await deps.embed(texts, purpose="passage")
        known = profiles(types, dict(zip(texts, matrix, strict=True)), weights())
        deps.ontology.derived[group] = known
    return known


class _Spoken(NamedTuple):
    """A sentence or clause as it was said, and the notes that it would be kept as."""

    notes: tuple[str, ...]
    text: str
    vector: Any  # None for a text of which too little is embedded


def _spoken(reading: Reading, vectors: Vectors) -> Iterator[_Spoken]:
    """Sentences and clauses; a message of one sentence has a vector of its own words."""
    for message, _, sentences in reading.messages:
        for sentence in sentences:
            parts = [part for part in sentence.parts if not part.silent]
            notes = tuple(part.note for part in parts)
            known = [vectors[it] for it in notes if it in vectors]
            whole, vector = ", ".join(part.text for part in parts), mean(known)
            if len(sentences) == 1:
                whole = message.content[:MOST_CHARACTERS]
                vector = vectors.get(whole, vector)
            if len(parts) > 1:
                yield from (
                    _Spoken((part.note,), part.text, vectors.get(part.note)) for part in parts
                )
            if parts:
                yield _Spoken(notes, whole, vector)
