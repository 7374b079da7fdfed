"""Last stage of search: what has ended stands below what took its place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kemem.ports.request import Context, Key
from kemem.records import Micros, Note, Row
from kemem.results import Hit


def unexpired(rows: Mapping[Key, Row], now: Micros) -> dict[Key, Row]:
    """Rows without the notes that have expired, which are not the past, but to be forgotten."""
    return {
        key: row
        for key, row in rows.items()
        if not isinstance(row, Note) or row.expires is None or row.expires > now
    }


def below_successors(hits: Sequence[Hit], contexts: Iterable[Context]) -> list[Hit]:
    """Hits in which each that has ended changes places with the one that says what holds instead.

    Scores stay in their places: what replaced an answer is as likely the answer.
    """
    messages = {it.superseded_by: it.successors for it in contexts if it.superseded_by}
    ranked = [*hits]
    for place in range(len(ranked)):
        for _ in ranked:  # the successor may have ended, too
            by = ranked[place].superseded_by or ""
            names = {by, *messages.get(by, ())}
            later = range(place + 1, len(ranked) if by else 0)
            other = next((at for at in later if ranked[at].id in names), None)
            if other is None:
                break
            first, second = ranked[place], ranked[other]
            ranked[place] = replace(second, score=first.score)
            ranked[other] = replace(first, score=second.score)
    return ranked
