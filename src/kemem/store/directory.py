"""What a store holds, for operators: the directory of owners, health and census."""

from typing import Any

import sqlalchemy as sa

from kemem.records import Census, Entry, Health, Holding, Level, Scope
from kemem.records.batch import Configuration
from kemem.store.database import equal
from kemem.store.schema import (
    DISABLED_SESSION,
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
    space_state,
)
from kemem.store.spaces import ids_of, routed

_PLACES = {  # what the entries of a level are ordered by; the first column is their id
    "agent": (agent.c.agent_id,),
    "user": (app_user.c.user_id,),
    "session": (session.c.session_id, session.c.agent_id, session.c.user_id),
    "owner": (space.c.user_id, space.c.agent_id),
}
_CONFIGURED = {  # the columns of what can be configured
    "agent": {"name": agent.c.agent_name, "type": agent.c.agent_type, "config": agent.c.config},
    "user": {
        "name": app_user.c.user_name,
        "type": app_user.c.user_type,
        "config": app_user.c.profile,
    },
    "session": {
        "name": session.c.session_name,
        "type": session.c.session_type,
        "config": session.c.context,
    },
}


def _entries(level: str, kind: str) -> sa.Select[Any]:
    """The fields of the entries of a level; a table of names has the others too."""
    name, *described = _CONFIGURED[kind].values()
    key, state = _PLACES[level][0], name.table.c
    own = key.table.c
    owner = (own.agent_id, own.user_id if "user_id" in own else sa.null())
    times = (state.create_time, state.update_time, state.get("end_time", sa.null()))
    return sa.select(key, *owner, name, state.status, *times, *described)


_has_rows = (sa.exists().where(it.c.space_no == space.c.space_no) for it in (message, note))
_ENTRIES = {
    "agent": _entries("agent", "agent"),
    "user": _entries("user", "user").where(app_user.c.user_id != ""),
    "session": _entries("session", "session"),
    "owner": _entries("owner", "user")
    .join(app_user, app_user.c.user_id == space.c.user_id)
    .where(sa.or_(*_has_rows)),
}


def directory(
    connection: sa.Connection,
    level: Level,
    scope: Scope | None,
    note_id: str | None,
    after: tuple[str, str, str] | None,
    limit: int,
) -> list[Entry]:
    """Agents, users, sessions or owners in the order of their places."""
    statement, place = _ENTRIES[level], _PLACES[level]
    if note_id is not None:
        having = sa.select(note.c.space_no).where(note.c.note_id == note_id)
        statement = statement.where(space.c.space_no.in_(having))
    if scope is not None:
        statement = statement.where(_in_scope(level, scope))
        if level == "session":
            statement = statement.where(*routed(connection, session, scope))
    if after is not None:
        statement = statement.where(sa.tuple_(*place) > sa.tuple_(*after[: len(place)]))
    rows = connection.execute(statement.order_by(*place).limit(limit))
    disabled = _disabled_status(level)
    return [
        Entry(
            *(level, name, agent_id, user_id or None, shown, status == 1),
            *(*times, kind, config or {}, status == disabled),
        )
        for name, agent_id, user_id, shown, status, *times, kind, config in rows
    ]


def _disabled_status(level: str) -> int:
    return DISABLED_SESSION if level == "session" else 0


def configure(connection: sa.Connection, given: Configuration) -> None:
    """Change what is given of an agent, user or session that is there.

    Whoever is disabled or enabled gets a new generation: caches of searches are void.
    """
    columns, scope = _CONFIGURED[given.level], given.scope
    owner = {name: value for name, value in ids_of(scope).items() if name != "session_id"}
    table = columns["name"].table
    values: dict[str, Any] = {
        column.name: value or (None if name != "name" or given.level != "agent" else scope.agent_id)
        for name, column in columns.items()
        if (value := getattr(given, name)) is not None
    }
    if given.disabled is not None:
        values["status"] = _disabled_status(given.level) if given.disabled else 1
        if given.level == "session" and not given.disabled:
            values["status"] = sa.case((session.c.end_time.is_(None), 1), else_=0)
    named = equal(table, **ids_of(scope))
    connection.execute(sa.update(table).where(*named).values(**values, update_time=given.at))
    if given.disabled is not None:  # after the row above: writers lock in this order, too
        own = sa.select(space.c.space_no).where(*equal(space, **owner))
        renewed = sa.update(space_state).where(space_state.c.space_no.in_(own))
        connection.execute(renewed.values(next_seq=space_state.c.next_seq + 1))


def _in_scope(level: str, scope: Scope) -> sa.ColumnElement[bool]:
    """Entries that a space of the scope belongs to."""
    ids = ids_of(scope)
    if ids.keys() == {f"{level}_id"} and level != "session":
        return sa.and_(*equal(_PLACES[level][0].table, **ids))
    table = session if level == "session" or "session_id" in ids else space
    conditions = equal(table, **ids)
    if level == "session":
        return sa.and_(*conditions)
    entries = {"agent": agent.c.agent_id, "user": app_user.c.user_id, "owner": space.c.space_no}
    column: sa.Column[Any] = entries[level]
    return column.in_(sa.select(table.c[column.name]).where(*conditions))


def take_health(connection: sa.Connection, backend: str, schema_version: int) -> Health:
    """The state of the store in numbers."""
    oldest = sa.select(job.c.error).where(job.c.error.is_not(None)).order_by(job.c.job_id).limit(1)
    return Health(
        backend=backend,
        schema_version=schema_version,
        messages=_count(connection, message),
        notes=_count(connection, note),
        vectors=_count(connection, row_vector),
        pending_jobs=_count(connection, job, job.c.state == "pending"),
        failed_jobs=_count(connection, job, job.c.state == "failed"),
        oldest_error=connection.execute(oldest).scalar(),
    )


def take_census(connection: sa.Connection, largest: int) -> Census:
    """How much of each there is, and which users have the most."""
    by_kind = sa.select(note.c.kind, sa.func.count()).group_by(note.c.kind)
    by_space = [
        sa.select(table.c.space_no, sa.func.count().label("rows"))
        .group_by(table.c.space_no)  # an index on the space answers it
        .subquery(f"{table.name}_rows")
        for table in (message, note)
    ]
    messages, notes = (sa.func.coalesce(sa.func.sum(it.c.rows), 0) for it in by_space)
    by_user = sa.select(space.c.user_id, messages, notes).select_from(space)
    for counted in by_space:
        by_user = by_user.outerjoin(counted, counted.c.space_no == space.c.space_no)
    by_user = (
        by_user.where(space.c.user_id != "")
        .group_by(space.c.user_id)
        .having(messages + notes > 0)
        .order_by((messages + notes).desc(), space.c.user_id)
        .limit(largest)
    )
    return Census(
        agents=_count(connection, agent),
        users=_count(connection, app_user, app_user.c.user_id != ""),
        sessions=_count(connection, session),
        notes={kind: number for kind, number in connection.execute(by_kind)},
        entities=_count(connection, entity),
        relations=_count(connection, relation),
        # PostgreSQL's sums are decimal numbers.
        largest=tuple(Holding(it[0], int(it[1]), int(it[2])) for it in connection.execute(by_user)),
    )


def _count(connection: sa.Connection, of: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    statement = sa.select(sa.func.count()).select_from(of).where(*conditions)
    return int(connection.execute(statement).scalar_one())
