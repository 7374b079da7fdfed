"""The recipe of search: understand, gather, fuse, pack, rerank."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import Deps
from kemem.records import NOTES, Match, Note, Where
from kemem.results import Hit, Memories
from kemem.search.fetch import fetch
from kemem.search.fuse import fuse
from kemem.search.gather import gather
from kemem.search.pack import mark, pack
from kemem.search.question import Mode
from kemem.search.rerank import rerank
from kemem.search.understand import understand
from kemem.text.language import is_chinese
from kemem.text.query import plain

MAX_HITS = 1000
_DEPTH = 5  # candidates of each signal for every hit asked for
_LEAST = 120
_SPARE = 2  # times more is packed than asked for, where notes may repeat messages


async def search(
    text: str,
    where: Where,
    limit: int,
    deps: Deps,
    *,
    mode: Mode = "hybrid",
    keywords: Sequence[str] | None = None,
    threshold: float = 0.0,
    reranked: bool = False,
    explain: bool = True,
    count: bool = False,
    field: str = "query_text",
) -> Memories[Hit]:
    """The rows that answer a question best, by all signals together, with reasons.

    To `count` all that answer it, every row is looked at that is among the first 1,000 of a signal.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(
            f"{field} must be a text that is not blank, not {text!r:.80}", field=field
        )
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"limit must be 1-{MAX_HITS}, not {limit!r:.80}", field="limit")
    most = min(limit, MAX_HITS)
    now = deps.clock() if where.known_by is None else where.known_by
    # What reads texts runs in a thread: long ones would block the event loop.
    asked = await asyncio.to_thread(understand, text, now, mode, keywords)
    found = await gather(asked, where, max(most * _DEPTH, MAX_HITS if count else _LEAST), deps)
    spare = _SPARE if where.kinds & NOTES else 1
    ranked = fuse(found, asked, None if count else most * spare)
    reranker = deps.reranker if reranked else None
    if reranker is None:
        ranked = [each for each in ranked if each.match.score >= threshold]
    hits = await pack(ranked, where, deps)
    hits = [hit for hit in await rerank(text, hits, reranker) if hit.score >= threshold]
    best = hits[:most]
    marked = await asyncio.to_thread(lambda: [mark(hit, asked) for hit in best if explain])
    return Memories(
        items=tuple(marked if explain else (replace(hit, why=()) for hit in best)),
        missing=found.missing,
        language="zh" if is_chinese(text) else "en",
        total=len(hits) if count else 0,
    )


async def nearest_notes(text: str, where: Where, limit: int, deps: Deps) -> list[Note]:
    """Notes that are about what a text says, without reasons: what a model is shown of them."""
    found: Sequence[Match] = ()
    try:
        (vector,) = await deps.embed([text], purpose="query")
        if deps.model is not None:
            found = await deps.store.nearest(where, vector, deps.model, limit)
    except Unavailable:
        found = (await deps.store.search(where, plain(text), limit=limit)).matches
    rows = await fetch(found, where, deps)
    return [row for row in rows if isinstance(row, Note)]
