"""What is kept beside messages and notes: histories, checkpoints, the directory of owners."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    insert,
    null,
    or_,
    select,
    tuple_,
    update,
)

from kemem.errors import InvalidArgument
from kemem.records import CHECKPOINTS_KEPT, Change, Checkpoint, Entry, Layer, Level, Note, Scope
from kemem.records.batch import Ending
from kemem.store.schema import (
    agent,
    app_user,
    checkpoint,
    dump_json,
    message,
    note,
    note_history,
    session,
    space,
)
from kemem.store.spaces import bump_generation, ensure_sessions, find_spaces, reserve
from kemem.store.transaction import Transaction

_insert_change = insert(note_history)
_this_session = (
    checkpoint.c.space_no == bindparam("of_space"),
    checkpoint.c.session_id == bindparam("of_session"),
)
_drop_checkpoints = delete(checkpoint).where(*_this_session)
_newest_first = (checkpoint.c.create_time.desc(), checkpoint.c.id.desc())
_outdated = (
    select(checkpoint.c.id).where(*_this_session).order_by(*_newest_first).offset(CHECKPOINTS_KEPT)
)
_end_session = (
    update(session)
    .where(session.c.space_no == bindparam("of_space"))
    .where(session.c.session_id == bindparam("of_session"))
    .values(status=0, end_time=bindparam("at"))
)


def put_changes(transaction: Transaction, changes: Sequence[Change]) -> None:
    """Lines of histories."""
    by_owner: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for each in changes:
        by_owner[each.agent_id, each.user_id].append(each)
    for owner, own in by_owner.items():
        found = transaction.space(*owner)
        first = reserve(transaction.connection, found, len(own))
        transaction.connection.execute(
            _insert_change,
            [
                {
                    "space_no": found.space_no,
                    "id": first + index,
                    "note_id": each.note_id,
                    "event": each.event,
                    "create_time": each.at,
                    "before": each.before,
                    "after": each.after,
                    "reason": each.reason,
                }
                for index, each in enumerate(own)
            ],
        )


def history(
    connection: Connection, scope: Scope, note_id: str | None, event: str | None, limit: int
) -> list[Change]:
    """Lines of the histories of a scope's notes, newest first."""
    if scope.session_id is not None:
        raise InvalidArgument("a history belongs to a user or agent, not to a session")
    spaces = {each.space_no: each for each in find_spaces(connection, scope, spoken=False)}
    statement = (
        select(
            note_history.c.space_no,
            note_history.c.note_id,
            note_history.c.event,
            note_history.c.create_time,
            note_history.c.before,
            note_history.c.after,
            note_history.c.reason,
        )
        .where(note_history.c.space_no.in_(spaces))
        .order_by(note_history.c.create_time.desc(), note_history.c.id.desc())
        .limit(limit)
    )
    if note_id is not None:
        statement = statement.where(note_history.c.note_id == note_id)
    if event is not None:
        statement = statement.where(note_history.c.event == event)
    return [
        Change(spaces[space_no].agent_id, spaces[space_no].user_id, *line)
        for space_no, *line in connection.execute(statement)
    ]


def put_checkpoints(transaction: Transaction, checkpoints: Sequence[Checkpoint]) -> None:
    """States of sessions; only the newest of each session are kept."""
    connection = transaction.connection
    for each in checkpoints:
        found = transaction.space(each.agent_id, each.user_id)
        session_times = {each.session_id: (each.created, each.created)}
        ensure_sessions(connection, transaction.database, found, session_times)
        state = {
            "layers": [asdict(layer) for layer in each.layers],
            "notes": [asdict(note) for note in each.notes],
        }
        connection.execute(
            insert(checkpoint),
            {
                "space_no": found.space_no,
                "id": reserve(connection, found, 1),
                "checkpoint_id": each.checkpoint_id,
                "session_id": each.session_id,
                "state": dump_json(state),
                "create_time": each.created,
            },
        )
        values = {"of_space": found.space_no, "of_session": each.session_id}
        outdated = connection.execute(_outdated, values).scalars().all()
        this_space = checkpoint.c.space_no == found.space_no
        connection.execute(delete(checkpoint).where(this_space, checkpoint.c.id.in_(outdated)))


def checkpoints(connection: Connection, scope: Scope, limit: int) -> list[Checkpoint]:
    """States of a scope's sessions, newest first."""
    spaces = {each.space_no: each for each in find_spaces(connection, scope, spoken=False)}
    statement = (
        select(
            checkpoint.c.space_no,
            checkpoint.c.checkpoint_id,
            checkpoint.c.session_id,
            checkpoint.c.create_time,
            checkpoint.c.state,
        )
        .where(checkpoint.c.space_no.in_(spaces))
        .order_by(*_newest_first)
        .limit(limit)
    )
    if scope.session_id is not None:
        statement = statement.where(checkpoint.c.session_id == scope.session_id)
    return [
        _checkpoint(name, spaces[space_no].agent_id, spaces[space_no].user_id, *rest)
        for space_no, name, *rest in connection.execute(statement)
    ]


def _checkpoint(
    name: str, agent_id: str, user_id: str, session_id: str, created: int, state: str
) -> Checkpoint:
    saved = json.loads(state)
    layers = tuple(Layer(**layer) for layer in saved["layers"])
    notes = tuple(_note(fields) for fields in saved["notes"])
    return Checkpoint(name, agent_id, user_id, session_id, created, layers, notes)


def _note(fields: dict[str, Any]) -> Note:
    lists = {name: tuple(fields[name]) for name in ("keywords", "sources")}
    return Note(**{**fields, **lists})


def drop_checkpoints(connection: Connection, sessions: set[tuple[int, str]]) -> None:
    """Forget the states of sessions, which quote what was said in them."""
    rows = [{"of_space": space_no, "of_session": name} for space_no, name in sorted(sessions)]
    if rows:
        connection.execute(_drop_checkpoints, rows)


def end_sessions(connection: Connection, endings: Sequence[Ending]) -> None:
    """Mark sessions as ended and forget their states."""
    for ending in endings:
        name = ending.scope.session_id
        for found in find_spaces(connection, ending.scope, spoken=False):
            values = {"of_space": found.space_no, "of_session": name}
            connection.execute(_end_session, {**values, "at": ending.at})
            connection.execute(_drop_checkpoints, values)
            bump_generation(connection, found)


def erase_records(connection: Connection, scope: Scope) -> None:
    """Histories, states and sessions of a scope that is erased."""
    known = find_spaces(connection, scope, spoken=False)
    spaces = [each.space_no for each in known]
    for found in known:
        bump_generation(connection, found)
    for table in (checkpoint, session):
        conditions: list[ColumnElement[bool]] = [table.c.space_no.in_(spaces)]
        if scope.session_id is not None:
            conditions.append(table.c.session_id == scope.session_id)
        connection.execute(delete(table).where(*conditions))
    if scope.session_id is None:
        connection.execute(delete(note_history).where(note_history.c.space_no.in_(spaces)))


def directory(
    connection: Connection,
    level: Level,
    scope: Scope | None,
    note_id: str | None,
    after: tuple[str, str, str] | None,
    limit: int,
) -> list[Entry]:
    """Agents, users, sessions or owners in the order of their places."""
    statement, place = _LEVELS[level]
    if note_id is not None:
        statement = statement.where(
            space.c.space_no.in_(select(note.c.space_no).where(note.c.note_id == note_id))
        )
    if scope is not None:
        statement = statement.where(*_in_scope(level, scope))
    if after is not None:
        statement = statement.where(tuple_(*place) > tuple_(*after[: len(place)]))
    found = connection.execute(statement.order_by(*place).limit(limit))
    return [
        Entry(level, name, agent_id, user_id or None, shown, bool(status), *times)
        for name, agent_id, user_id, shown, status, *times in found
    ]


_LEVELS: dict[str, tuple[Any, tuple[ColumnElement[str], ...]]] = {
    "agent": (
        select(
            agent.c.agent_id,
            agent.c.agent_id.label("of_agent"),
            null(),
            agent.c.agent_name,
            agent.c.status,
            agent.c.create_time,
            agent.c.update_time,
        ),
        (agent.c.agent_id,),
    ),
    "user": (
        select(
            app_user.c.user_id,
            app_user.c.agent_id,
            app_user.c.user_id.label("of_user"),
            app_user.c.user_name,
            app_user.c.status,
            app_user.c.create_time,
            app_user.c.update_time,
        ).where(app_user.c.user_id != ""),
        (app_user.c.user_id,),
    ),
    "session": (
        select(
            session.c.session_id,
            session.c.agent_id,
            session.c.user_id,
            session.c.session_name,
            session.c.status,
            session.c.create_time,
            session.c.update_time,
            session.c.end_time,
        ),
        (session.c.session_id, session.c.agent_id, session.c.user_id),
    ),
    "owner": (
        select(
            space.c.user_id,
            space.c.agent_id,
            space.c.user_id.label("of_user"),
            app_user.c.user_name,
            app_user.c.status,
            app_user.c.create_time,
            app_user.c.update_time,
        )
        .join(app_user, app_user.c.user_id == space.c.user_id)
        .where(or_(*(exists().where(it.c.space_no == space.c.space_no) for it in (message, note)))),
        (space.c.user_id, space.c.agent_id),
    ),
}


def _in_scope(level: str, scope: Scope) -> list[ColumnElement[bool]]:
    """Entries that a space of the scope belongs to."""
    table = session if level == "session" or scope.session_id is not None else space
    given = {"agent_id": scope.agent_id, "user_id": scope.user_id}
    if table is session:
        given["session_id"] = scope.session_id
    wanted = [table.c[name] == value for name, value in given.items() if value is not None]
    if level == "session":
        return wanted
    if level == "owner":
        return [space.c.space_no.in_(select(table.c.space_no).where(*wanted))]
    entry = agent.c.agent_id if level == "agent" else app_user.c.user_id
    return [entry.in_(select(table.c[entry.name]).where(*wanted))]
