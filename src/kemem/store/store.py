"""SqlStore: the store of KeMem on SQLite or PostgreSQL, one implementation for both."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from kemem.batch import Applied, Batch, Job
from kemem.errors import Unavailable
from kemem.records import (
    Census,
    Change,
    Checkpoint,
    Entry,
    Found,
    Health,
    Line,
    Match,
    Message,
    Micros,
    Model,
    Note,
    Position,
    Rank,
    Relation,
    Scope,
    Vector,
    Where,
)
from kemem.store import (
    archive,
    graph,
    journal,
    notes,
    outbox,
    records,
    scan,
    search,
    spaces,
    vectors,
)
from kemem.store.apply import apply
from kemem.store.census import take_census
from kemem.store.columns import Columns
from kemem.store.database import Database
from kemem.store.migrate import read_meta
from kemem.store.rebuild import rebuild_words
from kemem.store.schema import job, message, note, row_vector
from kemem.store.transaction import Refused
from kemem.text.query import Query

_READERS = 4

T = TypeVar("T")


class SqlStore:
    """Plain functions over a connection; threads read, the database decides how to write."""

    def __init__(self, database: Database, cache_bytes: int) -> None:
        self._database = database
        self._database.open()
        self._columns = Columns(database, cache_bytes)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="kemem-reader")
        self._closed = False

    async def apply(self, batch: Batch) -> Applied:
        # Vectors can be made again from their rows, and a job taken back asks for them.
        truth = replace(batch, vectors=(), used=(), done=(), only_if=None) != Batch()
        try:
            return await self._write(
                lambda connection: apply(connection, self._database, batch), truth
            )
        except Refused as refusal:
            return Applied(refused=refusal.reason)

    async def scan(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Message]:
        return await self._read(
            lambda connection: scan.scan(connection, where, after, limit, newest_first)
        )

    async def notes(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Note]:
        rows = await self._read(
            lambda connection: notes.scan_notes(connection, where, after, limit, newest_first)
        )
        return [stored.row for stored in rows]

    async def owner(self, note_id: str) -> Scope | None:
        return await self._read(lambda connection: notes.owner(connection, note_id))

    async def history(
        self,
        scope: Scope,
        *,
        note_id: str | None = None,
        event: str | None = None,
        limit: int = 100,
    ) -> list[Change]:
        return await self._read(
            lambda connection: records.history(connection, scope, note_id, event, limit)
        )

    async def checkpoints(self, scope: Scope, *, limit: int = 1) -> list[Checkpoint]:
        return await self._read(lambda connection: records.checkpoints(connection, scope, limit))

    async def directory(
        self,
        level: Literal["agent", "user", "session"],
        scope: Scope | None,
        *,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        return await self._read(
            lambda connection: records.directory(connection, level, scope, after, limit)
        )

    async def around(
        self, where: Where, names: Sequence[str], *, hops: int = 1, limit: int = 100
    ) -> list[Relation]:
        return await self._read(
            lambda connection: graph.around(connection, where, names, hops, limit)
        )

    async def generation(self, where: Where) -> str:
        return await self._read(lambda connection: notes.generation(connection, where))

    async def scopes(self) -> list[Scope]:
        return await self._read(spaces.every_scope)

    async def search(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Found:
        return await self._read(
            lambda connection: search.search(
                connection, self._database, self._columns, where, query, limit, after
            )
        )

    async def nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        return await self._read(
            lambda connection: search.nearest(
                connection, self._columns, where, vector, model, limit
            )
        )

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        return await self._write(lambda connection: outbox.claim(connection, now, lease))

    async def jobs(self, limit: int = 100) -> list[Job]:
        return await self._read(lambda connection: outbox.list_jobs(connection, limit))

    async def note(self, lines: Sequence[Line]) -> None:
        await self._write(
            lambda connection: journal.note(connection, self._database, lines), durable=False
        )

    async def lines(
        self,
        kind: str,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        return await self._read(
            lambda connection: journal.read(connection, kind, since, until, user_id, limit)
        )

    async def trim(
        self, kind: str, *, before: Micros | None = None, keep: int | None = None
    ) -> int:
        return await self._write(
            lambda connection: journal.trim(connection, kind, before, keep), durable=False
        )

    async def secret(self) -> bytes:
        # Not kept: another process may restore a backup, which ends the cursors of before.
        text = await self._read(lambda connection: read_meta(connection, "secret"))
        return bytes.fromhex(text or "")

    async def embedded_by(self, model: Model) -> Model | None:
        return await self._write(lambda connection: vectors.record_model(connection, model))

    async def rebuild_words(self) -> None:
        await self._write(lambda connection: rebuild_words(connection, self._database))

    async def export(self, take: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._check_open()
        try:
            await asyncio.to_thread(archive.export, self._database, take)
        except DBAPIError as error:
            raise self._database.explain(error) from None

    async def replace(self, rows: Iterable[tuple[str, Mapping[str, Any]]], label: str) -> None:
        await self._write(
            lambda connection: archive.replace(connection, self._database, rows, label), alone=True
        )

    async def label(self) -> str:
        return await self._read(lambda connection: read_meta(connection, "label")) or "current"

    async def health(self) -> Health:
        return await self._read(self._health)

    def _health(self, connection: Connection) -> Health:
        def count(*conditions: object, of: object) -> int:
            statement = select(func.count()).select_from(of).where(*conditions)  # type: ignore[arg-type]
            return int(connection.execute(statement).scalar_one())

        error = select(job.c.error).where(job.c.error.is_not(None)).order_by(job.c.job_id).limit(1)
        return Health(
            backend=self._database.name,
            schema_version=int(read_meta(connection, "schema_version") or 0),
            messages=count(of=message),
            notes=count(of=note),
            vectors=count(of=row_vector),
            pending_jobs=count(job.c.state == "pending", of=job),
            failed_jobs=count(job.c.state == "failed", of=job),
            oldest_error=connection.execute(error).scalar(),
        )

    async def census(self, largest: int) -> Census:
        return await self._read(lambda connection: take_census(connection, largest))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._readers.shutdown)
            await asyncio.to_thread(self._database.close)

    async def _read(self, work: Callable[[Connection], T]) -> T:
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, self._with_connection, work)
        except DBAPIError as error:
            raise self._database.explain(error) from None

    def _with_connection(self, work: Callable[[Connection], T]) -> T:
        with self._database.reading() as connection:
            return work(connection)

    async def _write(
        self, work: Callable[[Connection], T], durable: bool = True, alone: bool = False
    ) -> T:
        self._check_open()
        # Shielded: a caller that goes away must not leave a batch in doubt.
        future = asyncio.wrap_future(self._database.write(work, durable, alone))
        try:
            return await asyncio.shield(future)
        except DBAPIError as error:
            raise self._database.explain(error) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("this store is closed")
