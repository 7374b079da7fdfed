"""Backup and restore: a whole memory in one file, and back.

The file has a JSON object a line: a header, the workspaces, their files in pieces, the rows of the
store, and at the end the number of lines and a checksum of all bytes before. The store and the
workspaces change together or not at all.
"""

import asyncio
import base64
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, count, groupby, islice, takewhile
from pathlib import Path
from reprlib import repr as shown
from typing import Any, BinaryIO, NoReturn

from kemem.errors import Conflict, InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps
from kemem.records import Micros
from kemem.records.serialization import Record, Timestamp
from kemem.records.times import to_micros, to_rfc3339
from kemem.settings import Settings
from kemem.text.ids import new_id
from kemem.workspace import Workspaces, check_path, disk, folder_name, sync_folder

VERSION = 1
MAX_LINE = 64 << 20  # bytes
OLDEST_ROWS = 4  # schema version of the oldest rows that can still be restored
_END = b'{"end":'
_OURS = re.compile(r"current|r_[0-9A-Z]{26}")  # labels: no other folder is ever removed
_LOCK = ".lock"
_PAUSE = 0.02  # seconds between two attempts to get the lock


@dataclass(frozen=True, slots=True)
class Backup(Record):
    """A file that holds a whole memory."""

    path: Path  # absolute
    created: Timestamp
    messages: int
    notes: int
    files: int  # of workspaces
    size: int  # bytes


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


def to_path(path: str | Path) -> Path:
    """The path of a backup as callers write it."""
    try:
        os.fsencode(path)
        return Path(path).expanduser()
    except (TypeError, ValueError, RuntimeError):  # no path, no encoding, no such home
        raise InvalidArgument(f"path must be a path, not {shown(path)}", field="path") from None


async def backup(deps: Deps, places: Places, path: str | Path | None = None) -> Backup:
    """Write everything to a new file; what is written meanwhile is in it wholly or not at all.

    A relative path is one in the directory of backups.
    """
    archive = deps.archive
    target = places.backups / (Path() if path is None else to_path(path))
    async with _lock(places.workspaces, fcntl.LOCK_SH):
        info = await deps.store.info()
        workspaces = Workspaces(places.workspaces / info.label)
        with disk("the backup could not be written"):
            is_folder = path is None or target.is_dir()
            draft = _Draft(target.absolute(), is_folder=is_folder, now=deps.clock())
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
    place = (places.backups / to_path(path)).absolute()
    with _opened(place) as file:
        async with _lock(places.workspaces, fcntl.LOCK_EX):
            info = await deps.store.info()
            verified = await asyncio.to_thread(_verify, file, place, info.schema_version)
            await asyncio.to_thread(_sweep, places.workspaces, info.label)
            label = new_id("r", deps.clock())
            rows = ((it["table"], it["row"]) for it in _entries(file) if "table" in it)
            try:
                # Rows and label change in one transaction: until then the old workspaces are in
                # force, from then on those that are complete by now.
                await asyncio.to_thread(_stage, file, Workspaces(places.workspaces / label))
                await archive.replace(rows, label)
            except Exception:
                in_force = (await deps.store.info()).label
                await asyncio.to_thread(_sweep, places.workspaces, in_force)
                raise
            await asyncio.to_thread(_sweep, places.workspaces, label)
    return verified


class _Draft:
    """A backup that is being written, under a name that is no backup's, beside its place.

    It takes that place when it is complete.
    """

    def __init__(self, target: Path, *, is_folder: bool, now: Micros) -> None:
        self._now, self._target, self._is_folder = now, target, is_folder
        self._folder = target if is_folder else target.parent
        if not is_folder and os.path.lexists(target):
            raise self._conflict()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, path = tempfile.mkstemp(".part", ".memory_backup_", self._folder)  # mode 0600
        self._path, self._file = Path(path), os.fdopen(handle, "wb")
        self._digest, self._lines = sha256(), 0
        self._counts: Counter[str] = Counter()

    def begin(self, schema_version: int, workspaces: Workspaces) -> None:
        """The header and the workspaces."""
        about = {"format": "kemem-backup", "version": VERSION, "schema_version": schema_version}
        self._write({**about, "created": to_rfc3339(self._now)})
        for task_id in workspaces.tasks():
            self._write({"workspace": task_id})
        for file in workspaces.files():
            about = {"task_id": file.task_id, "path": file.path, "mode": file.mode}
            data = map(base64.b64encode, file.chunks())
            try:
                for piece in chain([next(data, b"")], data):
                    self._write({"file": about, "data": piece.decode()})
                self._counts["file"] += 1
            except Unavailable as error:  # whoever works there may have removed it meanwhile
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise

    def add_row(self, table: str, values: Mapping[str, Any]) -> None:
        """One row of the store."""
        self._write({"table": table, "row": dict(values)})
        self._counts[table] += 1

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = _line(entry)
        self._digest.update(line)
        self._lines += 1
        self._file.write(line)

    def finish(self) -> Backup:
        """The backup, on disk under a name that no other has."""
        self._file.write(_last_line(self._lines, self._digest.hexdigest()))
        self._file.flush()
        os.fsync(self._file.fileno())
        size, path = self._file.tell(), self._claim_name()
        self._path.replace(path)
        sync_folder(self._folder)
        counts = self._counts
        return Backup(path, self._now, counts["message"], counts["note"], counts["file"], size)

    def _claim_name(self) -> Path:
        """A path that is ours from now on."""
        at = datetime.fromtimestamp(self._now // 1_000_000, UTC)
        suffixes = (f"-{number}" if number > 1 else "" for number in count(1))
        names = (f"memory_backup_{at:%Y%m%d_%H%M%S}{suffix}.json" for suffix in suffixes)
        for path in (self._folder / name for name in names) if self._is_folder else [self._target]:
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
                return path
        raise self._conflict()

    def _conflict(self) -> Conflict:
        return Conflict(
            f"{str(self._target)!r} exists already; give a name that is free", field="path"
        )

    def discard(self) -> None:
        """Leave nothing behind that was not finished."""
        with suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


def _verify(file: BinaryIO, path: Path, schema_version: int) -> Backup:
    """Read all of a file before anything is changed."""
    header, counts, last = next(_entries(file)), Counter[str](), None
    rows_version = header["schema_version"]
    if not OLDEST_ROWS <= rows_version <= schema_version:
        known = f"this KeMem knows {OLDEST_ROWS} to {schema_version}"
        _refuse(f"its rows have schema version {rows_version}, {known}")
    for entry in islice(_entries(file), 1, None):
        if "table" in entry:
            counts[f"row of {entry['table']}"] += 1
            counts["rows"] += 1
        elif counts["rows"]:
            _refuse("it has workspaces after its rows")
        elif "file" in entry:
            counts["files"] += entry["file"] != last
            last = entry["file"]
    rows = (counts["row of message"], counts["row of note"])
    return Backup(path, header["created"], *rows, counts["files"], file.tell())


def _stage(file: BinaryIO, workspaces: Workspaces) -> None:
    """Write the workspaces of a backup to a folder of their own."""
    entries = takewhile(lambda entry: "table" not in entry, islice(_entries(file), 1, None))
    for about, group in groupby(entries, lambda entry: entry.get("file", entry)):
        if "workspace" in about:
            workspaces.init(about["workspace"])
        else:
            chunks = (entry["data"] for entry in group)
            workspaces.put(about["task_id"], about["path"], about["mode"], chunks)


def _entries(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """The checked lines of a file, but the last; the end is reached only if no bit has changed."""
    file.seek(0)
    digest = sha256()
    for number in count():
        line = file.readline(MAX_LINE)
        if number and line.startswith(_END):
            break
        if not line.endswith(b"\n"):
            _refuse("its end is missing")
        try:
            entry = json.loads(line.decode("utf-8", "surrogatepass"), parse_constant=_no_number)
        except (ValueError, RecursionError):
            _refuse(f"line {number + 1} is not JSON")
        yield _checked(entry) if number else _checked_header(entry)
        digest.update(line)
    if line != _last_line(number, digest.hexdigest()) or file.read(1):
        _refuse("its checksum is another one")


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _checked_header(entry: Any) -> dict[str, Any]:
    match entry:
        case {"format": "kemem-backup", "version": int(version)} if version > VERSION:
            _refuse(
                f"its format is version {version}, this KeMem knows {VERSION}; install a newer one"
            )
        case {
            "format": "kemem-backup",
            "version": int(),
            "schema_version": int(),
            "created": str(),
        }:
            created = to_micros(entry["created"], "created")
            return {"schema_version": entry["schema_version"], "created": created}
    _refuse("it does not begin as one")


def _checked(entry: Any) -> dict[str, Any]:
    """A workspace, a piece of a file, or a row, of which the store alone knows what it can hold."""
    match entry:
        case {"workspace": str(task_id)} if len(entry) == 1:
            folder_name(task_id)
        case {
            "file": {"task_id": str(task_id), "path": str(path), "mode": int()},
            "data": str(data),
        } if len(entry) == 2:
            folder_name(task_id)
            check_path(path)
            try:
                entry["data"] = base64.b64decode(data, validate=True)
            except ValueError:
                _refuse("it has a file whose bytes are none")
        case {"table": str(), "row": dict()} if len(entry) == 2:
            pass
        case _:
            _refuse("it has a line that is none of its own")
    checked: dict[str, Any] = entry
    return checked


def _refuse(reason: str) -> NoReturn:
    """Say that a file is not to be restored; nothing of what is in it is shown."""
    raise InvalidArgument(f"this is no backup that can be restored: {reason}")


def _line(entry: Mapping[str, Any]) -> bytes:
    # A file's name need not be Unicode: such bytes come as half characters, and go so.
    text = json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _last_line(lines: int, digest: str) -> bytes:
    return _line({"end": {"lines": lines, "sha256": digest}})


def _sweep(folder: Path, label: str) -> None:
    """Remove what other restores have left behind: all workspaces but those in force."""
    for child in folder.iterdir():
        if _OURS.fullmatch(child.name) and child.name != label:
            shutil.rmtree(child, ignore_errors=True)  # what stays goes next time


@asynccontextmanager
async def _lock(folder: Path, kind: int) -> AsyncIterator[None]:
    """One restore at a time and no backup beside it, in any process; a killed one leaves none."""
    with disk("the workspaces cannot be reached"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_PAUSE)
        yield
    finally:
        os.close(lock)


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
    with os.fdopen(handle, "rb") as file, disk("the backup could not be read"):
        yield file
