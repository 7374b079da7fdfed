"""The recipe of search: understand, gather, fuse, pack, rerank."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.answers import Hit, Memories
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import Parts
from kemem.reading.fetch import fetch
from kemem.reading.fuse import fuse
from kemem.reading.gather import gather
from kemem.reading.pack import pack
from kemem.reading.rerank import rerank
from kemem.reading.understand import understand
from kemem.text.language import is_chinese
from kemem.text.query import plain
from kemem.types import Match, Note, Where

MAX_HITS = 1000
_DEPTH = 5  # candidates of each signal for every hit asked for
_LEAST = 50
_SPARE = 2  # times more is packed than asked for: repeats are left out


async def search(
    text: str,
    where: Where,
    limit: int,
    parts: Parts,
    *,
    threshold: float = 0.0,
    reranked: bool = False,
    explain: bool = True,
    field: str = "query_text",
) -> Memories[Hit]:
    """The rows that answer a question best, by all signals together, with reasons."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(
            f"{field} must be a text that is not blank, not {text!r:.80}", field=field
        )
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"limit must be 1-{MAX_HITS}, not {limit!r:.80}", field="limit")
    most = min(limit, MAX_HITS)
    asked = understand(text, parts.clock())
    found = await gather(asked, where, max(most * _DEPTH, _LEAST), parts)
    ranked = fuse(found, asked)[: most * _SPARE]
    hits = await pack(ranked, asked, where, parts)
    hits = await rerank(text, hits, parts.reranker if reranked else None)
    best = [hit for hit in hits if hit.score >= threshold][:most]
    return Memories(
        items=tuple(best if explain else [replace(hit, why=()) for hit in best]),
        missing=found.missing,
        language="zh" if is_chinese(text) else "en",
    )


async def nearest_notes(text: str, where: Where, limit: int, parts: Parts) -> list[Note]:
    """Notes that are about what a text says, without reasons: what a model is shown of them."""
    found: Sequence[Match] = ()
    try:
        (vector,) = await parts.embed([text], purpose="query")
        if parts.model is not None:
            found = await parts.store.nearest(where, vector, parts.model, limit)
    except Unavailable:
        found = (await parts.store.search(where, plain(text), limit=limit)).matches
    rows = await fetch(found, where, parts)
    return [row for row in rows if isinstance(row, Note)]
