"""SqlStore: the store of KeMem on SQLite or PostgreSQL, one implementation for both."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from kemem import records
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports.request import SearchRequest, SearchResponse, StoreInfo, key_of
from kemem.records.batch import Applied, Batch, Job, JobKind
from kemem.records.keys import ApiKey
from kemem.records.webhooks import Webhook
from kemem.store import (
    archive,
    directory,
    graph,
    history,
    keys,
    read,
    search,
    spaces,
    tables,
    vectors,
    webhooks,
)
from kemem.store.branches import mark_branches
from kemem.store.database import Database, Space, group
from kemem.store.index import SpaceCache, rebuild_words
from kemem.store.inventory import take_inventory
from kemem.store.migrate import MOVED_TO, check_open, read_meta
from kemem.store.pipeline import retried
from kemem.store.replica import Replica
from kemem.store.spaces import Refused, Transaction
from kemem.store.write import count_uses, drop_rows, put_messages, put_notes, withdraw_messages

P = ParamSpec("P")
T = TypeVar("T")


class SqlStore:
    """Plain functions over a connection; threads read, the database decides how to write."""

    def __init__(
        self,
        database: Database,
        cache_bytes: int,
        open_replica: Callable[[], Replica] | None = None,
    ) -> None:
        self._database = database
        self._database.open()
        self._replica = open_replica() if open_replica else None
        self._readers = ThreadPoolExecutor(database.readers, thread_name_prefix="kemem-reader")
        self._cache = SpaceCache(database, cache_bytes)
        self._closed = False

    async def apply(self, batch: Batch) -> Applied:
        # Vectors can be made again from their rows, and a job taken back asks for them.
        truth = replace(batch, vectors=(), used=(), done=(), only_if=(), journal=(), trim=())
        durable = truth != Batch()
        try:
            return await self._write(lambda it: apply(it, self._database, batch), durable)
        except Refused as refusal:
            return Applied(refused=refusal.reason)
        finally:  # also after a refusal: what it is for is decided again
            self._mark_written(_users_of(batch))

    async def read(
        self,
        where: records.Where,
        *,
        after: records.Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[records.Row]:
        return await self._read_of([where], read.read, where, after, limit, newest_first)

    async def search(self, request: SearchRequest) -> SearchResponse:
        wheres = [request.where, *([request.around.where] if request.around else [])]
        response = await self._read_of(wheres, search.search, self._database, self._cache, request)
        with suppress(IndexError, RuntimeError):  # until none is left, or it is being closed
            while True:
                self._readers.submit(self._cache.later.popleft())
        return response

    async def history(
        self,
        scope: records.Scope,
        *,
        note_id: str | None = None,
        event: str | None = None,
        reason: str | None = None,
        limit: int = 100,
    ) -> list[records.Change]:
        return await self._read(history.history, scope, limit, note_id, event, reason)

    async def checkpoints(
        self, scope: records.Scope, *, limit: int = 1
    ) -> list[records.Checkpoint]:
        return await self._read(history.checkpoints, scope, limit)

    async def directory(
        self,
        level: records.Level,
        scope: records.Scope | None = None,
        *,
        note_id: str | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> list[records.Entry]:
        return await self._read(directory.directory, level, scope, note_id, after, limit)

    async def generation(self, where: records.Where) -> str:
        token = await self._read(spaces.generation, where)
        self._mark_written(_users_in([where]))  # what is kept under it must not be older
        return token

    async def claim(self, now: records.Micros, lease: records.Micros) -> Job | None:
        def claim(connection: sa.Connection) -> Job | None:
            found = history.claim(connection, now, lease)
            if found is None:  # which writes nothing, and so is not refused where others are
                check_open(read_meta(connection))
            return found

        job = await self._write(claim)
        if job is not None:  # what it is about may have come a moment ago
            self._mark_written(None)
        return job

    async def jobs(
        self,
        limit: int | None = 100,
        *,
        ids: Sequence[str] | None = None,
        kinds: Sequence[JobKind] | None = None,
    ) -> list[Job]:
        return await self._read(history.list_jobs, limit, ids, kinds)

    async def journal(
        self,
        kind: str,
        *,
        since: records.Micros | None = None,
        until: records.Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[records.Line]:
        def load(connection: sa.Connection) -> list[records.Line]:
            return history.ask_lines(connection, kind, since, until, user_id, limit)()

        return await self._read(load)

    async def exchange(
        self, before: records.Line | None, after: records.Line | None
    ) -> records.Line | None:
        return await self._write(lambda it: history.exchange_line(it, before, after), durable=False)

    async def info(self, *, health: bool = False) -> StoreInfo:
        def load(connection: sa.Connection) -> StoreInfo:
            # Not kept: another process may restore a backup, which ends the cursors of before.
            meta = read_meta(connection)
            backend, version = self._database.name, int(meta.get("schema_version", 0))
            secret, label = bytes.fromhex(meta.get("secret", "")), meta.get("label", "current")
            state = directory.take_health(connection, backend, version) if health else None
            model = vectors.parse_model(meta.get("embedder"))
            place = meta.get(MOVED_TO)
            return StoreInfo(backend, version, secret, label, model, state, place)

        return await self._read(load)

    async def key_generation(self) -> int:
        return await self._read(keys.generation)

    async def keys(self, *, digest: str | None = None, key_id: str | None = None) -> list[ApiKey]:
        return await self._read(keys.read_keys, digest, key_id)

    async def change_keys(
        self,
        *,
        add: Sequence[ApiKey] = (),
        remove: Sequence[str] = (),
        used: Mapping[str, records.Micros] | None = None,
    ) -> int:
        durable = bool(add or remove)
        return await self._write(lambda it: keys.change_keys(it, add, remove, used or {}), durable)

    async def webhooks(self) -> list[Webhook]:
        return await self._read(webhooks.read_webhooks)

    async def change_webhooks(
        self, *, add: Sequence[Webhook] = (), remove: Sequence[str] = ()
    ) -> int:
        return await self._write(lambda it: webhooks.change_webhooks(it, add, remove))

    async def claim_delivery(
        self, webhook_id: str, now: records.Micros, lease: records.Micros
    ) -> Job | None:
        own = webhooks.deliveries_to(webhook_id)
        job = await self._write(lambda it: history.claim(it, now, lease, own))
        self._mark_written(None)  # what it tells of may have come a moment ago
        return job

    async def census(self, largest: int) -> records.Census:
        return await self._read(directory.take_census, largest)

    async def count_types(
        self, notes: Sequence[str], entities: Sequence[str], relations: Sequence[str]
    ) -> Mapping[str, Mapping[str, int]]:
        return await self._read(directory.count_types, notes, entities, relations)

    async def inventory(self, user_id: str) -> records.Inventory:
        return await self._read(take_inventory, self._database.name, user_id)

    async def purge(self) -> None:
        with self._working():
            await asyncio.to_thread(self._database.purge)

    async def holdings(self, owners: Sequence[records.Scope]) -> list[records.Holding]:
        return await self._read(directory.take_holdings, owners)

    async def export(self, take: Callable[[str, Mapping[str, Any]], None]) -> None:
        with self._working():
            await asyncio.to_thread(archive.export, self._database, take)

    async def replace(self, rows: Iterable[tuple[str, Mapping[str, Any]]], label: str) -> None:
        try:
            await self._write(
                lambda it: archive.replace(it, self._database, rows, label), alone=True
            )
        finally:
            self._mark_written(None)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._readers.shutdown)
            if self._replica is not None:
                await asyncio.to_thread(self._replica.close)
            await asyncio.to_thread(self._database.close)

    async def _read(
        self, work: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        return await self._read_of([], work, *args, **options)

    async def _read_of(
        self,
        wheres: Sequence[records.Where],
        work: Callable[Concatenate[sa.Connection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Read what the Wheres admit, if any are given from the replica where that has it."""
        users, replica = _users_in(wheres), self._replica

        def from_database() -> T:
            with self._database.reading() as connection:
                return work(connection, *args, **options)

        def from_either() -> T:
            if users and replica is not None and replica.has(users):
                try:
                    with replica.reading() as connection:
                        return work(connection, *args, **options)
                except sa.exc.DBAPIError as error:
                    replica.distrust(error)
            return retried(from_database)

        with self._working():
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._readers, from_either)

    def _mark_written(self, users: Iterable[str] | None) -> None:
        if self._replica is not None:
            self._replica.mark_written(users)

    async def _write(
        self, work: Callable[[sa.Connection], T], durable: bool = True, alone: bool = False
    ) -> T:
        with self._working():
            # Shielded: a caller that goes away must not leave a batch in doubt.
            future = asyncio.wrap_future(self._database.write(work, durable, alone))
            return await asyncio.shield(future)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Refuse work on a closed store; raise a driver's error as one of KeMem's."""
        if self._closed:
            raise Unavailable("this store is closed")
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise self._database.to_error(error) from None


def _users_in(wheres: Sequence[records.Where]) -> set[str] | None:
    """The users whose rows some Wheres admit; None where that may be anyone."""
    users = {where.scope.user_id for where in wheres}
    users |= {"" for where in wheres if where.shared is not None}
    named = {it for it in users if it is not None}
    return named if len(named) == len(users) else None


def _users_of(batch: Batch) -> set[str] | None:
    """The users that a batch changes or depends on; None where that may be anyone."""
    wheres = [*batch.drop, *batch.withdraw, *(each.where for each in batch.expects)]
    scopes = [*(it.scope for it in batch.ended), *(it.scope for it in batch.vectors)]
    others = [it.user_id for it in scopes]
    rows = (*batch.put, *batch.notes, *batch.changes, *batch.checkpoints, *batch.present)
    others += [it.user_id for it in (*rows, *batch.used)]
    users = _users_in(wheres)
    if users is None or None in others or batch.configured or batch.rebuild_words:
        return None
    return users.union(it for it in others if it is not None)


def apply(connection: sa.Connection, database: Database, batch: Batch) -> Applied:
    """Write a batch. Whatever fails, the transaction takes all of it back; Refused among it."""
    transaction = Transaction(connection, database)
    transaction.lock(batch)  # first: what is checked below holds until the end
    _check(transaction, batch)
    dropped = sum(_drop(transaction, where, batch) for where in batch.drop)
    for where in batch.withdraw:
        history.drop_checkpoints(connection, withdraw_messages(transaction, where))
    inserted, ignored = put_messages(transaction, batch.put)
    places, merged = put_notes(transaction, batch.notes, inserted)
    of_notes = {item.note_id: places[key_of(item)] for item in batch.notes}
    by_space: dict[Space, list[tuple[records.Link, int]]] = defaultdict(list)
    for link in batch.links:
        if link.note_id not in of_notes:
            raise InvalidArgument(
                f"a link names the note {link.note_id!r:.80}, which is not in the batch"
            )
        space, row = of_notes[link.note_id]
        by_space[space].append((link, row))
    for space, links in by_space.items():
        graph.put_links(transaction, space, links)
    for space in {space for space, _ in places.values()}:
        transaction.reserve(space, 1)
    changes = [it for it in batch.changes if (it.agent_id, it.user_id, it.note_id) not in merged]
    history.put_changes(transaction, changes)
    history.put_checkpoints(transaction, batch.checkpoints)
    count_uses(connection, batch.used)
    for embedded in batch.vectors:
        vectors.put_vectors(transaction, embedded)
    history.end_sessions(transaction, batch.ended)
    for configuration in batch.configured:
        directory.configure(connection, configuration)
    jobs = batch.jobs_of(inserted)
    # A delivery that was given up is no event: its endpoint would not hear of it, either.
    failed = [it for it in jobs if it.state == "failed" and it.kind != "webhook"]
    if (transaction.note_events or batch.ended or failed) and transaction.has_webhooks():
        events = webhooks.events_of(batch, transaction.note_events, failed)
        jobs += webhooks.delivery_jobs(connection, events)
    history.put_jobs(connection, jobs)
    history.finish_jobs(connection, batch.done)
    history.put_lines(connection, batch.journal)
    dropped += sum(history.trim_lines(connection, each) for each in batch.trim)
    if batch.model is not None:
        vectors.record_model(connection, batch.model)
    if batch.rebuild_words:
        rebuild_words(connection, database)
    transaction.finish()
    names = {note_id: twin for (_, _, note_id), twin in merged.items()}
    return Applied(tuple(inserted), tuple(ignored), dropped, names)


def _check(transaction: Transaction, batch: Batch) -> None:
    """Refuse a batch whose preconditions do not hold."""
    connection = transaction.connection
    if not history.are_open(connection, batch.only_if):
        raise Refused("job")
    by_owner = group(batch.present, lambda row: records.Scope(row.agent_id, row.user_id))
    if not all(_has(transaction, owner, rows) for owner, rows in by_owner.items()):
        raise Refused("row")
    for expected in batch.expects:
        where = expected.where
        spaces = transaction.spaces(where.scope, where.shared)
        rows = read.read_rows(connection, tables.notes, where, spaces, None, expected.limit, True)
        if not expected.holds([stored.row for stored in rows]):
            raise Refused("changed")


def _has(
    transaction: Transaction, owner: records.Scope, rows: Sequence[records.Row | records.Checkpoint]
) -> bool:
    """Whether an owner has rows still, under whatever words, and checkpoints are the newest.

    A withdrawn message counts as gone.
    """
    connection = transaction.connection
    numbers = [space.space_no for space in transaction.spaces(owner)]
    for table in tables.TABLES:
        names = {row.id for row in rows if isinstance(row, table.record)}
        if names - read.existing_names(connection, table, numbers, names, withdrawn=False):
            return False
    return all(
        history.checkpoints(connection, replace(owner, session_id=row.session_id), 1) == [row]
        for row in rows
        if isinstance(row, records.Checkpoint)
    )


def _drop(transaction: Transaction, where: records.Where, batch: Batch) -> int:
    connection = transaction.connection
    removed = drop_rows(transaction, where, batch.at, batch.reason)
    sessions = {(it.space_no, it.row.session_id) for it in removed if it.row.session_id is not None}
    history.drop_checkpoints(connection, sessions)
    messages = [it.row for it in removed if isinstance(it.row, records.Message)]
    history.remove_from_jobs(connection, messages)
    for space_no, session_id in sorted(
        {
            (it.space_no, it.row.session_id)
            for it in removed
            if isinstance(it.row, records.Message) and it.row.parent_message_id is not None
        }
    ):
        mark_branches(connection, space_no, session_id)
    if where.everything:
        history.erase_scope(transaction, where.scope)
    return len(removed)
