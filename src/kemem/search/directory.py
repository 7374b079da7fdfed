"""Agents, users and sessions, one page after the other."""

from typing import Literal

from kemem.ports import Deps
from kemem.records import Entry, Page, Scope
from kemem.search.page import open_place, seal_place


async def directory(
    level: Literal["agent", "user", "session"],
    scope: Scope | None,
    limit: int,
    cursor: str | None,
    deps: Deps,
) -> Page[Entry]:
    """A page of the directory, in the order of ids."""
    secret = await deps.store.secret()
    bound = ("directory", level, scope)
    after = open_place(cursor, bound, secret) if cursor is not None else None
    entries = await deps.store.directory(level, scope, after=after, limit=limit + 1)
    items = tuple(entries[:limit])
    if len(entries) <= limit:
        return Page(items)
    return Page(items, seal_place(items[-1].place, bound, secret))
