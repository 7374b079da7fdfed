"""The files behind a path: one file, those of a folder, the members of a zip."""

import codecs
import lzma
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kemem.errors import Exhausted, InvalidArgument
from kemem.imports.items import version_of, wrong

MAX_WHOLE = 256 << 20  # bytes of a file that must be in memory as a whole
MAX_RATIO = 100  # how many times larger than an archive its members may be in all,
MAX_UNPACKED = 256 << 20  # or how large in bytes
STANDARD_INPUT = "-"
# Of archives: what is damaged; encrypted, or packed by an unknown method (RuntimeError).
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, RuntimeError, zlib.error, lzma.LZMAError)
Advance = Callable[[int], None]  # told how many bytes were read


@dataclass(frozen=True, slots=True)
class File:
    """A file, or a member of an archive."""

    name: str  # as errors show it
    path: Path
    source: str  # its path within what is imported
    size: int
    member: str | None = None  # of the archive `path`
    is_alone: bool = True  # it was named itself: what cannot be read is an error

    @property
    def suffix(self) -> str:
        """How its name ends, in lower case."""
        return Path(self.source).suffix.lower()

    @property
    def stem(self) -> str:
        """Its name without the suffix."""
        return Path(self.source).stem

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Its bytes, in their order."""
        try:
            if self.name == STANDARD_INPUT:
                yield sys.stdin.buffer
            elif self.member is None:
                with self.path.open("rb") as stream:
                    yield stream
            else:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                    yield stream
        except _UNREADABLE as error:
            raise wrong(self.name, f"cannot be read: {error}") from None

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """A path that a database can be opened by."""
        if self.member is None:
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="kemem-import-") as folder:
            path = Path(folder, "database")
            with self.open() as stream, path.open("wb") as copy:
                shutil.copyfileobj(stream, copy)
            yield path

    def text(self) -> str:
        """All of it as text: UTF-8, UTF-16 with a mark, or GB 18030, as older Chinese systems."""
        with self.open() as stream:
            raw = stream.read(MAX_WHOLE + 1)
        if len(raw) > MAX_WHOLE:
            raise Exhausted(f"{self.name}: a text must be at most {MAX_WHOLE >> 20} MiB")
        for encoding in ("utf-16",) if is_utf16(raw) else ("utf-8-sig", "gb18030"):
            try:
                return raw.decode(encoding)
            except UnicodeDecodeError:
                continue
        raise wrong(self.name, "expected text in UTF-8")


def is_utf16(raw: bytes) -> bool:
    """Whether bytes begin with a mark of UTF-16."""
    return raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


@dataclass(frozen=True, slots=True)
class Counted:
    """A stream that tells how much of it was read."""

    stream: IO[bytes]
    advance: Advance

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        raw = self.stream.read(size)
        self.advance(len(raw))
        return raw

    def readline(self, size: int = -1, /) -> bytes:
        """The next line."""
        raw = self.stream.readline(size)
        self.advance(len(raw))
        return raw


def files_of(path: Path | str) -> list[File]:
    """The files of a path in the order of their names; hidden ones and links are left out."""
    if str(path) == STANDARD_INPUT:
        return [File(STANDARD_INPUT, Path(STANDARD_INPUT), "standard input", 0)]
    path = Path(path)
    if path.is_dir():
        return list(_inside(path))
    if not path.is_file():
        raise InvalidArgument(f"{path} must be a file or a folder", field="path")
    if path.suffix.lower() == ".zip":
        return list(_members(path))
    return [File(str(path), path, path.name, path.stat().st_size)]


def _inside(folder: Path) -> Iterator[File]:
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if any(part.startswith(".") for part in inner.parts) or path.is_symlink():
            continue
        with suppress(OSError):  # it went meanwhile
            if path.is_file():
                yield File(str(path), path, str(inner), path.stat().st_size, None, False)


def _members(path: Path) -> Iterator[File]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [it for it in archive.infolist() if not it.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise wrong(str(path), f"expected a zip archive: {error}") from None
    size = sum(it.file_size for it in members)
    most = max(MAX_RATIO * path.stat().st_size, MAX_UNPACKED)
    if size > most:  # of exports, not even the most repetitive: somebody wants to fill the disk
        reason = f"its files must be at most {most >> 20} MiB when unpacked, not {size >> 20} MiB"
        raise Exhausted(f"{path}: {reason}")
    for it in sorted(members, key=lambda each: each.filename):
        parts = it.filename.split("/")
        if not any(part.startswith((".", "__MACOSX")) for part in parts):
            name = f"{path}/{it.filename}"
            yield File(name, path, it.filename, it.file_size, it.filename, False)


def folder_id(path: Path | str) -> str:
    """The name that documents of one folder have in common.  "docs" -> "docs-1f0a33c2" """
    absolute = Path(path).absolute()
    name = absolute.name if absolute.is_dir() else absolute.stem
    return f"{name[:40]}-{version_of(str(absolute))}"
