"""Second stage of search: ask every signal; one that is missing is tolerated and named."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest

from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.ports.request import Candidates, Neighborhood, SearchRequest, key_of
from kemem.records import NOTES, Match, Matrix, Relation, Where
from kemem.search.signals import ParsedQuery, SignalHits, Signals

_HOPS = 2
_RELATIONS = 50
_NEAR, _FAR = 1.0, 0.5  # what a relation of the named entity is worth, and one of its neighbors

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request for the store, and what models and a graph database answered beforehand."""

    request: SearchRequest
    relations: tuple[Relation, ...] = ()
    nearest: tuple[tuple[Match, ...], ...] = ()  # of the vector database, for each text
    missing: tuple[str, ...] = ()


async def prepare(query: ParsedQuery, where: Where, depth: int, deps: Deps) -> Prepared:
    """Embed the question, ask the graph database if there is one, and build the request."""
    vectors = await _embed(query, deps)
    near = _neighborhood(query, where)
    relations = await _from_mirror(near, deps) if near and deps.graph else ()
    nearest = await _from_index(vectors, where, depth, deps)
    lost = (vectors is None or nearest is None) and query.mode != "lexical"
    by_words = query.mode != "semantic" or lost  # words stand in for vectors
    request = SearchRequest(
        where,
        queries=tuple(part.query for part in query.texts) if by_words else (),
        vectors=None if deps.vectors else vectors,
        model=deps.model,
        limit=depth,
        keywords=query.keywords,
        around=None if deps.graph else near,
    )
    missing = [("semantic", lost), ("graph", relations is None)]
    gone = tuple(name for name, is_gone in missing if is_gone)
    return Prepared(request, relations or (), nearest or (), gone)


def to_signals(candidates: Candidates, prepared: Prepared, query: ParsedQuery) -> Signals:
    """The candidates of the store and of the graph as lists to fuse."""
    linked = _linked_notes((*candidates.relations, *prepared.relations), query)
    if candidates.admitted is not None:
        linked = [(match, path) for match, path in linked if key_of(match) in candidates.admitted]
    words = (ranking.matches for ranking in candidates.words)
    similar = prepared.nearest or candidates.vectors
    whole, *of_parts = (SignalHits(*pair) for pair in zip_longest(words, similar, fillvalue=()))
    return Signals(
        whole=whole,
        depth=prepared.request.limit,
        parts=tuple(of_parts),
        graph=tuple(match for match, _ in linked),
        paths={match.id: path for match, path in linked},
        missing=prepared.missing,
    )


async def _embed(query: ParsedQuery, deps: Deps) -> Matrix | None:
    """A vector for the question and for each of its parts; None where nothing embeds."""
    if query.mode == "lexical" or deps.model is None:
        return None
    try:
        return await deps.embed([part.text for part in query.texts], purpose="query")
    except Unavailable as error:
        log.warning("%s; words answer alone", error.message)
        return None


def _neighborhood(query: ParsedQuery, where: Where) -> Neighborhood | None:
    """The relations around the entities that a question names."""
    if query.mode != "hybrid" or not query.names:
        return None
    if not where.kinds & NOTES or where.role is not None:
        return None
    bare = replace(where, filters=None, since=None, until=None, ids=None)
    return Neighborhood(bare, query.names, _HOPS, _RELATIONS)


async def _from_index(
    vectors: Matrix | None, where: Where, depth: int, deps: Deps
) -> tuple[tuple[Match, ...], ...] | None:
    """What the vector database beside the store finds; None where it cannot be reached."""
    index, model = deps.vectors, deps.model
    if index is None or model is None or vectors is None:
        return ()
    try:
        return tuple([tuple(await index.nearest(where, it, model, depth)) for it in vectors])
    except Exception as error:  # the database's code or network, which may raise anything
        log.warning("the vector database failed: %s; words answer alone", type(error).__name__)
        return None


async def _from_mirror(near: Neighborhood, deps: Deps) -> tuple[Relation, ...] | None:
    """What the graph database beside the store knows; None where it cannot be reached."""
    try:
        return tuple(await deps.relations(near))
    except Unavailable as error:
        log.warning("%s; the graph is left out", error.message)
        return None


def _linked_notes(relations: Iterable[Relation], query: ParsedQuery) -> list[tuple[Match, str]]:
    """The notes behind relations, each with the relation that leads to it; nearest first."""
    named = {name.casefold() for name in query.names}
    linked: dict[str, tuple[Match, str]] = {}
    for each in relations:
        near = bool(named & {each.source.casefold(), each.destination.casefold()})
        path = f"{each.source} {each.relationship} {each.destination}"
        for note_id in each.note_ids:
            score = _NEAR if near else _FAR
            match = Match(each.agent_id, each.user_id, note_id, each.valid_from, score)
            linked.setdefault(note_id, (match, path))
    return list(linked.values())
