"""Last stage of search: what has ended stands below what took its place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kemem.ports.request import Context, Key, key_of
from kemem.records import Micros, Note, Row
from kemem.results import Hit


def unexpired(rows: Mapping[Key, Row], now: Micros) -> dict[Key, Row]:
    """Rows without the notes that have expired, which are not the past, but to be forgotten."""
    return {
        key: row
        for key, row in rows.items()
        if not isinstance(row, Note) or row.expires is None or row.expires > now
    }


def below_parts(hits: Sequence[Hit], contexts: Mapping[Key, Context]) -> list[Hit]:
    """Hits in which a message changes places with what took the place of a part that is over.

    That part is asked for where no note of what still holds answers half as well as the message,
    nor better than what took its place: "Ben left" does not tell where Kim works.
    """
    ranked, held = [*hits], dict[str, float]()
    for hit in hits:
        for source in hit.sources if isinstance(hit.row, Note) else ():
            held[source] = max(held.get(source, 0.0), hit.score)
    for hit in hits:
        parts = contexts[key_of(hit.row)].of_parts
        if not parts or 2 * held.get(hit.id, 0.0) >= hit.score:
            continue
        at = next(place for place, it in enumerate(ranked) if it.id == hit.id)
        others = [place for place in range(at + 1, len(ranked)) if ranked[place].id in parts]
        other = max(others, key=lambda place: ranked[place].row.ts, default=0)
        if other and ranked[other].score >= held.get(hit.id, 0.0):
            first, second = ranked[at], ranked[other]
            ranked[at] = replace(second, score=first.score)
            ranked[other] = replace(first, score=second.score)
    return ranked


def below_successors(
    hits: Sequence[Hit], rows: Mapping[Key, Row], contexts: Mapping[Key, Context]
) -> list[Hit]:
    """Hits in which each that has ended changes places with the one that says what holds instead.

    Scores stay in their places: what replaced an answer is as likely the answer. If it was not
    found itself, it comes in above the one that has ended. What was announced and never came is
    last: who says that it is off does not say what holds.
    """
    if all(hit.ended is None for hit in hits):
        return [*hits]
    in_vain = [hit for hit in hits if contexts.get(key_of(hit.row), Context()).in_vain]
    waiting, ranked = [hit for hit in hits if hit not in in_vain], list[Hit]()
    while waiting:
        ended = waiting[0]
        names = _successors(ended, contexts)
        others = [at for at, hit in enumerate(waiting) if hit.id in names]
        # The last in time first: what took the place of another may have ended, too.
        if other := max(others, key=lambda at: waiting[at].row.ts, default=0):
            second = waiting[other]
            waiting[0] = replace(second, score=ended.score)
            waiting[other] = replace(ended, score=second.score)
        elif names.isdisjoint(hit.id for hit in ranked):
            row = _newest(names, ended, rows)
            ranked += [Hit(row, ended.score)] if row else []
        ranked.append(waiting.pop(0))
    least = ranked[-1].score if ranked else 0.0
    return [*ranked, *(replace(hit, score=min(hit.score, least)) for hit in in_vain)]


def in_their_time(hits: Sequence[Hit], now: Micros, *, ahead: bool) -> list[Hit]:
    """Hits in which what is announced and what holds until its day stand as they are asked for.

    What holds now comes first, unless the question is about what lies `ahead`.
    """
    ranked = [*hits]
    for at, first in enumerate(ranked):
        for other in range(at + 1, len(ranked)):
            second = ranked[other]
            if _takes_over(*((first, second) if ahead else (second, first)), now):
                ranked[at] = replace(second, score=first.score)
                ranked[other] = replace(first, score=second.score)
                break
    return ranked


def _takes_over(hit: Hit, other: Hit, now: Micros) -> bool:
    """Whether a hit holds until another one begins, which lies ahead."""
    old, new = hit.row, other.row
    if not isinstance(old, Note) or not isinstance(new, Note) or new.valid_from <= now:
        return False
    return old.topic is not None and (old.topic, old.valid_until) == (new.topic, new.valid_from)


def _successors(hit: Hit, contexts: Mapping[Key, Context]) -> frozenset[str]:
    context = contexts.get(key_of(hit.row))
    return context.successors if context and hit.ended is not None else frozenset()


def _newest(names: Iterable[str], ended: Hit, rows: Mapping[Key, Row]) -> Row | None:
    """The newest of some rows, a note before its message."""
    owner = key_of(ended.row)[:2]
    found = [row for name in names if (row := rows.get((*owner, name)))]
    return max(found, key=lambda row: (isinstance(row, Note), row.ts, row.id), default=None)
