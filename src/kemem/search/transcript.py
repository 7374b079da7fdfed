"""The Query API over the message log: range, words, meaning, neighbours."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kemem.errors import InvalidArgument, NotFound
from kemem.ports import Deps
from kemem.records import Message, Page, Position, Rank, Vector, Where
from kemem.results import Hit
from kemem.search.fetch import fetch_messages
from kemem.search.page import open_position, open_rank, seal_position, seal_rank
from kemem.text.query import parse
from kemem.text.snippets import matches

MAX_PAGE = 1000
MAX_NEIGHBORS = 1000


async def read(where: Where, page_size: int, cursor: str | None, deps: Deps) -> Page[Message]:
    """A page of the transcript, newest first."""
    size = page_limit(page_size, "page_size")
    secret = await deps.store.secret()
    bound = ("read", where)
    after = open_position(cursor, bound, secret) if cursor is not None else None
    rows = await deps.store.scan(where, after=after, limit=size + 1)
    items = tuple(rows[:size])
    if len(rows) <= size:
        return Page(items)
    last = Position(items[-1].ts, items[-1].message_id)
    return Page(items, seal_position(last, bound, secret))


async def by_words(
    where: Where, query_text: str, page_size: int, cursor: str | None, deps: Deps
) -> Page[Hit]:
    """A page of the messages that match a query, best first, with their matches marked."""
    size = page_limit(page_size, "page_size")
    query = parse(query_text)
    secret = await deps.store.secret()
    bound = ("words", where, query_text)
    after = open_rank(cursor, bound, secret) if cursor is not None else None
    found = await deps.store.search(where, query, limit=size + 1, after=after)
    page = found.matches[:size]
    messages = await fetch_messages(page, where, deps)
    hits = [(it, match) for match, it in zip(page, messages, strict=True) if it]
    texts = [message.content for message, _ in hits]
    marked = await asyncio.to_thread(lambda: [matches(text, query).snippets for text in texts])
    items = tuple(
        Hit(message, match.score, snippets=snippets)
        for (message, match), snippets in zip(hits, marked, strict=True)
    )
    if len(found.matches) <= size:
        return Page(items)
    last = page[-1]
    place = Rank(last.score, last.ts, last.id, found.mark)
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
    found = await deps.store.nearest(where, vector, deps.model, limit)
    near = [match for match in found if match.score >= least]
    messages = await fetch_messages(near, where, deps)
    pairs = zip(near, messages, strict=True)
    return [Hit(message, match.score) for match, message in pairs if message]


async def neighbors(
    where: Where, message_id: str, before: int, after: int, deps: Deps
) -> list[Message]:
    """A message with those said before and after it, in the order they were said."""
    for name, count in (("before", before), ("after", after)):
        if type(count) is not int or not 0 <= count <= MAX_NEIGHBORS:
            raise InvalidArgument(f"{name} must be 0-{MAX_NEIGHBORS}, not {count!r}", field=name)
    named = replace(where, ids=frozenset([message_id]))
    anchors = await deps.store.scan(named, limit=1)
    if not anchors:
        raise NotFound(f"no message {message_id!r:.80}", message_id=message_id)
    anchor = anchors[0]
    place = Position(anchor.ts, anchor.message_id)
    later = await deps.store.scan(where, after=place, limit=after, newest_first=False)
    # Equal times go by id in either direction of a scan: those of the anchor are read apart.
    same_time = replace(where, since=anchor.ts, until=anchor.ts + 1)
    level = await deps.store.scan(same_time, limit=MAX_PAGE, newest_first=False)
    older = await deps.store.scan(replace(where, until=anchor.ts), limit=before)
    earlier = [*reversed(older), *(m for m in level if m.message_id < anchor.message_id)]
    return [*(earlier[-before:] if before else ()), anchor, *later]


def page_limit(size: int, field: str) -> int:
    """A size from 1 on; more than a page can hold is a full page."""
    if type(size) is not int or size < 1:
        raise InvalidArgument(f"{field} must be 1-{MAX_PAGE}, not {size!r:.80}", field=field)
    return min(size, MAX_PAGE)


def least_score(score: float | None, field: str) -> float:
    """A threshold from 0 to 1; without one everything passes."""
    if score is None:
        return 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidArgument(f"{field} must be 0-1, not {score!r:.80}", field=field)
    return float(score)


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
