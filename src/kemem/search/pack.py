"""The rows themselves, and what matches in those that are shown."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.ports import Deps
from kemem.records import Note, Where
from kemem.results import Hit
from kemem.search.fetch import fetch
from kemem.search.question import Asked, Ranked
from kemem.text.snippets import matches


async def pack(ranked: Sequence[Ranked], where: Where, deps: Deps) -> list[Hit]:
    """Hits for the ranking's head; what has gone meanwhile is left out."""
    rows = await fetch([each.match for each in ranked], where, deps)
    return _without_repeats(
        [
            Hit(row, each.match.score, each.why)
            for each, row in zip(ranked, rows, strict=True)
            if row
        ]
    )


def mark(hit: Hit, asked: Asked) -> Hit:
    """A hit with what matched."""
    found = matches(hit.row.content, asked.query)
    borrowed = ["around it"] if any(it.startswith("lexical") for it in hit.why) else []
    terms = [*found.terms] or borrowed
    why = (*hit.why, f"terms: {', '.join(terms)}") if terms else hit.why
    return replace(hit, why=why, snippets=found.snippets)


def _without_repeats(hits: Sequence[Hit]) -> list[Hit]:
    """Hits without the messages that a note among them says nearly whole."""
    said: dict[str, int] = {}
    for hit in hits:
        if isinstance(hit.row, Note):
            for source in hit.row.sources:
                said[source] = max(said.get(source, 0), len(hit.row.content))
    return [
        hit
        for hit in hits
        if isinstance(hit.row, Note) or 2 * said.get(hit.id, 0) < len(hit.row.content)
    ]
