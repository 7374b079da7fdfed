"""Second stage of search: ask every signal at once; one that is missing is tolerated and named."""

import asyncio
import logging

from kemem.errors import Unavailable
from kemem.ports import Parts
from kemem.reading.question import Asked, Gathered
from kemem.types import Match, Where

log = logging.getLogger("kemem")


async def gather(asked: Asked, where: Where, depth: int, parts: Parts) -> Gathered:
    """Candidates by words and by meaning."""
    words, meaning = await asyncio.gather(
        parts.store.search(where, asked.query, limit=depth), _by_meaning(asked, where, depth, parts)
    )
    if meaning is None:
        return Gathered(words.matches, (), ("semantic",))
    return Gathered(words.matches, meaning)


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
