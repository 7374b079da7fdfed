"""Spaces: the (agent, user) pairs behind a scope."""

from collections.abc import Mapping
from functools import cache

from sqlalchemy import Connection, bindparam, exists, or_, select, update

from kemem.records import Micros, Scope
from kemem.store.database import Database, Space, Statement, upsert
from kemem.store.schema import message, note, session, space, space_state

# A key of meta. A space may have the number of one that was there before all rows were replaced;
# its epoch begins where no cache has been.
FIRST_EPOCH = "first_epoch"

_columns = (
    space.c.space_no,
    space.c.agent_id,
    space.c.user_id,
    space_state.c.next_seq,
    space_state.c.epoch,
    space_state.c.vector_writes,
)


@cache
def _spaces(by_agent: bool, by_user: bool, by_session: bool, spoken: bool) -> Statement:
    statement = select(*_columns).join_from(space, space_state).order_by(space.c.space_no)
    if by_agent:
        statement = statement.where(space.c.agent_id == bindparam("agent_id"))
    if by_user:
        statement = statement.where(space.c.user_id == bindparam("user_id"))
    if by_session:
        conditions = [session.c.session_id == bindparam("session_id")]
        if spoken:
            rows = [
                exists().where(
                    table.c.space_no == session.c.space_no,
                    table.c.session_id == session.c.session_id,
                )
                for table in (message, note)
            ]
            conditions.append(or_(*rows))
        statement = statement.where(
            space.c.space_no.in_(select(session.c.space_no).where(*conditions))
        )
    return statement


def find_spaces(connection: Connection, scope: Scope, *, spoken: bool = True) -> list[Space]:
    """The spaces that a scope can reach, oldest first.

    A session reaches those in which it has messages or notes; if not `spoken`, those that know it.
    """
    statement = _spaces(
        scope.agent_id is not None, scope.user_id is not None, scope.session_id is not None, spoken
    )
    found = connection.execute(
        statement,
        {"agent_id": scope.agent_id, "user_id": scope.user_id, "session_id": scope.session_id},
    )
    return [Space(*row) for row in found]


def shared_space(connection: Connection, agent_id: str) -> list[Space]:
    """What all users of an agent share: one space, or none yet."""
    statement = _spaces(True, True, False, True)
    found = connection.execute(statement, {"agent_id": agent_id, "user_id": ""})
    return [Space(*row) for row in found]


_every_pair = (
    select(space.c.agent_id, space.c.user_id)
    .where(or_(*(exists().where(it.c.space_no == space.c.space_no) for it in (message, note))))
    .order_by(space.c.agent_id, space.c.user_id)
)


def every_scope(connection: Connection) -> list[Scope]:
    """All pairs that have messages or notes: for operators."""
    return [Scope(agent_id, user_id) for agent_id, user_id in connection.execute(_every_pair)]


_reserve = (
    update(space_state)
    .where(space_state.c.space_no == bindparam("of_space"))
    .values(next_seq=space_state.c.next_seq + bindparam("count"))
    .returning(space_state.c.next_seq)
)


def reserve(connection: Connection, found: Space, count: int) -> int:
    """The first of `count` fresh ids; they become visible in the order of commits."""
    after = connection.execute(_reserve, {"of_space": found.space_no, "count": count}).scalar_one()
    return found.first_id + int(after) - count


_this_space = space_state.c.space_no == bindparam("of_space")
_rows_changed = update(space_state).where(_this_space).values(epoch=space_state.c.epoch + 1)
_vectors_came = (
    update(space_state).where(_this_space).values(vector_writes=space_state.c.vector_writes + 1)
)


def mark_changed(connection: Connection, space_no: int, *, rows: bool) -> None:
    """Tell every cache: rows went or changed, or vectors came."""
    connection.execute(_rows_changed if rows else _vectors_came, {"of_space": space_no})


def touch(connection: Connection, found: Space) -> None:
    """Tell of a change that no copy of the rows need know of: an id that nothing will have."""
    reserve(connection, found, 1)


def ensure_sessions(
    connection: Connection,
    database: Database,
    found: Space,
    sessions: Mapping[str, tuple[Micros, Micros]],
) -> None:
    """Sessions come into being on first use, and open again after their end.

    The times say when they began and were used.
    """
    rows = [
        {
            "space_no": found.space_no,
            "session_id": session_id,
            "agent_id": found.agent_id,
            "user_id": found.user_id,
            "create_time": born,
            "update_time": now,
            "status": 1,
            "end_time": None,
        }
        for session_id, (born, now) in sessions.items()
    ]
    if rows:
        changed = ("update_time", "status", "end_time")
        connection.execute(upsert(database.insert, session, *changed), rows)
