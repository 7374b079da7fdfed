"""Memories by their ids, or one after the other."""

from dataclasses import replace

from kemem.answers import Item, Memories
from kemem.errors import NotFound
from kemem.ports import Parts
from kemem.reading.page import open_position, seal_position
from kemem.text.language import is_chinese
from kemem.types import NOTES, Micros, Position, Row, Where


async def find(memory_id: str, where: Where, parts: Parts) -> Row:
    """A note or message that a Where admits."""
    wanted = replace(where, ids=frozenset([memory_id]))
    rows: list[Row] = [*await parts.store.notes(wanted, limit=1)]
    rows += await parts.store.scan(wanted, limit=1)
    if not rows:
        raise NotFound(f"no memory {memory_id!r:.80}", memory_id=memory_id)
    return rows[0]


async def listing(
    where: Where, limit: int, cursor: str | None, parts: Parts, valid_at: Micros | None = None
) -> Memories[Item]:
    """A page of what a Where admits, newest first; the cursor leads on whatever `valid_at` is."""
    secret = await parts.store.secret()
    bound = ("listing", where)
    after = open_position(cursor, bound, secret) if cursor is not None else None
    if valid_at is not None:
        where = replace(where, valid_at=valid_at)
    rows: list[Row] = []
    if where.kinds & NOTES:
        rows += await parts.store.notes(where, after=after, limit=limit + 1)
    if "message" in where.kinds:
        rows += await parts.store.scan(where, after=after, limit=limit + 1)
    rows.sort(key=lambda row: (-row.ts, row.id))
    page = rows[:limit]
    last = Position(page[-1].ts, page[-1].id) if len(rows) > limit else None
    return Memories(
        items=tuple(Item(row) for row in page),
        next_cursor=None if last is None else seal_position(last, bound, secret),
        language="zh" if any(is_chinese(row.content) for row in page[:3]) else "en",
    )
