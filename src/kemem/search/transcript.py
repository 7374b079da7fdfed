"""The Query API over the message log: range, words, meaning, neighbours."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kemem.errors import InvalidArgument, NotFound
from kemem.ports import Deps, read_messages
from kemem.ports.request import Candidates, SearchRequest, SearchResponse, key_of
from kemem.records import Match, Message, Page, Rank, Vector, Where
from kemem.results import Hit
from kemem.search.page import (
    least_score,
    open_position,
    open_rank,
    page_limit,
    seal_position,
    seal_rank,
)
from kemem.text.query import parse
from kemem.text.snippets import matches

MAX_NEIGHBORS = 1000


async def read(where: Where, page_size: int, cursor: str | None, deps: Deps) -> Page[Message]:
    """A page of the transcript, newest first."""
    size = page_limit(page_size, "page_size")
    secret = (await deps.store.info()).secret
    bound = ("read", where)
    after = open_position(cursor, bound, secret) if cursor is not None else None
    rows = await read_messages(deps.store, where, after=after, limit=size + 1)
    items = tuple(rows[:size])
    if len(rows) <= size:
        return Page(items)
    last = items[-1].position
    return Page(items, seal_position(last, bound, secret))


async def by_words(
    where: Where, query_text: str, page_size: int, cursor: str | None, deps: Deps
) -> Page[Hit]:
    """A page of the messages that match a query, best first, with their matches marked."""
    size = page_limit(page_size, "page_size")
    query = parse(query_text)
    secret = (await deps.store.info()).secret
    bound = ("words", where, query_text)
    after = open_rank(cursor, bound, secret) if cursor is not None else None
    response = await deps.store.search(
        SearchRequest(where, queries=(query,), limit=size + 1, after=after, select=_every_match)
    )
    (ranking,) = response.candidates.words
    page = ranking.matches[:size]
    hits = _to_hits(page, response)
    texts = [hit.row.content for hit in hits]
    marked = await asyncio.to_thread(lambda: [matches(text, query).snippets for text in texts])
    items = tuple(replace(hit, snippets=it) for hit, it in zip(hits, marked, strict=True))
    if len(ranking.matches) <= size:
        return Page(items)
    last = page[-1]
    place = Rank(last.score, last.ts, last.id, ranking.mark)
    return Page(items, seal_rank(place, bound, secret))


async def by_meaning(
    where: Where,
    query: str | None,
    embedding: Sequence[float] | None,
    top_k: int,
    min_score: float | None,
    deps: Deps,
) -> list[Hit]:
    """The messages nearest to a text or to a vector of the same model, most similar first."""
    if (query is None) == (embedding is None) or not isinstance(query, str | None):
        raise InvalidArgument(
            "pass either query_text, a string, or query_embedding", field="query_text"
        )
    limit = page_limit(top_k, "top_k")
    least = least_score(min_score, "min_score")
    if deps.model is None:
        raise InvalidArgument(
            "semantic search needs an embedder; this memory was opened with embedder 'none'",
            field="embedder",
        )
    if embedding is not None:
        vector = _given_vector(embedding, deps.model.width)
    elif query is not None and query.strip():
        (vector,) = await deps.embed([query], purpose="query")
    else:
        raise InvalidArgument("query_text must not be blank", field="query_text")
    response = await deps.store.search(
        SearchRequest(
            where,
            vectors=vector[np.newaxis],
            model=deps.model,
            limit=limit,
            select=_every_match,
        )
    )
    (nearest,) = response.candidates.vectors
    return _to_hits([match for match in nearest if match.score >= least], response)


def _every_match(candidates: Candidates) -> Sequence[Match]:
    return [
        match
        for matches in (*(it.matches for it in candidates.words), *candidates.vectors)
        for match in matches
    ]


def _to_hits(matches: Sequence[Match], response: SearchResponse) -> list[Hit]:
    pairs = [(match, response.rows.get(key_of(match))) for match in matches]
    return [Hit(row, match.score) for match, row in pairs if row]


async def neighbors(
    where: Where, message_id: str, before: int, after: int, deps: Deps
) -> list[Message]:
    """A message with those said before and after it, in the order they were said."""
    for name, count in (("before", before), ("after", after)):
        if type(count) is not int or not 0 <= count <= MAX_NEIGHBORS:
            raise InvalidArgument(f"{name} must be 0-{MAX_NEIGHBORS}, not {count!r}", field=name)
    named = replace(where, ids=frozenset([message_id]))
    anchors = await read_messages(deps.store, named, limit=1)
    if not anchors:
        raise NotFound(f"no message {message_id!r:.80}", message_id=message_id)
    anchor = anchors[0]
    place = anchor.position
    earlier = await read_messages(deps.store, where, after=place, limit=before)
    later = await read_messages(deps.store, where, after=place, limit=after, newest_first=False)
    return [*reversed(earlier), anchor, *later]


def _given_vector(numbers: Sequence[float], width: int) -> Vector:
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            vector = np.asarray(numbers, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        vector = np.zeros(0, dtype=np.float32)
    if vector.shape != (width,) or not np.isfinite(vector).all() or not vector.any():
        raise InvalidArgument(
            f"query_embedding must be {width} finite numbers that are not all zero",
            field="query_embedding",
        )
    return vector
