"""Counting everything, for operators."""

from typing import Any

from sqlalchemy import Connection, Subquery, Table, bindparam, func, select

from kemem.records import Census, Holding
from kemem.store.schema import (
    agent,
    app_user,
    entity,
    message,
    note,
    relation,
    session,
    space,
)


def take_census(connection: Connection, largest: int) -> Census:
    """How much of each there is, and which users have the most."""

    def count(of: Table, *conditions: Any) -> int:
        return int(connection.execute(_count.select_from(of).where(*conditions)).scalar_one())

    return Census(
        agents=count(agent),
        users=count(app_user, app_user.c.user_id != ""),
        sessions=count(session),
        notes={kind: number for kind, number in connection.execute(_by_kind)},
        entities=count(entity),
        relations=count(relation),
        largest=_largest(connection, largest),
    )


def _largest(connection: Connection, most: int) -> tuple[Holding, ...]:
    found = connection.execute(_by_user, {"largest": most})
    # PostgreSQL's sums are decimal numbers.
    return tuple(Holding(user, int(said), int(noted)) for user, said, noted in found)


def _by_space(rows: Table) -> Subquery:
    """How many rows each space has; an index on the space answers it."""
    counted = select(rows.c.space_no, func.count().label("rows")).group_by(rows.c.space_no)
    return counted.subquery(f"{rows.name}_rows")


_count = select(func.count())
_by_kind = select(note.c.kind, func.count()).group_by(note.c.kind)
_said, _noted = _by_space(message), _by_space(note)
_messages = func.coalesce(func.sum(_said.c.rows), 0)
_notes = func.coalesce(func.sum(_noted.c.rows), 0)
_by_user = (
    select(space.c.user_id, _messages, _notes)
    .select_from(space)
    .outerjoin(_said, _said.c.space_no == space.c.space_no)
    .outerjoin(_noted, _noted.c.space_no == space.c.space_no)
    .where(space.c.user_id != "")
    .group_by(space.c.user_id)
    .having(_messages + _notes > 0)
    .order_by((_messages + _notes).desc(), space.c.user_id)
    .limit(bindparam("largest"))
)
