"""The records of a backup, and how each is a line of its file.

The file has a JSON object a line: a header, the workspaces, their files in pieces, the rows of the
store, and at the end the number of lines and a checksum of all bytes before.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from kemem.errors import InvalidArgument
from kemem.records import Micros
from kemem.records.times import to_micros, to_rfc3339
from kemem.workspace.folders import check_path, folder_name

VERSION = 1
MAX_LINE = 64 << 20  # bytes
_END = b'{"end":'


@dataclass(frozen=True, slots=True)
class Backup:
    """A file that holds a whole memory."""

    path: Path  # absolute
    created: Micros
    messages: int
    notes: int
    files: int  # of workspaces
    size: int  # bytes

    def to_dict(self) -> dict[str, Any]:
        """The backup as JSON."""
        return {
            "path": str(self.path),
            "created": to_rfc3339(self.created),
            "messages": self.messages,
            "notes": self.notes,
            "files": self.files,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself."""

    schema_version: int
    created: Micros

    def to_entry(self) -> dict[str, Any]:
        """The first line."""
        about = {
            "format": "kemem-backup",
            "version": VERSION,
            "schema_version": self.schema_version,
        }
        return {**about, "created": to_rfc3339(self.created)}


@dataclass(frozen=True, slots=True)
class Workspace:
    """A task that has a workspace."""

    task_id: str

    def to_entry(self) -> dict[str, Any]:
        """The workspace as a line."""
        return {"workspace": self.task_id}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file of a workspace; those of one file follow each other."""

    task_id: str
    path: str
    mode: int
    data: bytes

    @property
    def file(self) -> tuple[str, str, int]:
        """Which file it is a piece of."""
        return self.task_id, self.path, self.mode

    def to_entry(self) -> dict[str, Any]:
        """The piece as a line."""
        about = {"task_id": self.task_id, "path": self.path, "mode": self.mode}
        return {"file": about, "data": base64.b64encode(self.data).decode()}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the store, which alone knows what a table can hold."""

    table: str
    values: Mapping[str, Any]

    def to_entry(self) -> dict[str, Any]:
        """The row as a line."""
        return {"table": self.table, "row": dict(self.values)}


Record = Header | Workspace | Piece | Row


class Writer:
    """Records to lines, counted and summed up."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = sha256()
        self._lines = 0

    def write(self, record: Record) -> None:
        """Add a record."""
        line = _line(record.to_entry())
        self._digest.update(line)
        self._lines += 1
        self._file.write(line)

    def end(self) -> None:
        """Add the line without which a file is no backup."""
        self._file.write(_end(self._lines, self._digest.hexdigest()))


def read(file: BinaryIO) -> Iterator[Record]:
    """The records of a file in order; their end is reached only if not a bit has changed."""
    file.seek(0)
    digest = sha256()
    for number in count():
        line = file.readline(MAX_LINE)
        if number and line.startswith(_END):
            break
        if not line.endswith(b"\n"):
            refuse("its end is missing")
        yield _to_record(_parsed(line, number), is_first=number == 0)
        digest.update(line)
    if line != _end(number, digest.hexdigest()) or file.read(1):
        refuse("its checksum is another one")


def refuse(reason: str) -> NoReturn:
    """Say that a file is not to be restored; nothing of what is in it is shown."""
    raise InvalidArgument(f"this is no backup that can be restored: {reason}")


def _line(entry: Mapping[str, Any]) -> bytes:
    # A file's name need not be Unicode: such bytes come as half characters, and go so.
    text = json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _end(lines: int, digest: str) -> bytes:
    return _line({"end": {"lines": lines, "sha256": digest}})


def _parsed(line: bytes, number: int) -> Any:
    try:
        return json.loads(line.decode("utf-8", "surrogatepass"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        refuse(f"line {number + 1} is not JSON")


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _to_record(entry: Any, *, is_first: bool) -> Record:
    match entry:
        case {"format": "kemem-backup", "version": int(version)} if is_first:
            return _to_header(version, entry)
        case _ if is_first:
            refuse("it does not begin as one")
        case {"workspace": str(task_id)} if len(entry) == 1:
            folder_name(task_id)
            return Workspace(task_id)
        case {
            "file": {"task_id": str(task_id), "path": str(path), "mode": int(mode)},
            "data": str(data),
        } if len(entry) == 2:
            folder_name(task_id)
            check_path(path)
            return Piece(task_id, path, mode, _bytes(data))
        case {"table": str(table), "row": dict(values)} if len(entry) == 2:
            return Row(table, values)
    refuse("it has a line that is none of its own")


def _to_header(version: int, entry: Any) -> Header:
    if version > VERSION:
        refuse(f"its format is version {version}, this KeMem knows {VERSION}; install a newer one")
    match entry:
        case {"schema_version": int(schema_version), "created": str(created)}:
            return Header(schema_version, to_micros(created, "created"))
    refuse("it does not begin as one")


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        refuse("it has a file whose bytes are none")
