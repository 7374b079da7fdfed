"""Second stage of search: ask every signal; one that is missing is tolerated and named."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from kemem.errors import Unavailable
from kemem.ports import Deps, Graph
from kemem.records import NOTES, Match, Relation, Where
from kemem.search.question import Asked, Found, Gathered, Key, key_of

_HOPS = 2
_RELATIONS = 50
_NEAR, _FAR = 1.0, 0.5  # what a relation of the asked entity is worth, and one of its neighbours
_ALL = 100_000  # rows that a keyword can admit

log = logging.getLogger("kemem")


async def gather(asked: Asked, where: Where, depth: int, deps: Deps) -> Gathered:
    """Candidates by the signals that are asked: by words, by meaning and by the graph."""
    admitted = await _admitted(asked, where, deps)
    if admitted is not None:  # the filters let them pass
        where = replace(where, ids=frozenset(key[-1] for key in admitted), filters=None)
    # One after the other: side by side they take as long, and a fifth more of the processor.
    meaning = await _by_meaning(asked, where, depth, deps)
    words = await _by_words(asked, where, depth, deps)
    relations = await _by_graph(asked, where, deps)
    missing = tuple(
        name for name, found in (("semantic", meaning), ("graph", relations)) if found is None
    )
    if asked.mode == "semantic" and meaning is None:
        words = await _by_words(replace(asked, mode="lexical"), where, depth, deps)
    notes = _notes(relations or [], asked)
    whole, *of_parts = (
        Found(_among(admitted, by_words), _among(admitted, by_meaning))
        for by_words, by_meaning in zip_longest(words, meaning or (), fillvalue=())
    )
    return Gathered(
        whole=whole,
        depth=depth,
        parts=tuple(of_parts),
        graph=_among(admitted, (match for match, _ in notes)),
        paths={match.id: path for match, path in notes},
        missing=missing,
    )


async def _admitted(asked: Asked, where: Where, deps: Deps) -> set[Key] | None:
    """The rows that contain a keyword; None where there are no keywords."""
    if asked.wanted is None:
        return None
    found = await deps.store.search(where, asked.wanted, limit=_ALL)
    return {key_of(match) for match in found.matches}


def _among(admitted: set[Key] | None, found: Iterable[Match]) -> tuple[Match, ...]:
    """What is admitted of what was found."""
    return tuple(match for match in found if admitted is None or key_of(match) in admitted)


async def _by_words(asked: Asked, where: Where, depth: int, deps: Deps) -> list[Sequence[Match]]:
    """What the whole question finds by its words, then what each of its parts finds."""
    if asked.mode == "semantic":
        return [()]
    queries = [part.query for part in (asked.whole, *asked.parts)]
    return [(await deps.store.search(where, it, limit=depth)).matches for it in queries]


async def _by_meaning(
    asked: Asked, where: Where, depth: int, deps: Deps
) -> list[Sequence[Match]] | None:
    """The same by meaning; None where nothing embeds."""
    if asked.mode == "lexical":
        return [()]
    if deps.model is None:
        return None
    texts = [part.text for part in (asked.whole, *asked.parts)]
    try:
        vectors = await deps.embed(texts, purpose="query")
    except Unavailable as error:
        log.warning("%s; words answer alone", error.message)
        return None
    return [await deps.store.nearest(where, it, deps.model, depth) for it in vectors]


async def _by_graph(asked: Asked, where: Where, deps: Deps) -> list[Relation] | None:
    """Relations around the entities that a question names."""
    if asked.mode != "hybrid" or not asked.names:
        return []
    if not where.kinds & NOTES or where.role is not None:
        return []
    graph: Graph = deps.graph or deps.store
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
