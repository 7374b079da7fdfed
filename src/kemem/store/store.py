"""SqlStore: the store of KeMem on SQLite or PostgreSQL, one implementation for both."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kemem.errors import Unavailable
from kemem.ports.request import SearchRequest, SearchResponse, StoreInfo
from kemem.records import (
    Census,
    Change,
    Checkpoint,
    Entry,
    Level,
    Line,
    Micros,
    Position,
    Row,
    Scope,
    Where,
)
from kemem.records.batch import Applied, Batch, Job, JobKind
from kemem.store import archive, directory, read, records, search, spaces
from kemem.store.apply import apply
from kemem.store.database import Database
from kemem.store.index import SpaceCache
from kemem.store.migrate import read_meta
from kemem.store.spaces import Refused
from kemem.store.vectors import parse_model

_READERS = 4

P = ParamSpec("P")
T = TypeVar("T")


class SqlStore:
    """Plain functions over a connection; threads read, the database decides how to write."""

    def __init__(self, database: Database, cache_bytes: int) -> None:
        self._database = database
        self._database.open()
        self._cache = SpaceCache(database, cache_bytes)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="kemem-reader")
        self._closed = False

    async def apply(self, batch: Batch) -> Applied:
        # Vectors can be made again from their rows, and a job taken back asks for them.
        truth = replace(batch, vectors=(), used=(), done=(), only_if=None, journal=(), trim=())
        durable = truth != Batch()
        try:
            return await self._write(lambda it: apply(it, self._database, batch), durable)
        except Refused as refusal:
            return Applied(refused=refusal.reason)

    async def read(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Row]:
        return await self._read(read.read, where, after, limit, newest_first)

    async def search(self, request: SearchRequest) -> SearchResponse:
        return await self._read(search.search, self._database, self._cache, request)

    async def history(
        self,
        scope: Scope,
        *,
        note_id: str | None = None,
        event: str | None = None,
        limit: int = 100,
    ) -> list[Change]:
        return await self._read(records.history, scope, note_id, event, limit)

    async def checkpoints(self, scope: Scope, *, limit: int = 1) -> list[Checkpoint]:
        return await self._read(records.checkpoints, scope, limit)

    async def directory(
        self,
        level: Level,
        scope: Scope | None = None,
        *,
        note_id: str | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        return await self._read(directory.directory, level, scope, note_id, after, limit)

    async def generation(self, where: Where) -> str:
        return await self._read(spaces.generation, where)

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        return await self._write(lambda it: records.claim(it, now, lease))

    async def jobs(
        self,
        limit: int = 100,
        *,
        ids: Sequence[str] | None = None,
        kinds: Sequence[JobKind] | None = None,
    ) -> list[Job]:
        return await self._read(records.list_jobs, limit, ids, kinds)

    async def journal(
        self,
        kind: str,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        return await self._read(records.lines, kind, since, until, user_id, limit)

    async def info(self, *, health: bool = False) -> StoreInfo:
        return await self._read(self._info, health)

    def _info(self, connection: Connection, health: bool) -> StoreInfo:
        # Not kept: another process may restore a backup, which ends the cursors of before.
        values = read_meta(connection)
        backend, version = self._database.name, int(values.get("schema_version", 0))
        return StoreInfo(
            backend,
            version,
            bytes.fromhex(values.get("secret", "")),
            values.get("label", "current"),
            parse_model(values.get("embedder")),
            directory.take_health(connection, backend, version) if health else None,
        )

    async def census(self, largest: int) -> Census:
        return await self._read(directory.take_census, largest)

    async def export(self, take: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._check_open()
        try:
            await asyncio.to_thread(archive.export, self._database, take)
        except DBAPIError as error:
            raise self._database.to_error(error) from None

    async def replace(self, rows: Iterable[tuple[str, Mapping[str, Any]]], label: str) -> None:
        await self._write(lambda it: archive.replace(it, self._database, rows, label), alone=True)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._readers.shutdown)
            await asyncio.to_thread(self._database.close)

    async def _read(
        self, work: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs
    ) -> T:
        self._check_open()

        def with_connection() -> T:
            with self._database.reading() as connection:
                return work(connection, *given, **named)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, with_connection)
        except DBAPIError as error:
            raise self._database.to_error(error) from None

    async def _write(
        self, work: Callable[[Connection], T], durable: bool = True, alone: bool = False
    ) -> T:
        self._check_open()
        # Shielded: a caller that goes away must not leave a batch in doubt.
        future = asyncio.wrap_future(self._database.write(work, durable, alone))
        try:
            return await asyncio.shield(future)
        except DBAPIError as error:
            raise self._database.to_error(error) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("this store is closed")
