"""Messages and notes read from their tables: in time order, by their names, by their keys."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from kemem.records import Note, Position, Row, Where
from kemem.store.database import Database, IndexedText, Space, Statement, in_list
from kemem.store.rows import (
    TABLES,
    R,
    RowTable,
    Shape,
    Stored,
    conditions_of,
    messages,
    notes,
    one_of,
    shape_of,
    to_condition,
    values_of,
)
from kemem.store.schema import SEQ_BITS, message, note
from kemem.store.spaces import visible_spaces
from kemem.text.query import index_text

CHUNK = 512  # ids in one statement


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Pieces short enough for one statement."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def read(
    connection: sa.Connection, where: Where, after: Position | None, limit: int, newest_first: bool
) -> list[Row]:
    """Visible messages and notes in time order, beyond `after`."""
    spaces = visible_spaces(connection, where)
    rows: list[Row] = []
    for table in TABLES:
        page = read_rows(connection, table, where, spaces, after, limit, newest_first)
        rows += [stored.row for stored in page]
    return sorted(rows, key=lambda row: row.position, reverse=newest_first)[:limit]


def read_rows(
    connection: sa.Connection,
    table: RowTable[R],
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Stored[R]]:
    """The visible rows of one table, given the visible spaces."""
    spaces = table.spaces(spaces, where)
    if not spaces or limit < 1:
        return []
    if where.ids is not None:
        rows = [
            stored
            for stored in named(connection, table, spaces, sorted(where.ids))
            if where.matches(stored.row) and stored.row.position.is_beyond(after, newest_first)
        ]
        rows.sort(key=lambda stored: stored.row.position, reverse=newest_first)
        return rows[:limit]
    shape, values = shape_of(where), values_of(where, spaces)
    condition = to_condition(where.filters, table) if where.filters else None
    is_exact = condition is None or condition.exact
    size = limit if is_exact else CHUNK
    rows = []
    while len(rows) < limit:  # page by page where the database cannot tell what a filter admits
        statement = _in_time_order(table, shape, after is not None, newest_first)
        if condition is not None:
            statement = statement.where(condition.sql)
        place = {} if after is None else {"after_ts": after.ts, "after_arrival": after.arrival}
        page = table.load(connection.execute(statement, {**values, **place, "most": size}))
        rows += page if is_exact else [it for it in page if where.matches(it.row)]
        if is_exact or len(page) < size:
            break
        after = page[-1].row.position
    return rows[:limit]


@cache
def _in_time_order(
    table: RowTable[Any], shape: Shape, beyond: bool, newest_first: bool
) -> Statement:
    """The statement for one combination of conditions, built once."""
    time, arrival = table.time, table.arrival
    conditions = [*conditions_of(table, shape)]
    if beyond:
        at: sa.BindParameter[int] = sa.bindparam("after_ts")
        row: sa.BindParameter[int] = sa.bindparam("after_arrival")
        further = time < at if newest_first else time > at
        level = arrival < row if newest_first else arrival > row
        conditions.append(sa.or_(further, sa.and_(time == at, level)))
        # Implied by the line above, but it is what lets an index seek.
        conditions.append(time <= at if newest_first else time >= at)
    # By itself, the index of the time is read to its end where only the last messages are wanted.
    first = time + 0 if "beyond" in shape and table is messages else time
    order = [it.desc() if newest_first else it.asc() for it in (first, arrival)]
    return sa.select(*table.columns).where(*conditions).order_by(*order).limit(sa.bindparam("most"))


def matching_ids(
    connection: sa.Connection, where: Where, spaces: Sequence[Space]
) -> tuple[Sequence[int], bool]:
    """The numbers of the rows that a Where may admit, ids aside, and whether it admits them all."""
    statements, exact, shape = [], True, shape_of(replace(where, ids=None))
    for table in TABLES:
        if table.spaces(spaces, where):
            conditions = [*conditions_of(table, shape)]
            if where.filters is not None:
                condition = to_condition(where.filters, table)
                conditions.append(condition.sql)
                exact &= condition.exact
            statements.append(sa.select(table.table.c.id).where(*conditions))
    if not statements:
        return (), True
    values = values_of(where, spaces)
    return connection.execute(sa.union_all(*statements), values).scalars().all(), exact


def named(
    connection: sa.Connection, table: RowTable[R], spaces: Iterable[Space], names: Iterable[str]
) -> list[Stored[R]]:
    """Rows by the names that callers know them by; those that do not exist are left out."""
    numbers = [space.space_no for space in spaces]
    return _matching(connection, table, table.name, numbers, sorted(set(names)))


def keyed(connection: sa.Connection, table: RowTable[R], keys: Sequence[int]) -> list[Stored[R]]:
    """Rows by their numbers, which hold those of their spaces."""
    spaces = sorted({key >> SEQ_BITS for key in keys})
    return _matching(connection, table, table.table.c.id, spaces, keys)


def open_notes(
    connection: sa.Connection, space: Space, digests: Iterable[str]
) -> list[Stored[Note]]:
    """Notes of a space that say one of these things and have not been replaced."""
    values = sorted(set(digests))
    rows = _matching(connection, notes, note.c.digest, [space.space_no], values)
    return [stored for stored in rows if stored.row.valid_until is None]


def _matching(
    connection: sa.Connection,
    table: RowTable[R],
    column: sa.Column[Any],
    spaces: Sequence[int],
    values: Sequence[Any],
) -> list[Stored[R]]:
    if not spaces or not values:
        return []
    bound = {"spaces": spaces, "values": values}
    return table.load(connection.execute(_by_values(table, column), bound))


@cache
def _by_values(table: RowTable[Any], column: sa.Column[Any]) -> Statement:
    of_spaces = one_of(table.table.c.space_no, "spaces")
    return sa.select(*table.columns).where(of_spaces, in_list(column, "values"))


_existing = sa.select(message.c.message_id).where(
    one_of(message.c.space_no, "spaces"), in_list(message.c.message_id, "names")
)


def existing_messages(
    connection: sa.Connection, spaces: Iterable[Space], names: Iterable[str]
) -> set[str]:
    """Which of these ids are those of messages."""
    values = {"spaces": [space.space_no for space in spaces], "names": sorted(set(names))}
    return set(connection.execute(_existing, values).scalars()) if values["names"] else set()


def indexed_texts(rows: Iterable[Stored[Any]]) -> list[IndexedText]:
    """The search texts of rows as they are indexed."""
    return [IndexedText(it.space_no, it.id, index_text(it.row)) for it in rows]


def rebuild_words(connection: sa.Connection, database: Database) -> None:
    """Empty the word index and derive it again from messages and notes."""
    database.clear_words(connection)
    for table in TABLES:
        key = sa.tuple_(table.table.c.space_no, table.table.c.id)
        page = sa.select(*table.columns).order_by(*key.clauses).limit(CHUNK)
        rows = table.load(connection.execute(page))
        while rows:
            database.add_words(connection, indexed_texts(rows))
            last = sa.tuple_(rows[-1].space_no, rows[-1].id)
            rows = table.load(connection.execute(page.where(key > last)))
