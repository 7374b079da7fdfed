"""Imports of a memory: in one go, or as durable jobs with progress in the journal."""

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kemem.errors import KeMemError, NotFound, Unavailable
from kemem.hooks import Hooks
from kemem.imports.files import files_of
from kemem.imports.formats import read_files
from kemem.imports.recipe import PORTION, Import, Imported, Target, checker, portions
from kemem.ports import Deps
from kemem.records import Line, Scope
from kemem.records.batch import Batch, Job, Trim
from kemem.records.serialization import Record, Timestamp
from kemem.settings import Settings
from kemem.text.ids import new_id

KIND = "import"  # of the journal's lines
_KEPT = 200  # lines of past imports
_STEP = 10.0  # seconds that one step of a job may take, so that other jobs are not kept waiting
_TELL = 0.5  # seconds after which a step writes down how far it is
_LONGEST_NAME = 60  # characters of an upload's name that are kept; file systems count bytes
_IDLE = 3600.0  # seconds after which an upload without a job is not on its way any more
_INFERRED = 20  # messages in one write where facts are drawn: a model may take long


@dataclass(frozen=True, slots=True)
class ImportState(Record):
    """An import: its progress, and what it stored."""

    id: str
    name: str  # of the file
    state: Literal["running", "done", "failed"]
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    user_id: str | None  # whom it belongs to, where one was named
    size: int  # bytes, unpacked
    read: int = 0  # bytes of them
    error: str | None = None
    stored: Imported = field(default_factory=Imported)

    def to_line(self) -> Line:
        """The line of the journal that keeps it."""
        body = {k: v for k, v in self.to_dict().items() if k not in ("id", "created_at")}
        return Line(KIND, self.id, self.created, body, self.user_id or "")

    @classmethod
    def of(cls, line: Line) -> "ImportState":
        """The state that a line of the journal keeps."""
        body: dict[str, Any] = dict(line.body)
        stored: dict[str, Any] = dict(body.pop("stored"))
        listed = {name: tuple(stored[name]) for name in ("problems", "left_out")}
        return cls(id=line.id, created=line.ts, stored=Imported(**stored | listed), **body)


class AsyncImports:
    """Takes in files of other systems."""

    def __init__(
        self, settings: Settings, hooks: Hooks, deps: Callable[[], Awaitable[Deps]]
    ) -> None:
        self._settings, self._hooks, self._deps = settings, hooks, deps

    async def begin(self, target: Target, folder: str) -> Import:
        """An import whose portions the caller reads; `folder` is what documents belong to."""
        return Import(target, folder, self._settings, self._hooks, await self._deps())

    def upload_path(self, job_id: str, name: str) -> Path:
        """Where an upload is kept until it is imported."""
        last = re.split(r"[/\\]", name)[-1][-_LONGEST_NAME:].strip(". ")
        plain = "".join(it if it.isprintable() else "_" for it in last)
        return self._settings.data_dir / "imports" / job_id / (plain or "upload")

    async def upload(self, name: str, chunks: AsyncIterator[bytes], target: Target) -> ImportState:
        """Keep a file that comes in chunks, and import it by a job."""
        job_id = new_id("j", (await self._deps()).clock())
        path = self.upload_path(job_id, name)
        try:
            await asyncio.to_thread(path.parent.mkdir, parents=True, mode=0o700)
            with path.open("wb") as file:
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
            return await self._enqueue(job_id, path, target)
        except BaseException as error:  # whoever sends may go at any time
            await self.discard(path)
            if isinstance(error, OSError):
                reason = f"the upload could not be kept: {error.strerror}"
                raise Unavailable(reason) from None
            if isinstance(error, KeMemError):
                raise type(error)(_shown(error, path), **error.details) from None
            raise

    async def _enqueue(self, job_id: str, path: Path, target: Target) -> ImportState:
        """Promise a job that imports a file, and deletes it afterwards."""
        deps = await self._deps()
        now = deps.clock()
        files = await asyncio.to_thread(files_of, path)
        size = sum(file.size for file in files)
        state = ImportState(job_id, path.name, "running", now, target.user_id, size)
        options = {name: getattr(target, name) for name in Target.__dataclass_fields__}
        details = {"target": options, "name": path.name, "portions": 0, "state": _plain(state)}
        scope = Scope(target.agent_id, target.user_id)
        job = Job(job_id, "import", scope, now, details=details)
        trim = Trim(KIND, keep=_KEPT)
        await deps.store.apply(Batch(jobs=(job,), journal=(state.to_line(),), trim=(trim,)))
        return state

    async def states(self, user_id: str | None = None) -> list[ImportState]:
        """Imports that were asked for, of all or of one user, newest first."""
        store = (await self._deps()).store
        lines = await store.journal(KIND, user_id=user_id, limit=_KEPT)
        return [ImportState.of(line) for line in lines]

    async def state(self, job_id: str, user_id: str | None = None) -> ImportState:
        """One of them."""
        for state in await self.states(user_id):
            if state.id == job_id:
                return state
        raise NotFound(f"no import {job_id!r:.80}", id=job_id)

    async def discard(self, path: Path) -> None:
        """Delete an upload."""
        await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)

    async def sweep(self) -> None:
        """Delete uploads whose jobs are gone, as those of a user who was erased."""
        folder = self._settings.data_dir / "imports"
        if idle := await asyncio.to_thread(_idle, folder):
            jobs = await (await self._deps()).store.jobs(limit=None)
            for name in idle - {job.job_id for job in jobs}:
                await self.discard(folder / name / "upload")

    async def run_job(self, job: Job) -> None:
        """Take one step of an import that was uploaded; the job says where the next one begins."""
        deps, details = await self._deps(), job.details
        path = self.upload_path(job.job_id, details["name"])
        if not await asyncio.to_thread(path.exists):
            raise Unavailable(f"the upload {path.name!r:.80} is not on this machine")
        state, count = await self._step(path, job)
        line = state.to_line()
        if state.state != "running":
            await deps.store.apply(Batch(done=(job.job_id,), journal=(line,)))
            await self.discard(path)
            return
        details = {**details, "portions": count, "state": _plain(state)}
        rest = replace(job, due=deps.clock(), attempts=0, error=None, details=details)
        await deps.store.apply(Batch(jobs=(rest,), journal=(line,), only_if=(job,)))

    async def _step(self, path: Path, job: Job) -> tuple[ImportState, int]:
        """Store the portions after those stored before, for a while; the state, and their count."""
        target, state = Target(**job.details["target"]), _state(job.details["state"])
        deps, before, read, count = await self._deps(), job.details["portions"], 0, 0

        def advance(size: int) -> None:
            nonlocal read
            read += size

        folder, until = f"upload-{path.name}", time.monotonic() + _STEP
        tell = time.monotonic() + _TELL
        running = await self.begin(target, folder)
        running.done = state.stored
        try:
            files = await asyncio.to_thread(files_of, path)
            size = _INFERRED if target.infer else PORTION
            check = checker(target, deps.clock(), self._settings.content_policy)
            work = portions(read_files(files, folder, advance, check), target, size)
            while (portion := await asyncio.to_thread(next, work, None)) is not None:
                count += 1
                if count <= before:
                    running.skip(portion)
                    continue
                await running.store(portion)
                so_far = replace(state, read=read, stored=running.done)
                if time.monotonic() >= until:
                    return so_far, count
                if time.monotonic() >= tell:
                    await deps.store.apply(Batch(journal=(so_far.to_line(),), only_if=(job,)))
                    tell = time.monotonic() + _TELL
            await running.finish()
        except Unavailable:  # the job is tried again
            raise
        except KeMemError as error:
            reason = _shown(error, path)
            return replace(state, state="failed", error=reason, stored=running.done), count
        return replace(state, state="done", read=state.size, stored=running.done), count


def _idle(folder: Path) -> set[str]:
    """The names of uploads that nobody has written to for a while."""
    idle, last = set[str](), time.time() - _IDLE
    for path in folder.glob("*/*"):
        with suppress(OSError):  # its import has ended meanwhile
            if path.stat().st_mtime < last:
                idle.add(path.parent.name)
    return idle


def _shown(error: KeMemError, path: Path) -> str:
    """What was wrong, with the name that the upload came with."""
    return error.message.replace(f"{path.parent}/", "")


def _plain(state: ImportState) -> dict[str, Any]:
    """A state as the details of a job keep it."""
    return {"id": state.id, "created": state.created, "body": state.to_line().body}


def _state(kept: Mapping[str, Any]) -> ImportState:
    return ImportState.of(Line(KIND, kept["id"], kept["created"], kept["body"]))
