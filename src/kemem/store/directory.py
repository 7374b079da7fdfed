"""What a store holds, for operators: the directory of owners, health and census."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kemem.records import (
    MOST_COUNTED,
    NOTE_KINDS,
    Census,
    Entry,
    Health,
    Holding,
    Level,
    Scope,
)
from kemem.records.batch import Configuration
from kemem.store import tally
from kemem.store.database import equal, in_list
from kemem.store.schema import (
    DISABLED_SESSION,
    agent,
    app_user,
    entity,
    job,
    message,
    note,
    relation,
    session,
    space,
    space_state,
)
from kemem.store.spaces import ids_of, routed

_WROTE_LAST = 1000  # users among whom those with the most are looked for

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
    first = sa.select(job.c.job_id, job.c.error).order_by(job.c.job_id).limit(MOST_COUNTED)
    jobs = first.subquery()
    oldest = sa.select(jobs.c.error).where(jobs.c.error.is_not(None)).order_by(jobs.c.job_id)
    counts = tally.totals(connection)
    return Health(
        backend=backend,
        schema_version=schema_version,
        messages=counts.pop(tally.MESSAGES, 0),
        vectors=counts.pop(tally.VECTORS, 0),
        notes=counts.total(),
        pending_jobs=_count(connection, job, job.c.state == "pending"),
        failed_jobs=_count(connection, job, job.c.state == "failed"),
        oldest_error=connection.execute(oldest.limit(1)).scalar(),
    )


def take_census(connection: sa.Connection, largest: int) -> Census:
    """How much of each there is, and which users have the most of those who wrote last."""
    counts = tally.totals(connection)
    return Census(
        agents=_count(connection, agent),
        users=_count(connection, app_user, app_user.c.user_id != ""),
        sessions=_count(connection, session),
        notes={kind: count for kind, count in counts.items() if kind in NOTE_KINDS},
        entities=_count(connection, entity),
        relations=_count(connection, relation),
        largest=_largest(connection, largest),
    )


def count_types(
    connection: sa.Connection,
    notes: Sequence[str],
    entities: Sequence[str],
    relations: Sequence[str],
) -> dict[str, dict[str, int]]:
    """How many notes, entities and relations there are of each of these types."""
    own = note.c.metadata["memory_type"].as_string()
    groups = {"notes": (own, notes), "entities": (entity.c.type, entities)}
    groups |= {"relations": (relation.c.relationship, relations)}
    counts = {}
    for group, (column, names) in groups.items():
        of_type = sa.select(column, sa.func.count()).where(column.in_(names)).group_by(column)
        rows = connection.execute(of_type) if names else ()
        counts[group] = {**dict.fromkeys(names, 0), **{name: count for name, count in rows}}
    return counts


def _largest(connection: sa.Connection, count: int) -> tuple[Holding, ...]:
    """Who has the most, of those who have written the most, of those who wrote last."""
    wrote = sa.select(app_user.c.user_id).where(app_user.c.user_id != "")
    wrote = wrote.order_by(app_user.c.last_active_time.desc()).limit(_WROTE_LAST)
    users = connection.scalars(wrote).all()
    written = sa.func.sum(space_state.c.next_seq)
    by_user = (
        sa.select(space.c.user_id)
        .join_from(space, space_state)
        .where(in_list(space.c.user_id, "users"))
        .group_by(space.c.user_id)
        .order_by(written.desc(), space.c.user_id)
        .limit(count)
    )
    holdings = []
    for user_id in connection.scalars(by_user, {"users": users}).all():
        own = sa.select(space.c.space_no).where(space.c.user_id == user_id)
        numbers = [_count(connection, it, it.c.space_no.in_(own)) for it in (message, note)]
        holdings += [Holding(user_id, *numbers)] if any(numbers) else []
    holdings.sort(key=lambda it: (-it.messages - it.notes, it.user_id))
    return tuple(holdings)


def take_holdings(connection: sa.Connection, owners: Sequence[Scope]) -> list[Holding]:
    """How much each owner holds."""
    holdings = []
    for owner in owners:
        own = sa.select(space.c.space_no).where(space.c.user_id == (owner.user_id or ""))
        if owner.agent_id is not None:
            own = own.where(space.c.agent_id == owner.agent_id)
        tables = (message, note, session)
        counts = [_count(connection, it, it.c.space_no.in_(own)) for it in tables]
        holdings.append(Holding(owner.user_id or "", *counts))
    return holdings


def _count(connection: sa.Connection, of: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    """How many rows there are, or more than `MOST_COUNTED`."""
    rows = sa.select(sa.literal(1)).select_from(of).where(*conditions).limit(MOST_COUNTED + 1)
    statement = sa.select(sa.func.count()).select_from(rows.subquery())
    return int(connection.execute(statement).scalar_one())
