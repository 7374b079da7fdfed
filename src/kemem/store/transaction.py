"""A write transaction: it locks the owners of a batch first and then knows their spaces."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from kemem.records import Micros, Scope
from kemem.records.batch import Batch, Refusal
from kemem.store.database import Database, Space, insert_new
from kemem.store.schema import agent, app_user, meta, space, space_state
from kemem.store.spaces import FIRST_EPOCH, find_spaces

_touch = (
    update(app_user)
    .where(app_user.c.user_id == bindparam("of_user"))
    .values(last_active_time=bindparam("now"), update_time=bindparam("now"))
)
_lock = (
    select(app_user.c.user_id).where(app_user.c.user_id == bindparam("of_user")).with_for_update()
)
_first_epoch = select(meta.c.value).where(meta.c.key == FIRST_EPOCH)


class Refused(Exception):
    """A precondition of a batch does not hold; raised so that the transaction is rolled back."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class _Written:
    """What a batch writes for one user: for which agents, and when."""

    agents: set[str] = field(default_factory=set)
    times: list[tuple[Micros, Micros]] = field(default_factory=list)  # created, updated


class Transaction:
    """The connection of one write, and the spaces of the owners that it has locked."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self.connection = connection
        self.database = database
        self._spaces: dict[str, dict[str, Space]] = {}  # by user, then by agent

    def lock(self, batch: Batch) -> None:
        """Let no other transaction write what the owners of a batch have, until this one ends.

        Owners that it writes to and that are missing are created. Locks are taken in the order of
        user ids, so that no two transactions wait for each other.
        """
        written = _written(batch)
        for user_id in sorted({*written, *self._read_users(batch)}):
            if user_id in written:
                self._spaces[user_id] = self._lock_written(user_id, written[user_id])
            else:
                self.connection.execute(_lock, {"of_user": user_id})

    def space(self, agent_id: str, user_id: str) -> Space:
        """The space of an owner that this transaction writes to."""
        return self._spaces[user_id][agent_id]

    def spaces_of_user(self, user_id: str) -> list[Space]:
        """All spaces of a user that this transaction writes to."""
        return list(self._spaces[user_id].values())

    def find_spaces(self, scope: Scope) -> list[Space]:
        """The spaces of a scope; those of a locked user are known already."""
        if scope.user_id not in self._spaces or scope.session_id is not None:
            return find_spaces(self.connection, scope)
        known = self._spaces[scope.user_id]
        return [each for each in known.values() if scope.agent_id in (None, each.agent_id)]

    def _read_users(self, batch: Batch) -> Iterator[str]:
        """Users whose rows a batch drops, embeds or depends on."""
        wheres = [*batch.drop, *(each.where for each in batch.expects)]
        scopes = [where.scope for where in wheres]
        scopes += [each.scope for each in batch.ended]
        scopes += [each.scope for each in batch.vectors]
        scopes += [Scope(row.agent_id, row.user_id) for row in batch.present]
        for scope in dict.fromkeys(scopes):
            if scope.user_id is not None:
                yield scope.user_id
            else:
                found = find_spaces(self.connection, scope, spoken=False)
                yield from (each.user_id for each in found)
        yield from ("" for where in wheres if where.shared is not None)

    def _lock_written(self, user_id: str, written: _Written) -> dict[str, Space]:
        """The spaces of a user by agent; the update of the user's row is the lock."""
        now = max(updated for _, updated in written.times)
        touched = self.connection.execute(_touch, {"of_user": user_id, "now": now}).rowcount
        spaces = find_spaces(self.connection, Scope(user_id=user_id)) if touched else []
        if not touched or not written.agents <= {each.agent_id for each in spaces}:
            times = {"create_time": written.times[0][0], "update_time": now}
            self._create_spaces(user_id, sorted(written.agents), times)
            self.connection.execute(_touch, {"of_user": user_id, "now": now})
            spaces = find_spaces(self.connection, Scope(user_id=user_id))
        return {each.agent_id: each for each in spaces}

    def _create_spaces(self, user_id: str, agents: list[str], times: dict[str, Micros]) -> None:
        def ensure(table: Any, rows: Sequence[dict[str, Any]]) -> None:
            self.connection.execute(insert_new(self.database.insert, table), rows)

        ensure(agent, [{"agent_id": name, "agent_name": name, **times} for name in agents])
        ensure(app_user, [{"user_id": user_id, "agent_id": agents[0], **times}])
        ensure(space, [{"agent_id": name, "user_id": user_id} for name in agents])
        numbers = self.connection.execute(
            select(space.c.space_no).where(space.c.user_id == user_id, space.c.agent_id.in_(agents))
        ).scalars()
        first = int(self.connection.execute(_first_epoch).scalar() or 0)
        ensure(space_state, [{"space_no": number, "epoch": first} for number in numbers])


def _written(batch: Batch) -> dict[str, _Written]:
    """Users that a batch writes to, the first time of each being that of its first row."""
    users: dict[str, _Written] = defaultdict(_Written)

    def add(rows: Iterable[Any], created: str, updated: str) -> None:
        for row in rows:
            user = users[row.user_id]
            user.agents.add(row.agent_id)
            user.times.append((getattr(row, created), getattr(row, updated)))

    add(batch.put, "ingest_time", "ingest_time")
    add(batch.notes, "created", "updated")
    add(batch.changes, "at", "at")
    add(batch.checkpoints, "created", "created")
    return users
