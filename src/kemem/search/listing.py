"""Memories by their ids or page by page, and pages of agents, users and sessions."""

from collections.abc import Collection
from dataclasses import replace

from kemem.errors import NotFound
from kemem.ports import Deps, read_messages, read_notes, read_owners
from kemem.records import (
    MESSAGES,
    Change,
    Entry,
    Level,
    Message,
    Micros,
    Note,
    Page,
    Row,
    Scope,
    Where,
)
from kemem.results import Item, Memories
from kemem.search.page import open_place, open_position, seal_place, seal_position
from kemem.text.language import is_chinese


def no_memory(memory_id: str) -> NotFound:
    """The error of an id that does not exist, or is another user's."""
    return NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)


async def find(memory_id: str, where: Where, deps: Deps, at: Micros | None = None) -> Row:
    """A note or message that a Where admits; none that has expired `at` a time."""
    wanted = replace(where, ids=frozenset([memory_id]))
    rows = sorted(await deps.store.read(wanted), key=lambda row: row.kind == "message")
    expires = rows[0].expires if rows and isinstance(rows[0], Note) else None
    if not rows or (at is not None and expires is not None and expires <= at):
        raise no_memory(memory_id)
    return rows[0]


async def cited_messages(memory_id: str, where: Where, deps: Deps) -> list[Message]:
    """The messages that a memory cites, oldest first; of a message, itself."""
    ids = frozenset(Item(await find(memory_id, where, deps)).sources)
    cited = replace(where, ids=ids, kinds=MESSAGES, shared=None)
    return await read_messages(deps.store, cited, limit=max(1, len(ids)), newest_first=False)


async def history(memory_id: str, where: Where | None, limit: int, deps: Deps) -> list[Change]:
    """The changes of a note, newest first; without a Where, of whoever owns it."""
    owner = await _owner_of(memory_id, deps) if where is None else None
    if where is not None:
        scope = where.scope
        row = await read_notes(
            deps.store, replace(where, ids=frozenset([memory_id]), sensitive=True)
        )
        if any(note.sensitive for note in row) and not where.sensitive:
            raise no_memory(memory_id)
        if not row and scope.session_id is not None:
            raise no_memory(memory_id)
        owner = await _owner(memory_id, scope, deps)
    changes = await deps.store.history(owner, note_id=memory_id, limit=limit) if owner else []
    if not changes:
        raise no_memory(memory_id)
    return changes


async def _owner(memory_id: str, scope: Scope, deps: Deps) -> Scope | None:
    """The agent and user of a scope; of a session alone, those of the note itself."""
    if scope.agent_id is None and scope.user_id is None:
        return await _owner_of(memory_id, deps)
    return Scope(scope.agent_id, scope.user_id)


async def _owner_of(memory_id: str, deps: Deps) -> Scope | None:
    return next(iter(await read_owners(deps.store, memory_id)), None)


async def listing(
    where: Where, limit: int, cursor: str | None, deps: Deps, valid_at: Micros | None = None
) -> Memories[Item]:
    """A page of what a Where admits, newest first; the cursor leads on whatever `valid_at` is."""
    secret = (await deps.store.info()).secret
    bound = ("listing", where)
    after = open_position(cursor, bound, secret) if cursor is not None else None
    if valid_at is not None:
        where = replace(where, valid_at=valid_at)
    rows = await deps.store.read(where, after=after, limit=limit + 1)
    page = rows[:limit]
    last = page[-1].position if len(rows) > limit else None
    return Memories(
        items=tuple(Item(row) for row in page),
        next_cursor=None if last is None else seal_position(last, bound, secret),
        language="zh" if any(is_chinese(row.content) for row in page[:3]) else "en",
    )


async def notes(
    where: Where, sources: Collection[str] | None, limit: int, newest_first: bool, deps: Deps
) -> list[Note]:
    """Notes that a Where admits; with `sources` only those that cite one of these messages."""
    cited = where if sources is None else replace(where, sources=frozenset(sources))
    return await read_notes(deps.store, cited, limit=limit, newest_first=newest_first)


async def directory(
    level: Level, scope: Scope | None, limit: int, cursor: str | None, deps: Deps
) -> Page[Entry]:
    """A page of agents, users or sessions, in the order of ids."""
    secret = (await deps.store.info()).secret
    bound = ("directory", level, scope)
    after = open_place(cursor, bound, secret) if cursor is not None else None
    entries = await deps.store.directory(level, scope, after=after, limit=limit + 1)
    items = tuple(entries[:limit])
    if len(entries) <= limit:
        return Page(items)
    return Page(items, seal_place(items[-1].place, bound, secret))
