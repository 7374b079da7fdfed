"""Memories by their ids, or one after the other."""

from dataclasses import replace

from kemem.errors import NotFound
from kemem.ports import Deps
from kemem.records import NOTES, Micros, Position, Row, Where
from kemem.results import Item, Memories
from kemem.search.page import open_position, seal_position
from kemem.text.language import is_chinese


async def find(memory_id: str, where: Where, deps: Deps) -> Row:
    """A note or message that a Where admits."""
    wanted = replace(where, ids=frozenset([memory_id]))
    rows: list[Row] = [*await deps.store.notes(wanted, limit=1)]
    rows += await deps.store.scan(wanted, limit=1)
    if not rows:
        raise NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)
    return rows[0]


async def listing(
    where: Where, limit: int, cursor: str | None, deps: Deps, valid_at: Micros | None = None
) -> Memories[Item]:
    """A page of what a Where admits, newest first; the cursor leads on whatever `valid_at` is."""
    secret = await deps.store.secret()
    bound = ("listing", where)
    after = open_position(cursor, bound, secret) if cursor is not None else None
    if valid_at is not None:
        where = replace(where, valid_at=valid_at)
    rows: list[Row] = []
    if where.kinds & NOTES:
        rows += await deps.store.notes(where, after=after, limit=limit + 1)
    if "message" in where.kinds:
        rows += await deps.store.scan(where, after=after, limit=limit + 1)
    rows.sort(key=lambda row: (-row.ts, row.id))
    page = rows[:limit]
    last = Position(page[-1].ts, page[-1].id) if len(rows) > limit else None
    return Memories(
        items=tuple(Item(row) for row in page),
        next_cursor=None if last is None else seal_position(last, bound, secret),
        language="zh" if any(is_chinese(row.content) for row in page[:3]) else "en",
    )
