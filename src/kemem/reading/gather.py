"""Second stage of search: ask every signal at once; one that is missing is tolerated and named."""

import asyncio

import structlog

from kemem.ports import Parts
from kemem.reading.question import Asked, Gathered
from kemem.types import Hit, Where

log = structlog.get_logger("kemem")


async def gather(asked: Asked, where: Where, depth: int, parts: Parts) -> Gathered:
    """Candidates by words and by meaning."""
    words, meaning = await asyncio.gather(
        parts.store.search(where, asked.query, limit=depth), _by_meaning(asked, where, depth, parts)
    )
    if meaning is None:
        return Gathered(words.hits, (), ("semantic",))
    return Gathered(words.hits, meaning)


async def _by_meaning(
    asked: Asked, where: Where, depth: int, parts: Parts
) -> tuple[Hit, ...] | None:
    if parts.embedder is None or parts.model is None:
        return None
    try:
        matrix = await parts.embedder.embed([asked.text], purpose="query")
    except Exception as error:  # a model's code or network; words still answer
        log.warning("query embedding failed", kind=type(error).__name__)
        return None
    return tuple(await parts.store.nearest(where, matrix[0], parts.model, depth))
