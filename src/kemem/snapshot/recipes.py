"""Backup and restore, step by step: the store and the workspaces change together or not at all."""

import asyncio
import fcntl
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, BinaryIO

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps
from kemem.settings import Settings
from kemem.snapshot.draft import Draft
from kemem.snapshot.records import Backup, Header, Piece, Row, Workspace, read, refuse
from kemem.text.ids import new_id
from kemem.workspace.folders import Workspaces

_OURS = re.compile(r"current|r_[0-9A-Z]{26}")  # labels: no other folder is ever removed
OLDEST_ROWS = 4  # schema version of the oldest rows that can still be restored
_LOCK = ".lock"
_TURN = 0.02  # seconds between two looks at whether it is our turn


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of backups and of workspaces."""

    backups: Path
    workspaces: Path

    @classmethod
    def choose(cls, settings: Settings) -> "Places":
        """Those that settings name; else folders beside the data."""
        backups = settings.backup_dir or settings.data_dir / "backups"
        return cls(backups, settings.workspace_dir or settings.data_dir / "workspaces")


async def backup(deps: Deps, places: Places, path: str | Path | None = None) -> Backup:
    """Write everything to a new file; what is written meanwhile is in it wholly or not at all.

    A relative path is one in the directory of backups.
    """
    archive = deps.archive
    target = places.backups / (Path() if path is None else Path(path).expanduser())
    async with _turn(places.workspaces, fcntl.LOCK_SH):
        info = await deps.store.info()
        workspaces = Workspaces(places.workspaces / info.label)
        with _disk("the backup could not be written"):
            is_folder = path is None or target.is_dir()
            draft = Draft(target.absolute(), is_folder=is_folder, now=deps.clock())
            try:
                await asyncio.to_thread(draft.begin, info.schema_version, workspaces)
                await archive.export(draft.add_row)
                return await asyncio.to_thread(draft.finish)
            finally:
                draft.discard()


async def restore(deps: Deps, places: Places, path: str | Path) -> Backup:
    """Put what a backup holds in the place of everything; a file with any fault changes nothing.

    A relative path is one in the directory of backups.
    """
    archive = deps.archive
    place = (places.backups / Path(path).expanduser()).absolute()
    with _opened(place) as file:
        async with _turn(places.workspaces, fcntl.LOCK_EX):
            info = await deps.store.info()
            found = await asyncio.to_thread(_verify, file, place, info.schema_version)
            await asyncio.to_thread(_sweep, places.workspaces, info.label)
            label = new_id("r", deps.clock())
            try:
                # Rows and label change in one transaction: until then the old workspaces are in
                # force, from then on those that are complete by now.
                await asyncio.to_thread(_stage, file, Workspaces(places.workspaces / label))
                await archive.replace(_rows(file), label)
            except Exception:
                kept = (await deps.store.info()).label
                await asyncio.to_thread(_sweep, places.workspaces, kept)
                raise
            await asyncio.to_thread(_sweep, places.workspaces, label)
    return found


def _verify(file: BinaryIO, path: Path, schema_version: int) -> Backup:
    """Read all of a file before anything is changed."""
    header, counts, last = None, Counter[str](), None
    for record in read(file):
        match record:
            case Header():
                header = _check_version(record, schema_version)
            case Row(table=table):
                counts[f"row of {table}"] += 1
                counts["rows"] += 1
            case _ if counts["rows"]:
                refuse("it has workspaces after its rows")
            case Piece():
                counts["files"] += record.file != last
                last = record.file
    if header is None:
        refuse("it does not begin as one")
    rows = (counts["row of message"], counts["row of note"])
    return Backup(path, header.created, *rows, counts["files"], file.tell())


def _check_version(header: Header, known: int) -> Header:
    if not OLDEST_ROWS <= header.schema_version <= known:
        refuse(
            f"its rows have schema version {header.schema_version}, "
            f"this KeMem knows {OLDEST_ROWS} to {known}"
        )
    return header


def _stage(file: BinaryIO, workspaces: Workspaces) -> None:
    """Write the workspaces of a backup to a folder of their own."""
    records = takewhile(lambda record: not isinstance(record, Row), read(file))
    for about, group in groupby(records, lambda it: it.file if isinstance(it, Piece) else it):
        if isinstance(about, Workspace):
            workspaces.init(about.task_id)
        elif isinstance(about, tuple):
            workspaces.put(*about, (piece.data for piece in group if isinstance(piece, Piece)))


def _rows(file: BinaryIO) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((it.table, it.values) for it in read(file) if isinstance(it, Row))


def _sweep(folder: Path, label: str) -> None:
    """Remove what other restores have left behind: all workspaces but those in force."""
    for child in folder.iterdir():
        if _OURS.fullmatch(child.name) and child.name != label:
            shutil.rmtree(child, ignore_errors=True)  # what stays goes next time


@asynccontextmanager
async def _turn(folder: Path, kind: int) -> AsyncIterator[None]:
    """One restore at a time and no backup beside it, in any process; a killed one leaves none."""
    with _disk("the workspaces cannot be reached"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(lock, kind):
            await asyncio.sleep(_TURN)
        yield
    finally:
        os.close(lock)


def _locked(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file and nothing else that may be in its place; a FIFO does not block."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"there is no backup {str(path)!r:.200}") from None
    except (OSError, ValueError) as error:  # a link; NUL
        reason = getattr(error, "strerror", None) or "it is no path"
        raise InvalidArgument(f"{str(path)!r:.200} cannot be opened: {reason}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InvalidArgument(f"{str(path)!r:.200} is not a regular file")
    with os.fdopen(handle, "rb") as file, _disk("the backup could not be read"):
        yield file


@contextmanager
def _disk(what: str) -> Iterator[None]:
    """What the file system refuses is Unavailable."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{what}: {error.strerror}") from error
