"""The recipe of search: understand, gather, fuse, pack."""

from kemem.errors import InvalidArgument
from kemem.ports import Parts
from kemem.reading.fuse import fuse
from kemem.reading.gather import gather
from kemem.reading.pack import pack
from kemem.reading.understand import understand
from kemem.types import Hit, Where

MAX_HITS = 1000
_DEPTH = 5  # candidates of each signal for every hit asked for
_LEAST = 50


async def search(text: str, where: Where, limit: int, parts: Parts) -> list[Hit]:
    """The messages that answer a question best, by words and meaning together, with reasons."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(
            f"query_text must be a text that is not blank, not {text!r:.80}", field="query_text"
        )
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"limit must be 1-{MAX_HITS}, not {limit!r:.80}", field="limit")
    most = min(limit, MAX_HITS)
    asked = understand(text, parts.clock())
    found = await gather(asked, where, max(most * _DEPTH, _LEAST), parts)
    ranked = fuse(found, asked)[:most]
    return await pack(ranked, asked, where.scope, parts)
