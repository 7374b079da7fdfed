"""Second stage of search: ask every signal at once; one that is missing is tolerated and named."""

import asyncio
import logging
from dataclasses import replace

from kemem.errors import Unavailable
from kemem.ports import Graph, Parts
from kemem.reading.question import Asked, Gathered
from kemem.types import NOTES, Match, Relation, Where

_HOPS = 2
_RELATIONS = 50
_NEAR, _FAR = 1.0, 0.5  # what a relation of the asked entity is worth, and one of its neighbours

log = logging.getLogger("kemem")


async def gather(asked: Asked, where: Where, depth: int, parts: Parts) -> Gathered:
    """Candidates by words, by meaning and by the graph."""
    words, meaning, relations = await asyncio.gather(
        parts.store.search(where, asked.query, limit=depth),
        _by_meaning(asked, where, depth, parts),
        _by_graph(asked, where, parts),
    )
    missing = tuple(
        name for name, found in (("semantic", meaning), ("graph", relations)) if found is None
    )
    notes = _notes(relations or [], asked)
    return Gathered(
        words=words.matches,
        meaning=meaning or (),
        graph=tuple(match for match, _ in notes),
        paths={match.id: path for match, path in notes},
        missing=missing,
    )


async def _by_meaning(
    asked: Asked, where: Where, depth: int, parts: Parts
) -> tuple[Match, ...] | None:
    if parts.model is None:
        return None
    try:
        (vector,) = await parts.embed([asked.text], purpose="query")
    except Unavailable as error:
        log.warning("%s; words answer alone", error.message)
        return None
    return tuple(await parts.store.nearest(where, vector, parts.model, depth))


async def _by_graph(asked: Asked, where: Where, parts: Parts) -> list[Relation] | None:
    """Relations around the entities that a question names."""
    if not asked.names or not where.kinds & NOTES or where.role is not None:
        return []
    graph: Graph = parts.graph or parts.store
    bare = replace(where, filters=None, since=None, until=None)
    try:
        return await graph.around(bare, asked.names, hops=_HOPS, limit=_RELATIONS)
    except Unavailable as error:
        log.warning("%s; the graph is left out", error.message)
        return None


def _notes(relations: list[Relation], asked: Asked) -> list[tuple[Match, str]]:
    """The notes behind relations, each with the relation that leads to it; nearest first."""
    named = {name.casefold() for name in asked.names}
    found: dict[str, tuple[Match, str]] = {}
    for each in relations:
        near = bool(named & {each.source.casefold(), each.destination.casefold()})
        path = f"{each.source} {each.relationship} {each.destination}"
        for note_id in each.note_ids:
            score = _NEAR if near else _FAR
            match = Match(each.agent_id, each.user_id, note_id, each.valid_from, score)
            found.setdefault(note_id, (match, path))
    return list(found.values())
