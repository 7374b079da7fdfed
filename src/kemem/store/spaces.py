"""Spaces: the (agent, user) pairs behind a scope."""

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b

from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, or_, select, update

from kemem.records import Micros, Model, Scope, Where
from kemem.store.database import Database, Space, Statement, upsert
from kemem.store.schema import (
    embedding_model,
    message,
    note,
    session,
    space,
    space_state,
)

# A key of meta. A space may have the number of one that was there before all rows were replaced;
# its epoch begins where no cache has been.
FIRST_EPOCH = "first_epoch"

model_number = select(embedding_model.c.model_no).where(
    embedding_model.c.name == bindparam("of_name"), embedding_model.c.width == bindparam("of_width")
)
_columns = (
    space.c.space_no,
    space.c.agent_id,
    space.c.user_id,
    space_state.c.next_seq,
    space_state.c.epoch,
    space_state.c.vector_writes,
    model_number.scalar_subquery(),
)


@cache
def _spaces(
    by_agent: bool, by_user: bool, by_session: bool, spoken: bool, shared: bool
) -> Statement:
    conditions: list[ColumnElement[bool]] = []
    if by_agent:
        conditions.append(space.c.agent_id == bindparam("agent_id"))
    if by_user:
        conditions.append(space.c.user_id == bindparam("user_id"))
    if by_session:
        of_session = [session.c.session_id == bindparam("session_id")]
        if spoken:
            of_session.append(
                or_(
                    *(
                        exists().where(
                            table.c.space_no == session.c.space_no,
                            table.c.session_id == session.c.session_id,
                        )
                        for table in (message, note)
                    )
                )
            )
        conditions.append(space.c.space_no.in_(select(session.c.space_no).where(*of_session)))
    reached = and_(*conditions)
    if shared:
        own = and_(space.c.agent_id == bindparam("shared"), space.c.user_id == "")
        reached = or_(reached, own)
    return select(*_columns).join_from(space, space_state).where(reached).order_by(space.c.space_no)


def find_spaces(connection: Connection, scope: Scope, *, spoken: bool = True) -> list[Space]:
    """The spaces that a scope can reach, oldest first.

    A session reaches those in which it has messages or notes; if not `spoken`, those that know it.
    """
    return _find(connection, scope, spoken=spoken)[0]


def visible_spaces(connection: Connection, where: Where) -> list[Space]:
    """The spaces of a scope, and the shared one that is seen besides, oldest first."""
    return _find(connection, where.scope, shared=where.shared)[0]


def spaces_and_model(
    connection: Connection, where: Where, model: Model | None
) -> tuple[list[Space], int | None]:
    """The visible spaces, and the number of an embedding model that made vectors."""
    return _find(connection, where.scope, shared=where.shared, model=model)


def _find(
    connection: Connection,
    scope: Scope,
    *,
    spoken: bool = True,
    shared: str | None = None,
    model: Model | None = None,
) -> tuple[list[Space], int | None]:
    statement = _spaces(
        scope.agent_id is not None,
        scope.user_id is not None,
        scope.session_id is not None,
        spoken,
        shared is not None,
    )
    values = {
        "agent_id": scope.agent_id,
        "user_id": scope.user_id,
        "session_id": scope.session_id,
        "shared": shared,
        "of_name": model.name if model else None,
        "of_width": model.width if model else None,
    }
    rows = connection.execute(statement, values).all()
    return [Space(*row[:-1]) for row in rows], rows[0][-1] if rows else None


def generation(connection: Connection, where: Where) -> str:
    """A token of how far the spaces that a Where reaches have been written."""
    spaces = visible_spaces(connection, where)
    counters = [(it.space_no, it.next_seq, it.epoch, it.vector_writes) for it in spaces]
    return blake2b(repr(counters).encode(), digest_size=16).hexdigest()


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


def invalidate_cache(connection: Connection, space_no: int, *, rows: bool) -> None:
    """Let every cache notice that rows went or changed, or that vectors came."""
    connection.execute(_rows_changed if rows else _vectors_came, {"of_space": space_no})


def bump_generation(connection: Connection, found: Space) -> None:
    """Change the generation without invalidating caches: by an id that nothing will have."""
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
