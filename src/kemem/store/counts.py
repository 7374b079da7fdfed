"""Counting everything, for operators: health and census."""

from typing import Any

from sqlalchemy import Connection, Subquery, Table, bindparam, func, select

from kemem.records import Census, Health, Holding
from kemem.store.schema import (
    agent,
    app_user,
    entity,
    job,
    message,
    note,
    relation,
    row_vector,
    session,
    space,
)


def take_health(connection: Connection, backend: str, schema_version: int) -> Health:
    """The state of the store in numbers."""
    return Health(
        backend=backend,
        schema_version=schema_version,
        messages=_count(connection, message),
        notes=_count(connection, note),
        vectors=_count(connection, row_vector),
        pending_jobs=_count(connection, job, job.c.state == "pending"),
        failed_jobs=_count(connection, job, job.c.state == "failed"),
        oldest_error=connection.execute(_oldest_error).scalar(),
    )


def take_census(connection: Connection, largest: int) -> Census:
    """How much of each there is, and which users have the most."""
    return Census(
        agents=_count(connection, agent),
        users=_count(connection, app_user, app_user.c.user_id != ""),
        sessions=_count(connection, session),
        notes={kind: number for kind, number in connection.execute(_by_kind)},
        entities=_count(connection, entity),
        relations=_count(connection, relation),
        largest=_largest(connection, largest),
    )


def _count(connection: Connection, of: Table, *conditions: Any) -> int:
    statement = select(func.count()).select_from(of).where(*conditions)
    return int(connection.execute(statement).scalar_one())


def _largest(connection: Connection, most: int) -> tuple[Holding, ...]:
    found = connection.execute(_by_user, {"largest": most})
    # PostgreSQL's sums are decimal numbers.
    return tuple(Holding(user, int(said), int(noted)) for user, said, noted in found)


def _by_space(rows: Table) -> Subquery:
    """How many rows each space has; an index on the space answers it."""
    counted = select(rows.c.space_no, func.count().label("rows")).group_by(rows.c.space_no)
    return counted.subquery(f"{rows.name}_rows")


_oldest_error = select(job.c.error).where(job.c.error.is_not(None)).order_by(job.c.job_id).limit(1)
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
