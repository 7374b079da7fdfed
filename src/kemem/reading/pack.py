"""Last stage of search: the messages themselves, with what matched marked."""

from collections.abc import Sequence

from kemem.ports import Parts
from kemem.reading.fetch import fetch
from kemem.reading.question import Asked, Ranked
from kemem.text.snippets import matches
from kemem.types import Hit, Scope


async def pack(ranked: Sequence[Ranked], asked: Asked, scope: Scope, parts: Parts) -> list[Hit]:
    """Hits for the ranking's head; what has gone meanwhile is left out."""
    messages = await fetch([each.match for each in ranked], scope, parts)
    hits = []
    for each, message in zip(ranked, messages, strict=True):
        if message:
            found = matches(message.content, asked.query)
            terms = (f"terms: {', '.join(found.terms)}",) if found.terms else ()
            hits.append(Hit(message, each.match.score, (*each.why, *terms), found.snippets))
    return hits
