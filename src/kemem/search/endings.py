"""Last stage of search: what has ended stands below what took its place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kemem.ports.request import Context, Key, key_of
from kemem.records import Micros, Note, Row
from kemem.results import Hit
from kemem.search.features import by_person
from kemem.text.reading import Question, content, read, tells_what_was

_FIRST = 5  # hits of which those that tell what was give way
_COMMON = frozenset(content("User lives in, works at, starts, takes, has; 用户 住在 工作"))


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
            _exchange(ranked, at, other)
    return ranked


def _exchange(ranked: list[Hit], at: int, other: int) -> None:
    """Let two hits change places; scores stay in theirs."""
    first, second = ranked[at], ranked[other]
    ranked[at] = replace(second, score=first.score)
    ranked[other] = replace(first, score=second.score)


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
            _exchange(waiting, 0, other)
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
    later = [hit for hit in hits if isinstance(hit.row, Note) and hit.row.valid_from > now]
    told = {name for hit in later for name in (hit.id, *hit.sources)}
    ranked = [*hits] if told else []
    for at, first in enumerate(ranked):
        others = [] if (first.id in told) == ahead else range(at + 1, len(ranked))
        others = [it for it in others if (ranked[it].id in told) == ahead]
        waiting = (it for it in others if _takes_turns(first, ranked[it]))
        alike = (it for it in others if not ahead and _is_alike(first, ranked[it]))
        if other := next(waiting, 0) or next(alike, 0):
            _exchange(ranked, at, other)
    return ranked or [*hits]


def _takes_turns(first: Hit, second: Hit) -> bool:
    """Whether one of two hits holds until the other begins."""
    one, other = first.row, second.row
    if not isinstance(one, Note) or not isinstance(other, Note):
        return False
    return one.valid_until == other.valid_from or other.valid_until == one.valid_from


def _is_alike(first: Hit, second: Hit) -> bool:
    """Whether a second hit may answer as well: it is found nearly as well, or names the same thing.

    What is paid and taken now, not from next month on.
    """
    shared = {*content(first.memory)} & {*content(second.memory)} - _COMMON
    near = second.score >= first.score / 2 or any(len(it) > 1 for it in shared)
    return near and second.ended is None


def in_their_tense(hits: Sequence[Hit], question: Question) -> list[Hit]:
    """Hits in which what only tells what was, and what tells of now, stand as they are asked for.

    They change places where the other is found nearly as well, or has as many words of a question
    that names its time: "I cycle to work", though "I used to take the bus to work" is later.
    """
    ranked, asked = [*hits], {*question.words}
    for at in range(min(len(hits), 1 if question.past else _FIRST)):
        first = ranked[at]
        if tells_what_was(first.memory) == question.past:
            continue
        shared = asked & read(first.memory).words if question.past or question.present else ()
        for other in range(at + 1, len(ranked)):
            hit, reading = ranked[other], read(ranked[other].memory)
            near = 2 * hit.score >= first.score or (shared and shared <= reading.words)
            in_time = tells_what_was(hit.memory) == question.past
            holds = question.past or hit.ended is None
            if near and in_time and holds and by_person(hit.row) and reading.asks <= 0.5:
                _exchange(ranked, at, other)
                break
    return ranked


def stated_first(hits: Sequence[Hit], topics: frozenset[str], now: Micros) -> list[Hit]:
    """Hits in which the note that states what a question asks for is first, if it is found nearly
    as well: a wish, or what somebody else does, is no better an answer.
    """
    ranked = [*hits]
    for at, hit in enumerate(hits[1:], 1):
        row = hit.row
        if 2 * hit.score < hits[0].score:
            break
        if isinstance(row, Note) and row.topic in topics and row.valid_from <= now:
            first = getattr(hits[0].row, "topic", None) in topics or hits[0].id in hit.sources
            if not first and hit.ended is None:
                _exchange(ranked, 0, at)
            break
    return ranked


def _successors(hit: Hit, contexts: Mapping[Key, Context]) -> frozenset[str]:
    context = contexts.get(key_of(hit.row))
    return context.successors if context and hit.ended is not None else frozenset()


def _newest(names: Iterable[str], ended: Hit, rows: Mapping[Key, Row]) -> Row | None:
    """The newest of some rows, a note before its message."""
    owner = key_of(ended.row)[:2]
    found = [row for name in names if (row := rows.get((*owner, name)))]
    return max(found, key=lambda row: (isinstance(row, Note), row.ts, row.id), default=None)
