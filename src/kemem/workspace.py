"""Workspaces: the folders in which tasks keep their files, under one root."""

import os
import re
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from reprlib import repr as shown

from kemem.errors import Conflict, InvalidArgument, NotFound, Unavailable

MAX_TASK_ID = 64  # characters
MAX_TASK_ID_BYTES = 200  # a file system takes 255, with the mark
MAX_DEPTH = 64  # folders in each other
MAX_SEARCHED = 64 << 20  # bytes of files that one search reads
_MAX_LINE = 1 << 16  # bytes; what is longer is searched in parts
_SHOWN = 500  # characters of a line that a search answers with
_MAX_NAME = 255  # bytes
_CHUNK = 1 << 16

_PLAIN = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
_MARK = "~"  # stands in no task id
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A regular file of a workspace; what it holds is read when it is asked for."""

    task_id: str
    path: str  # POSIX, relative to its workspace
    mode: int
    size: int
    folder: Path = field(repr=False, compare=False)

    def chunks(self) -> Iterator[bytes]:
        """What is in it, piece by piece; no link on the way is followed."""
        with disk(f"cannot read {self.path!r:.200} of task {self.task_id!r}"):
            with _opened(self.folder, self.path) as (parent, name):
                file = os.open(name, _READ, dir_fd=parent)
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unavailable(f"{self.path!r:.200} is no longer a file")
                while chunk := opened.read(_CHUNK):
                    yield chunk


class Workspaces:
    """Folders of tasks under one root; never a path outside, never two ids in one folder.

    No link is followed, neither in place of a workspace nor inside one. Nothing is created before
    it is needed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def init(self, task_id: str, *, reset: bool = False) -> Path:
        """A fresh, empty workspace; one that exists is kept, unless it is to be reset."""
        path = self._path(task_id)
        with disk(f"cannot create the workspace of task {task_id!r}"):
            if reset:
                _remove(path)
            _create(path.parent)
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                raise Conflict(
                    f"task {task_id!r} has a workspace already: clean it up, or give reset=true "
                    "to delete what is in it",
                    task_id=task_id,
                ) from None
        return path

    def cleanup(self, task_id: str) -> Path:
        """Delete the workspace of a task with all that is in it, and nothing else."""
        path = self._path(task_id)
        with disk(f"cannot delete the workspace of task {task_id!r}"):
            if not _remove(path):
                raise NotFound(f"task {task_id!r} has no workspace", task_id=task_id)
        return path

    def tasks(self) -> list[str]:
        """The tasks that have a workspace, in order."""
        with disk("cannot list the workspaces"):
            try:
                entries = list(os.scandir(self.root))
            except FileNotFoundError:
                return []
            folders = [it.name for it in entries if it.is_dir(follow_symlinks=False)]
        return sorted(task_id for name in folders if (task_id := _task_id(name)) is not None)

    def files(self) -> Iterator[StoredFile]:
        """Every regular file, in order of task and path; links and devices are left out."""
        for task_id in self.tasks():
            path, action = self._path(task_id), f"cannot list the workspace of task {task_id!r}"
            with disk(action), suppress(FileNotFoundError):
                yield from _walk(task_id, path, os.open(path, _FOLDER), ())

    def put(self, task_id: str, path: str, mode: int, chunks: Iterable[bytes]) -> None:
        """Write a file durably, in a workspace that is made where it is missing."""
        folder = self._path(task_id)
        check_path(path)
        with disk(f"cannot write {path!r:.200} of task {task_id!r}"):
            _create(folder)
            with _opened(folder, path, create=True) as (parent, name):
                file = os.open(name, _WRITE, 0o600, dir_fd=parent)
                with os.fdopen(file, "wb") as opened:
                    opened.writelines(chunks)
                    opened.flush()
                    os.fchmod(file, mode & 0o777)
                    os.fsync(file)
                os.fsync(parent)

    def search(self, query: str, *, limit: int) -> list[tuple[str, str, str]]:
        """Text files with a line that has all words of the query: task, path and that line.

        At most `limit` files, and no more than 64 MiB are read.
        """
        words = query.casefold().split()
        if not words:
            raise InvalidArgument("query must not be blank", field="query")
        hits: list[tuple[str, str, str]] = []
        left = MAX_SEARCHED

        def within_bounds(file: StoredFile) -> Iterator[bytes]:
            nonlocal left
            for chunk in file.chunks():
                left -= len(chunk)
                if left < 0:
                    return
                yield chunk

        for file in self.files():
            if len(hits) == limit or left < 0:
                break
            with suppress(Unavailable):  # it has gone, or nobody may read it
                if (line := _line_with(words, within_bounds(file))) is not None:
                    hits.append((file.task_id, file.path, line))
        return hits

    def _path(self, task_id: str) -> Path:
        return self.root / folder_name(task_id)


def _line_with(words: Sequence[str], chunks: Iterable[bytes]) -> str | None:
    """The first line of a text that has all words, which are casefolded; None where none has."""
    for raw in _lines(chunks):
        if b"\0" in raw:
            return None  # no text
        line = raw.decode("utf-8", "replace")
        folded = line.casefold()
        if all(word in folded for word in words):
            start = max(0, folded.find(words[0]) - _SHOWN // 2)
            return line[start : start + _SHOWN].strip()
    return None


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of a stream; one that is too long comes in parts."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        while len(rest) > _MAX_LINE:
            yield rest[:_MAX_LINE]
            rest = rest[_MAX_LINE:]
    if rest:
        yield rest


def folder_name(task_id: object) -> str:
    """What the folder of a task is called: another name for every id on every file system.

    Ids in lower case are their own folder; others, which a file system might take for each other,
    carry a mark of their bytes.  "X" -> "X~6a1e…"
    """
    if (
        not isinstance(task_id, str)
        or not 1 <= len(task_id) <= MAX_TASK_ID
        or not all(it.isalnum() or it in "-_." for it in task_id)
        or task_id != task_id.strip(".")
        or unicodedata.normalize("NFC", task_id) != task_id
        or len(task_id.encode()) > MAX_TASK_ID_BYTES
    ):
        raise InvalidArgument(
            f"task_id must be 1-{MAX_TASK_ID} letters, digits, '-', '_' and '.', with no dot at "
            f"either end, not {shown(task_id)}",
            field="task_id",
        )
    if _PLAIN.fullmatch(task_id):
        return task_id
    return f"{task_id}{_MARK}{blake2b(task_id.encode(), digest_size=6).hexdigest()}"


def _task_id(folder: str) -> str | None:
    """The task of a folder; None where no task has a folder of that name."""
    task_id = unicodedata.normalize("NFC", folder.partition(_MARK)[0])  # as a Mac may spell it
    try:
        return task_id if folder_name(task_id) == unicodedata.normalize("NFC", folder) else None
    except InvalidArgument:
        return None


def check_path(path: object) -> None:
    """Refuse a path that is not plainly one inside a workspace."""
    try:
        names = os.fsencode(path).split(b"/") if isinstance(path, str) else []
    except UnicodeEncodeError:  # half a character
        names = []
    if not 1 <= len(names) <= MAX_DEPTH or not all(
        1 <= len(name) <= _MAX_NAME and name not in (b".", b"..") and b"\0" not in name
        for name in names
    ):
        raise InvalidArgument(
            f"path must lead to a file inside the workspace, not {shown(path)}", field="path"
        )


def _walk(task_id: str, root: Path, folder: int, above: tuple[str, ...]) -> Iterator[StoredFile]:
    """The files of an open folder, which is closed then, and of those inside it."""
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            parts = (*above, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if len(parts) == MAX_DEPTH:
                    raise Unavailable(f"folders of task {task_id!r} are nested over {MAX_DEPTH}")
                with suppress(FileNotFoundError, NotADirectoryError):  # it has gone meanwhile
                    inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                    yield from _walk(task_id, root, inner, parts)
            elif entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                mode = stat.S_IMODE(about.st_mode)
                yield StoredFile(task_id, "/".join(parts), mode, about.st_size, root)
    finally:
        os.close(folder)


@contextmanager
def _opened(folder: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """The open folder that a path's last name stands in, and that name."""
    *above, name = path.split("/")
    parent = os.open(folder, _FOLDER)
    try:
        for each in above:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(each, 0o700, dir_fd=parent)
                    os.fsync(parent)
            outer, parent = parent, os.open(each, _FOLDER, dir_fd=parent)
            os.close(outer)
        yield parent, name
    finally:
        os.close(parent)


def _create(folder: Path) -> None:
    """A folder, and those above it, for nobody else to see."""
    missing = [it for it in (folder, *folder.parents) if not os.path.lexists(it)]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)
            sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """What was made in a folder outlives a loss of power."""
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove(path: Path) -> bool:
    """Delete a folder with all that is in it; of a link, the link. Whether there was anything."""
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    if is_folder:
        shutil.rmtree(path)  # follows no link
    else:
        path.unlink()
    return True


@contextmanager
def disk(problem: str) -> Iterator[None]:
    """What the file system refuses is Unavailable, with the problem that it makes."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{problem}: {error.strerror}") from error
    except RecursionError:
        raise Unavailable(f"{problem}: its folders are nested too deeply") from None
