"""From what an index finds to the rows themselves."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.ports import Deps
from kemem.records import NOTES, Match, Message, Row, Where
from kemem.search.question import Key, key_of

_ALL = 100_000  # an id can belong to several users where a scope covers them


async def fetch(matches: Sequence[Match], where: Where, deps: Deps) -> list[Row | None]:
    """The row of each match; None where it has gone since it was found."""
    wanted = replace(where, ids=frozenset(match.id for match in matches))
    keys = [key_of(each) for each in matches]
    found: dict[Key, Row] = {}
    if matches and "message" in where.kinds:
        messages = await deps.store.scan(wanted, limit=_ALL)
        found |= {key_of(each): each for each in messages}
    if where.kinds & NOTES and not found.keys() >= {*keys}:
        notes = await deps.store.notes(wanted, limit=_ALL)
        found |= {key_of(each): each for each in notes}
    return [found.get(key) for key in keys]


async def fetch_messages(
    matches: Sequence[Match], where: Where, deps: Deps
) -> list[Message | None]:
    """The same where only messages can be found."""
    rows = await fetch(matches, where, deps)
    return [row if isinstance(row, Message) else None for row in rows]
