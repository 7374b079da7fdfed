"""Spaces: the (agent, user) pairs behind a scope, found for a read and locked for a write."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from kemem.ports.entries import refusal
from kemem.records import Micros, Model, Note, Scope, Where
from kemem.records.batch import Batch, Refusal
from kemem.records.webhooks import EventType
from kemem.store import segments, tally, webhooks
from kemem.store.database import (
    Database,
    Space,
    Statement,
    bound,
    change,
    group,
    in_list,
    upsert,
)
from kemem.store.pipeline import DISTRIBUTED
from kemem.store.schema import (
    DISABLED_SESSION,
    agent,
    app_user,
    embedding_model,
    message,
    meta,
    note,
    session,
    space,
    space_state,
)
from kemem.store.tables import Stored

# A key of meta. A space may have the number of one that was there before all rows were replaced;
# its epoch begins where no cache has been.
FIRST_EPOCH = "first_epoch"

model_number = sa.select(embedding_model.c.model_no).where(
    *bound(embedding_model, name="of_name", width="of_width")
)
_user_status = sa.select(app_user.c.status).where(app_user.c.user_id == space.c.user_id)
_agent_status = sa.select(agent.c.status).where(agent.c.agent_id == space.c.agent_id)
_disabled = sa.case(
    (_user_status.scalar_subquery() == 0, "user"), (_agent_status.scalar_subquery() == 0, "agent")
)
_columns = (*space.c, *list(space_state.c)[1:], _disabled, model_number.scalar_subquery())


@cache
def _spaces(ids: frozenset[str], with_rows: bool, shared: bool, numbered: bool) -> Statement:
    """The statement for a scope that has these ids; if `numbered`, within these spaces."""
    conditions = [space.c[name] == sa.bindparam(name) for name in sorted(ids - {"session_id"})]
    if "session_id" in ids:
        sessions = sa.select(session.c.space_no).where(
            session.c.session_id == sa.bindparam("session_id")
        )
        if numbered:
            sessions = sessions.where(in_list(session.c.space_no, "numbers"))
        if with_rows:
            own = (
                sa.exists().where(
                    table.c.space_no == session.c.space_no,
                    table.c.session_id == session.c.session_id,
                )
                for table in (message, note)
            )
            sessions = sessions.where(sa.or_(*own))
        conditions.append(space.c.space_no.in_(sessions))
    reached = _with_shared(sa.and_(*conditions), shared)
    statement = sa.select(*_columns).join_from(space, space_state).where(reached)
    if numbered:
        statement = statement.where(in_list(space_state.c.space_no, "numbers"))
    return statement.order_by(space.c.space_no)


def _with_shared(reached: sa.ColumnElement[bool], shared: bool) -> sa.ColumnElement[bool]:
    all_users = sa.and_(space.c.agent_id == sa.bindparam("shared"), space.c.user_id == "")
    return sa.or_(reached, all_users) if shared else reached


@cache
def _numbers(ids: frozenset[str], shared: bool) -> Statement:
    """The numbers of the spaces that a scope may have, which every server of a database knows.

    Of a session alone nobody knows where it is: all servers are asked.
    """
    owner = [space.c[name] == sa.bindparam(name) for name in sorted(ids - {"session_id"})]
    sessions = sa.select(session.c.space_no)
    sessions = sessions.where(session.c.session_id == sa.bindparam("session_id"))
    reached = sa.and_(*owner) if owner else space.c.space_no.in_(sessions)
    return sa.select(space.c.space_no).where(_with_shared(reached, shared))


def routed(
    connection: sa.Connection, table: sa.Table, scope: Scope
) -> list[sa.ColumnElement[bool]]:
    """A condition that leads a distributed database to the servers with the spaces of a scope."""
    if DISTRIBUTED not in connection.get_execution_options():
        return []
    ids = ids_of(scope)
    return [table.c.space_no.in_(connection.scalars(_numbers(frozenset(ids), False), ids).all())]


def find_spaces(
    connection: sa.Connection, scope: Scope, *, with_rows: bool = True, shared: str | None = None
) -> list[Space]:
    """The spaces that a scope can reach, and the shared one of an agent besides, oldest first.

    A session reaches those in which it has messages or notes; if not `with_rows`, all that it is
    registered in.
    """
    return spaces_and_model(connection, scope, None, with_rows, shared)[0]


def visible_spaces(connection: sa.Connection, where: Where) -> list[Space]:
    """The spaces of a scope, and the shared one that is seen besides, oldest first."""
    return find_spaces(connection, where.scope, shared=where.shared)


def spaces_and_model(
    connection: sa.Connection,
    scope: Scope,
    model: Model | None,
    with_rows: bool = True,
    shared: str | None = None,
) -> tuple[list[Space], int | None]:
    """The same, and the number of an embedding model that made vectors."""
    ids = ids_of(scope)
    values = {**ids, "shared": shared, "of_name": None, "of_width": None}
    if model:
        values |= {"of_name": model.name, "of_width": model.width}
    names, is_shared = frozenset(ids), shared is not None
    is_distributed = DISTRIBUTED in connection.get_execution_options()
    if is_distributed:
        values["numbers"] = connection.scalars(_numbers(names, is_shared), values).all()
    statement = _spaces(names, with_rows, is_shared, is_distributed)
    rows = connection.execute(statement, values).all()
    return [Space(*row[:-1]) for row in rows], rows[0][-1] if rows else None


def served(connection: sa.Connection, spaces: Sequence[Space], scope: Scope) -> list[Space]:
    """The spaces that a search serves: none of an agent or user that is disabled.

    Where the scope names who is, or a session that is, it is PermissionDenied.
    """
    for each in spaces:
        if each.disabled and getattr(scope, f"{each.disabled}_id") is not None:
            raise refusal(each.disabled, getattr(each, f"{each.disabled}_id"))
    if scope.session_id is not None:
        this = {"numbers": [each.space_no for each in spaces], "session_id": scope.session_id}
        if connection.execute(_disabled_session, this).first():
            raise refusal("session", scope.session_id)
    return [each for each in spaces if not each.disabled]


def ids_of(scope: Scope) -> dict[str, Any]:
    """The ids that a scope has, by their names."""
    names = ("agent_id", "user_id", "session_id")
    return {name: value for name in names if (value := getattr(scope, name)) is not None}


def generation(connection: sa.Connection, where: Where) -> str:
    """A token of how far the spaces that a Where reaches have been written."""
    spaces = visible_spaces(connection, where)
    counters = [(it.space_no, it.next_seq, it.epoch, it.vector_writes) for it in spaces]
    return blake2b(repr(counters).encode(), digest_size=16).hexdigest()


_disabled_session = sa.select(session.c.session_id).where(
    in_list(session.c.space_no, "numbers"),
    session.c.session_id == sa.bindparam("session_id"),
    session.c.status == DISABLED_SESSION,
)
_this_user = app_user.c.user_id == sa.bindparam("of_user")
_set_active = (
    sa.update(app_user)
    .where(_this_user)
    .values(last_active_time=sa.bindparam("now"), update_time=sa.bindparam("now"))
)
_lock = sa.select(app_user.c.user_id).where(_this_user).with_for_update()


def _asking(exist: sa.ColumnElement[Any]) -> tuple[Any, Any]:
    """The statements that lock a user, with a column that tells whether there are endpoints."""
    column = exist.label("has_webhooks")
    return _set_active.returning(app_user.c.user_id, column), _lock.add_columns(column)


_locks = _asking(webhooks.exist)
_distributed_locks = _asking(sa.null())  # where users are, other servers have no endpoints
_first_epoch = sa.select(meta.c.value).where(meta.c.key == FIRST_EPOCH)
_COUNTERS = ("next_seq", "epoch", "vector_writes")
_count = (
    sa.update(space_state)
    .where(space_state.c.space_no == sa.bindparam("of_space"))
    .values({name: space_state.c[name] + sa.bindparam(f"more_{name}") for name in _COUNTERS})
)
_count_now = _count.returning(space_state.c.next_seq)


class Refused(Exception):
    """A precondition of a batch does not hold; raised so that the transaction is rolled back."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


class Transaction:
    """The connection of one write, and the spaces of the owners that it has locked.

    Counters of spaces are counted here and written once, by `finish`.
    """

    def __init__(self, connection: sa.Connection, database: Database) -> None:
        self.connection = connection
        self.database = database
        self._locked: set[str] = set()  # users
        self._spaces: dict[str, dict[str, Space]] = {}  # of users written to, by user and agent
        self._next_seq: dict[int, int] = {}  # of the spaces above
        self._more: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_COUNTERS, 0))
        self._changed: set[int] = set()  # rows that went or changed
        self._sessions: dict[tuple[int, str], Micros] = {}  # when those ensured were used
        self.counts = Counter[str]()  # rows that came or went, by the names of tally.py
        self.inserted: list[Stored[Any]] = []
        self.model_numbers: dict[Model, int | None] = {}  # of the models whose vectors it writes
        self.note_events: list[tuple[EventType, Note]] = []
        is_distributed = DISTRIBUTED in connection.get_execution_options()
        self._set_active, self._lock = _distributed_locks if is_distributed else _locks
        self._last_lock: sa.Row[Any] | sa.Result[*tuple[Any, ...]] | None = None

    def lock(self, batch: Batch) -> None:
        """Let no other transaction write what the owners of a batch have, until this one ends.

        Owners that it writes to and that are missing are created. Locks are taken in the order of
        user ids, so that no two transactions wait for each other.
        """
        rows: list[tuple[Any, Micros, Micros]] = [  # with the times of their creation and change
            *((row, row.ingest_time, row.ingest_time) for row in batch.put),
            *((row, row.created, row.updated) for row in batch.notes),
            *((row, row.at, row.at) for row in batch.changes),
            *((row, row.created, row.created) for row in batch.checkpoints),
        ]
        written = group(rows, lambda it: str(it[0].user_id))
        self._locked = {*written, *self._users_read(batch)}
        self.model_numbers = dict.fromkeys(each.model for each in batch.vectors)
        for user_id in sorted(self._locked):
            if user_id in written:
                own = written[user_id]
                begun, now = own[0][1], max(updated for *_, updated in own)
                spaces = self._lock_written(user_id, {it[0].agent_id for it in own}, begun, now)
                self._spaces[user_id] = {each.agent_id: each for each in spaces}
                self._next_seq |= {each.space_no: each.next_seq for each in spaces}
            else:
                locked = self.connection.execute(self._lock, {"of_user": user_id})
                # Unread, SQLite keeps it open; PostgreSQL would have to be waited for.
                self._last_lock = locked.first() if self.database.name == "sqlite" else locked

    def _users_read(self, batch: Batch) -> Iterator[str]:
        """Users whose rows a batch drops, withdraws, embeds or depends on."""
        wheres = [*batch.drop, *batch.withdraw, *(each.where for each in batch.expects)]
        scopes = [where.scope for where in wheres]
        scopes += [each.scope for each in batch.ended] + [each.scope for each in batch.vectors]
        scopes += [Scope(row.agent_id, row.user_id) for row in batch.present]
        for scope in dict.fromkeys(scopes):
            if scope.user_id is not None:
                yield scope.user_id
            else:
                spaces = find_spaces(self.connection, scope, with_rows=False)
                yield from (each.user_id for each in spaces)
        yield from ("" for where in wheres if where.shared is not None)

    def _lock_written(
        self, user_id: str, agents: set[str], begun: Micros, now: Micros
    ) -> list[Space]:
        """The spaces of a user, created where missing; the update of the user's row is the lock."""
        connection, values = self.connection, {"of_user": user_id, "now": now}
        locked = connection.execute(self._set_active, values)
        model = next(iter(self.model_numbers), None)
        spaces, number = spaces_and_model(connection, Scope(user_id=user_id), model)
        self.model_numbers |= {model: number} if model else {}
        self._last_lock = locked.first()
        if self._last_lock and agents <= {each.agent_id for each in spaces}:
            return spaces
        names, times = sorted(agents), {"create_time": begun, "update_time": now}
        upsert(connection, agent, [{"agent_id": it, "agent_name": it, **times} for it in names])
        upsert(connection, app_user, [{"user_id": user_id, "agent_id": names[0], **times}])
        upsert(connection, space, [{"agent_id": it, "user_id": user_id} for it in names])
        own = (space.c.user_id == user_id, space.c.agent_id.in_(names))
        numbers = connection.execute(sa.select(space.c.space_no).where(*own)).scalars()
        epoch = int(connection.execute(_first_epoch).scalar() or 0)
        upsert(connection, space_state, [{"space_no": it, "epoch": epoch} for it in numbers])
        locked = connection.execute(self._set_active, values)
        spaces = find_spaces(connection, Scope(user_id=user_id))
        self._last_lock = locked.first()
        return spaces

    def has_webhooks(self) -> bool:
        """Whether endpoints want to know of changes: who locked an owner has asked already."""
        last = self._last_lock
        row = last.first() if isinstance(last, sa.Result) else last
        if row is None or row.has_webhooks is None:
            return bool(self.connection.execute(sa.select(webhooks.exist)).scalar())
        return bool(row.has_webhooks)

    def space(self, agent_id: str, user_id: str) -> Space:
        """The space of an owner that this transaction writes to."""
        return self._spaces[user_id][agent_id]

    def open_space(self, agent_id: str, user_id: str) -> Space:
        """The same for new messages: PermissionDenied where agent or user is disabled."""
        own = self.space(agent_id, user_id)
        if own.disabled:
            raise refusal(own.disabled, getattr(own, f"{own.disabled}_id"))
        return own

    def spaces(self, scope: Scope, shared: str | None = None) -> list[Space]:
        """The spaces of a scope, and a shared one; those of a user it writes to were read."""
        is_read = scope.user_id in self._spaces and scope.session_id is None and shared is None
        if scope.user_id is None or not is_read:
            return find_spaces(self.connection, scope, shared=shared)
        spaces = self._spaces[scope.user_id].values()
        return [each for each in spaces if scope.agent_id in (None, each.agent_id)]

    def reserve(self, space: Space, count: int) -> int:
        """The first of `count` fresh ids; they become visible in the order of commits.

        An id that nothing will have changes the generation and leaves caches valid.
        """
        number = space.space_no
        if number in self._next_seq:
            self._more[number]["next_seq"] += count
            self._next_seq[number] += count
            return space.first_id + self._next_seq[number] - count
        if space.user_id not in self._locked:  # a user of the agent who came after the locks
            self.connection.execute(self._lock, {"of_user": space.user_id})
        more = {"more_next_seq": count, "more_epoch": 0, "more_vector_writes": 0}
        next_seq = self.connection.execute(_count_now, {"of_space": number, **more}).scalar_one()
        return space.first_id + int(next_seq) - count

    def invalidate_cache(self, space_no: int, *, rows: Iterable[int] = ()) -> None:
        """Let every cache notice that these rows went or changed, or else that vectors came."""
        changed = {*rows}
        self._changed |= changed
        self._more[space_no]["epoch" if changed else "vector_writes"] += 1

    def ensure_sessions(self, space: Space, sessions: Mapping[str, tuple[Micros, Micros]]) -> None:
        """Sessions come into being on first use, and open again after their end.

        The times say when they began and were used.
        """
        owner = {"agent_id": space.agent_id, "user_id": space.user_id, "space_no": space.space_no}
        rows = []
        for session_id, (begun, now) in sessions.items():
            if self._sessions.get((space.space_no, session_id)) != now:
                self._sessions[space.space_no, session_id] = now
                times = {"create_time": begun, "update_time": now, "end_time": None}
                rows.append({**owner, "session_id": session_id, **times, "status": 1})
        upsert(self.connection, session, rows, "update_time", "status", "end_time")

    def finish(self) -> None:
        """Write the counters; after this the transaction can be committed."""
        rows = [
            {"of_space": space_no, **{f"more_{name}": count for name, count in more.items()}}
            for space_no, more in sorted(self._more.items())
        ]
        change(self.connection, space_state, _count, rows)
        segments.remove(self.connection, self._changed)
        tally.add(self.connection, self.counts)  # last: who shares a part waits for the commit
