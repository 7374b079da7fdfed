"""The stage that gives what rules read the user's own types, by descriptions and examples."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Literal

from kemem.add.rules import Reading
from kemem.errors import Unavailable
from kemem.facts.types import (
    OwnTypes,
    Typed,
    TypeProfile,
    match,
    profiles,
    texts_of,
    weights,
)
from kemem.facts.worth import EMBEDDER, MOST_CHARACTERS
from kemem.ports import Deps
from kemem.records.ontology import OwnType

Group = Literal["notes", "entities"]
GROUPS: tuple[Group, ...] = ("notes", "entities")
_MOST = 60  # sentences and clauses of a call that are compared with types

log = logging.getLogger("kemem")


async def own_types(reading: Reading, deps: Deps) -> OwnTypes:
    """The own types of what was said; by examples alone without the local embedder."""
    ontology = await deps.ontology.read(deps.store)
    if not ontology.notes and not ontology.entities:
        return OwnTypes()
    entities = ontology.entities.items()
    names = {text.casefold(): name for name, own in entities for text in own.examples}
    said = dict(_spoken(reading))
    texts = list(dict.fromkeys(said.values()))[:_MOST]
    if not texts or deps.embedder is None or deps.embedder.name != EMBEDDER:
        return OwnTypes(names=names)
    typed: dict[Group, Typed] = {}
    try:
        vectors = dict(zip(texts, await deps.embed(texts, purpose="passage"), strict=True))
        for group in GROUPS:
            known = await _profiles(getattr(ontology, group), group, deps)
            found = await asyncio.to_thread(match, texts, vectors, known, weights())
            typed[group] = {notes: found[text] for notes, text in said.items() if text in found}
    except Unavailable as error:
        log.warning("%s; notes get no type of their own", error.message)
    return OwnTypes(**typed, names=names)


async def _profiles(
    types: Mapping[str, OwnType], group: Group, deps: Deps
) -> tuple[TypeProfile, ...]:
    """What texts are compared with; computed once, until the ontology changes."""
    known: tuple[TypeProfile, ...] | None = deps.ontology.derived.get(group)
    if known is None:
        texts = texts_of(types)
        matrix = await deps.embed(texts, purpose="passage")
        known = profiles(types, dict(zip(texts, matrix, strict=True)))
        deps.ontology.derived[group] = known
    return known


def _spoken(reading: Reading) -> Iterator[tuple[tuple[str, ...], str]]:
    """Sentences and clauses as they were said, by the notes that they would be kept as."""
    for message, _, sentences in reading.messages:
        for sentence in sentences:
            parts = [part for part in sentence.parts if not part.silent]
            whole = ", ".join(part.text for part in parts)
            if len(sentences) == 1:  # which is embedded anyway
                whole = message.content[:MOST_CHARACTERS]
            yield from (((part.note,), part.text) for part in parts if len(parts) > 1)
            if parts:
                yield tuple(part.note for part in parts), whole
