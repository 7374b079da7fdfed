"""Second stage of search: ask every signal at once; one that is missing is tolerated and named."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

from kemem.errors import Unavailable
from kemem.ports import Graph, Parts
from kemem.reading.question import Asked, Gathered
from kemem.types import NOTES, Match, Relation, Where

_HOPS = 2
_RELATIONS = 50
_NEAR, _FAR = 1.0, 0.5  # what a relation of the asked entity is worth, and one of its neighbours
_ALL = 100_000  # rows that a keyword can admit

_Key = tuple[str, str, str]

log = logging.getLogger("kemem")


async def gather(asked: Asked, where: Where, depth: int, parts: Parts) -> Gathered:
    """Candidates by the signals that are asked: by words, by meaning and by the graph."""
    admitted = await _admitted(asked, where, parts)
    if admitted is not None:  # the filters let them pass
        where = replace(where, ids=frozenset(key[-1] for key in admitted), filters=None)
    words, meaning, relations = await asyncio.gather(
        _by_words(asked, where, depth, parts),
        _by_meaning(asked, where, depth, parts),
        _by_graph(asked, where, parts),
    )
    missing = tuple(
        name for name, found in (("semantic", meaning), ("graph", relations)) if found is None
    )
    if asked.mode == "semantic" and meaning is None:
        words = await _by_words(replace(asked, mode="lexical"), where, depth, parts)
    notes = _notes(relations or [], asked)
    return Gathered(
        words=_among(admitted, words),
        meaning=_among(admitted, meaning or ()),
        graph=_among(admitted, (match for match, _ in notes)),
        paths={match.id: path for match, path in notes},
        missing=missing,
    )


async def _admitted(asked: Asked, where: Where, parts: Parts) -> set[_Key] | None:
    """The rows that contain a keyword; None where there are no keywords."""
    if asked.wanted is None:
        return None
    found = await parts.store.search(where, asked.wanted, limit=_ALL)
    return {_key(match) for match in found.matches}


def _among(admitted: set[_Key] | None, found: Iterable[Match]) -> tuple[Match, ...]:
    """What is admitted of what was found; several users' messages can have the same id."""
    return tuple(match for match in found if admitted is None or _key(match) in admitted)


def _key(match: Match) -> _Key:
    return (match.agent_id, match.user_id, match.id)


async def _by_words(asked: Asked, where: Where, depth: int, parts: Parts) -> tuple[Match, ...]:
    if asked.mode == "semantic":
        return ()
    return (await parts.store.search(where, asked.query, limit=depth)).matches


async def _by_meaning(
    asked: Asked, where: Where, depth: int, parts: Parts
) -> tuple[Match, ...] | None:
    if asked.mode == "lexical":
        return ()
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
    if asked.mode != "hybrid" or not asked.names:
        return []
    if not where.kinds & NOTES or where.role is not None:
        return []
    graph: Graph = parts.graph or parts.store
    bare = replace(where, filters=None, since=None, until=None, ids=None)
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
