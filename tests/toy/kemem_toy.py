"""A toy store from outside the package: an append-only file of batches, replayed when it opens."""

import os
import pickle
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from kemem.ports.request import SearchRequest, SearchResponse, StoreInfo
from kemem.records import Change, Checkpoint, Entry, Level, Line, Micros, Row, Scope, Where
from kemem.records.batch import Applied, Batch, Job
from kemem.settings import Settings
from kemem_conformance import RamStore


class ToyStore:
    """Answers from memory; every write is appended to the file and flushed before it returns."""

    def __init__(self, path: Path) -> None:
        self._ram = RamStore()
        self._path = path
        self._file = path.open("ab")

    @classmethod
    async def open(cls, path: Path) -> "ToyStore":
        """The store as it was left."""
        store = cls(path)
        with path.open("rb") as file:
            while file.peek(1):
                method, arguments = pickle.load(file)
                await getattr(store._ram, method)(*arguments)
        return store

    async def apply(self, batch: Batch) -> Applied:
        applied = await self._ram.apply(batch)
        self._append("apply", batch)
        return applied

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        job = await self._ram.claim(now, lease)
        self._append("claim", now, lease)
        return job

    async def read(self, where: Where, **options: Any) -> list[Row]:
        return await self._ram.read(where, **options)

    async def search(self, request: SearchRequest) -> SearchResponse:
        return await self._ram.search(request)

    async def history(self, scope: Scope, **options: Any) -> list[Change]:
        return await self._ram.history(scope, **options)

    async def checkpoints(self, scope: Scope, *, limit: int = 1) -> list[Checkpoint]:
        return await self._ram.checkpoints(scope, limit=limit)

    async def directory(
        self, level: Level, scope: Scope | None = None, **options: Any
    ) -> list[Entry]:
        return await self._ram.directory(level, scope, **options)

    async def generation(self, where: Where) -> str:
        return await self._ram.generation(where)

    async def jobs(self, limit: int | None = 100, **options: Any) -> list[Job]:
        return await self._ram.jobs(limit, **options)

    async def journal(self, kind: str, **options: Any) -> list[Line]:
        return await self._ram.journal(kind, **options)

    async def info(self, *, health: bool = False) -> StoreInfo:
        return await self._ram.info(health=health)

    async def close(self) -> None:
        self._file.close()
        await self._ram.close()

    def _append(self, method: str, *arguments: object) -> None:
        pickle.dump((method, arguments), self._file)
        self._file.flush()
        os.fsync(self._file.fileno())


def open_store(settings: Settings) -> ToyStore:
    """What the entry point calls: toy:///path/to/file."""
    url = make_url(settings.database_url or "")
    return ToyStore(Path(f"/{url.database}"))
