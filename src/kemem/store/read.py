"""Reads of messages and notes: in time order, by name, by number."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from kemem.records import Position, Row, Where
from kemem.store import tables
from kemem.store.database import Space, Statement, in_list, planned_for
from kemem.store.schema import SEQ_BITS
from kemem.store.spaces import visible_spaces
from kemem.store.tables import TABLES, R, RowTable, Stored

CHUNK = 512  # ids in one statement
Answer = Callable[[], list[Stored[R]]]


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
        stored = read_rows(connection, table, where, spaces, after, limit, newest_first)
        rows += [it.row for it in stored]
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
    shape, values = tables.shape_of(where), tables.values_of(where, spaces)
    condition = tables.to_condition(where.filters, table) if where.filters else None
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
    table: RowTable[Any], shape: tables.Shape, beyond: bool, newest_first: bool
) -> Statement:
    """The statement for one combination of conditions, built once."""
    time, arrival = table.time, table.arrival
    conditions = [*tables.conditions_of(table, shape)]
    if beyond:
        at: sa.BindParameter[int] = sa.bindparam("after_ts")
        row: sa.BindParameter[int] = sa.bindparam("after_arrival")
        further = time < at if newest_first else time > at
        level = arrival < row if newest_first else arrival > row
        conditions.append(sa.or_(further, sa.and_(time == at, level)))
        # Implied by the line above, but it is what lets an index seek.
        conditions.append(time <= at if newest_first else time >= at)
    # By itself, the index of the time is read to its end where only the last messages are wanted.
    first = time + 0 if "beyond" in shape and table is tables.messages else time
    order = [it.desc() if newest_first else it.asc() for it in (first, arrival)]
    return sa.select(*table.columns).where(*conditions).order_by(*order).limit(sa.bindparam("most"))


def matching_ids(
    connection: sa.Connection, where: Where, spaces: Sequence[Space]
) -> tuple[Sequence[int], bool]:
    """The numbers of the rows that a Where may admit, ids aside, and whether it admits them all."""
    statements, exact, shape = [], True, tables.shape_of(replace(where, ids=None))
    for table in TABLES:
        if table.spaces(spaces, where):
            conditions = [*tables.conditions_of(table, shape)]
            if where.filters is not None:
                condition = tables.to_condition(where.filters, table)
                conditions.append(condition.sql)
                exact &= condition.exact
            statements.append(sa.select(table.table.c.id).where(*conditions))
    if not statements:
        return (), True
    values = tables.values_of(where, spaces)
    return connection.execute(sa.union_all(*statements), values).scalars().all(), exact


def named(
    connection: sa.Connection, table: RowTable[R], spaces: Iterable[Space], names: Iterable[str]
) -> list[Stored[R]]:
    """Rows by the names that callers know them by; those that do not exist are left out."""
    return ask_named(connection, table, spaces, names)()


def ask_named(
    connection: sa.Connection, table: RowTable[R], spaces: Iterable[Space], names: Iterable[str]
) -> Answer[R]:
    """The same, asked for now and waited for when the answer is called."""
    of_spaces = [space.space_no for space in spaces]
    return _matching(connection, table, table.name, of_spaces, sorted(set(names)))


def keyed(connection: sa.Connection, table: RowTable[R], keys: Sequence[int]) -> list[Stored[R]]:
    """Rows by their numbers, which hold those of their spaces."""
    return ask_keyed(connection, table, keys)()


def ask_keyed(connection: sa.Connection, table: RowTable[R], keys: Sequence[int]) -> Answer[R]:
    """The same, asked for now and waited for when the answer is called."""
    spaces = sorted({key >> SEQ_BITS for key in keys})
    return _matching(connection, table, table.table.c.id, spaces, keys)


def _matching(
    connection: sa.Connection,
    table: RowTable[R],
    column: sa.Column[Any],
    spaces: Sequence[int],
    values: Sequence[Any],
) -> Answer[R]:
    if not spaces or not values:
        return list
    bound = {"spaces": spaces, "values": values}
    result = connection.execute(
        _by_values(table, column), bound, execution_options=planned_for(values)
    )
    return lambda: table.load(result.all())  # at once: one by one they take twice as long


@cache
def _by_values(table: RowTable[Any], column: sa.Column[Any]) -> Statement:
    of_spaces = tables.one_of(table.table.c.space_no, "spaces")
    return sa.select(*table.columns).where(of_spaces, in_list(column, "values"))


_existing = {
    table: sa.select(table.name).where(
        tables.one_of(table.table.c.space_no, "spaces"), in_list(table.name, "names")
    )
    for table in TABLES
}
_not_withdrawn = _existing[tables.messages].where(~tables.messages.table.c.withdrawn)
_served = {**_existing, tables.messages: _not_withdrawn}


def existing_names(
    connection: sa.Connection,
    table: RowTable[Any],
    spaces: Iterable[int],
    names: Iterable[str],
    *,
    withdrawn: bool = True,
) -> set[str]:
    """Which of these names rows of some spaces have, withdrawn messages among them or not."""
    values = {"spaces": [*spaces], "names": sorted(set(names))}
    statement = (_existing if withdrawn else _served)[table]
    return {*connection.execute(statement, values).scalars()} if values["names"] else set()
