"""A backup that is being written, under a name that is no backup's."""

import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from kemem.errors import Conflict, Unavailable
from kemem.records import Micros
from kemem.snapshot.records import Backup, Header, Piece, Row, Workspace, Writer
from kemem.workspace.folders import StoredFile, Workspaces


class Draft:
    """A file beside the place of the backup; it takes that place when it is complete."""

    def __init__(self, target: Path, *, is_folder: bool, now: Micros) -> None:
        self._now = now
        self._folder = target if is_folder else target.parent
        self._name = None if is_folder else target.name
        if not is_folder and os.path.lexists(target):
            raise _exists(target)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, path = tempfile.mkstemp(".part", ".memory_backup_", self._folder)  # mode 0600
        self._path = Path(path)
        self._file = os.fdopen(handle, "wb")
        self._writer = Writer(self._file)
        self._counts: Counter[str] = Counter()

    def begin(self, schema_version: int, workspaces: Workspaces) -> None:
        """The header and the workspaces."""
        self._writer.write(Header(schema_version, self._now))
        for task_id in workspaces.tasks():
            self._writer.write(Workspace(task_id))
        for file in workspaces.files():
            self._add_file(file)

    def _add_file(self, file: StoredFile) -> None:
        about = (file.task_id, file.path, file.mode)
        pieces = 0
        try:
            for chunk in file.chunks():
                self._writer.write(Piece(*about, chunk))
                pieces += 1
        except Unavailable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return  # whoever works there has removed it meanwhile
            raise
        if not pieces:
            self._writer.write(Piece(*about, b""))
        self._counts["file"] += 1

    def add_row(self, table: str, values: Mapping[str, Any]) -> None:
        """One row of the store."""
        self._writer.write(Row(table, values))
        self._counts[table] += 1

    def finish(self) -> Backup:
        """The backup, on disk under a name that no other has."""
        self._writer.end()
        self._file.flush()
        os.fsync(self._file.fileno())
        size, path = self._file.tell(), self._claim_name()
        self._path.replace(path)
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        counts = self._counts
        return Backup(path, self._now, counts["message"], counts["note"], counts["file"], size)

    def _claim_name(self) -> Path:
        if self._name is not None:
            path = self._folder / self._name
            if not _claim(path):
                raise _exists(path)
            return path
        at = datetime.fromtimestamp(self._now // 1_000_000, UTC)
        names = (f"-{number}" if number > 1 else "" for number in count(1))
        paths = (self._folder / f"memory_backup_{at:%Y%m%d_%H%M%S}{name}.json" for name in names)
        return next(path for path in paths if _claim(path))

    def discard(self) -> None:
        """Leave nothing behind that was not finished."""
        with suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


def _claim(path: Path) -> bool:
    """Whether this name is ours from now on."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def _exists(path: Path) -> Conflict:
    return Conflict(f"{str(path)!r} exists already; give a name that is free", field="path")
