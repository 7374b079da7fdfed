"""The files of a memory, as operators see them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kemem.records import Micros

_MOST = 20_000  # files that are counted in one folder


@dataclass(frozen=True, slots=True)
class Stored:
    """A file or folder, and what it takes up."""

    name: str
    size: int  # bytes
    changed: Micros
    is_least: bool = False  # a folder with so many files that the rest was not counted


def stored_in(directory: Path) -> list[Stored]:
    """What a directory holds, largest first; a directory that is not there holds nothing."""
    found = [_measured(Path(entry.path)) for entry in _entries(directory)]
    return sorted(found, key=lambda it: (-it.size, it.name))


def backups_in(directory: Path, most: int) -> list[Stored]:
    """The newest backups of a directory, the newest first; what is half written is none."""
    found = [
        _measured(Path(entry.path))
        for entry in _entries(directory)
        if entry.is_file(follow_symlinks=False) and not entry.name.startswith(".")
    ]
    return sorted(found, key=lambda it: (-it.changed, it.name))[:most]


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # it is created on first use
        return []


def _measured(path: Path) -> Stored:
    at = path.lstat()
    changed = at.st_mtime_ns // 1000
    if not path.is_dir() or path.is_symlink():
        return Stored(path.name, at.st_size, changed)
    sizes = list(islice(_sizes(path), _MOST))
    return Stored(f"{path.name}/", sum(sizes), changed, len(sizes) == _MOST)


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size
            except OSError:  # it has gone meanwhile
                continue
