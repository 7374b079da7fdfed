"""Backups in the dashboard: written, listed, downloaded, restored and deleted."""

import asyncio
import os
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import FileResponse

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import Micros
from kemem.serve.dashboard.fields import Fields, check_typed, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page
from kemem.serve.http.routing import Memory

SYSTEM = "/dashboard/system"
LISTED = 100  # backups
_MAX_FILES = 20_000  # that are counted in one folder

router = APIRouter(route_class=DashboardRoute)


class File(NamedTuple):
    """A file or folder, and what it takes up."""

    name: str
    size: int  # bytes
    changed: Micros
    is_least: bool = False  # a folder with so many files that the rest was not counted


@router.post(SYSTEM + "/backup")
async def back_up(request: Request, memory: Memory) -> Response:
    """Write everything to a new file in the directory of backups."""
    backup = await memory.backup()
    return done(request, SYSTEM, "backup_written", name=backup.path.name)


@router.get(SYSTEM + "/restore")
async def ask_to_restore(request: Request, memory: Memory, name: str) -> Response:
    """Ask whether everything is to be replaced."""
    return await _ask_to_restore(request, await find_backup(name, memory))


@router.post(SYSTEM + "/restore")
async def restore(request: Request, memory: Memory) -> Response:
    """Put a backup in the place of everything, if its name was typed."""
    fields = Fields(await request.form())
    backup = await find_backup(fields.text("name") or "", memory)
    try:
        check_typed(fields, backup.name)
    except InvalidArgument as problem:
        return await _ask_to_restore(request, backup, **refusal(problem, fields))
    await memory.restore(backup.name)
    return done(request, SYSTEM, "backup_restored", name=backup.name)


async def _ask_to_restore(request: Request, backup: File, **values: Any) -> Response:
    survey = await request.app.state.survey.get()
    return page(request, "system_restore.html", backup=backup, survey=survey, **values)


@router.get(SYSTEM + "/backup")
async def download(memory: Memory, name: str) -> Response:
    """A backup as a file; only one of the list can be named."""
    backup = await find_backup(name, memory)
    path = memory.places.backups / backup.name
    return FileResponse(path, filename=backup.name, media_type="application/octet-stream")


@router.get(SYSTEM + "/backup/delete")
async def ask_to_delete(request: Request, memory: Memory, name: str) -> Response:
    """Ask whether a backup is to be deleted."""
    return page(request, "system_delete.html", backup=await find_backup(name, memory))


@router.post(SYSTEM + "/backup/delete")
async def delete(request: Request, memory: Memory, name: Annotated[str, Form()]) -> Response:
    """Delete a backup of the list."""
    backup = await find_backup(name, memory)
    await asyncio.to_thread((memory.places.backups / backup.name).unlink, missing_ok=True)
    return done(request, SYSTEM, "backup_deleted", name=backup.name)


async def find_backup(name: str, memory: AsyncMemory) -> File:
    """A backup of the list, and no other file."""
    for backup in await asyncio.to_thread(backups_in, memory.places.backups, LISTED):
        if backup.name == name:
            return backup
    raise NotFound(f"there is no backup {name!r:.80}")


def files_in(directory: Path) -> list[File]:
    """What a directory holds, largest first; a missing directory is empty."""
    files = []
    for path in directory.iterdir() if directory.is_dir() else ():
        file = _file(path)
        if path.is_dir() and not path.is_symlink():
            inside = (Path(place, name) for place, _, names in os.walk(path) for name in names)
            sizes = [_file(each).size for each in islice(inside, _MAX_FILES)]
            file = File(f"{path.name}/", sum(sizes), file.changed, len(sizes) == _MAX_FILES)
        files.append(file)
    return sorted(files, key=lambda file: (-file.size, file.name))


def backups_in(directory: Path, most: int) -> list[File]:
    """The newest backups of a directory, the newest first, without unfinished ones."""
    paths = [it for it in directory.glob("[!.]*") if it.is_file() and not it.is_symlink()]
    return sorted(map(_file, paths), key=lambda file: (-file.changed, file.name))[:most]


def _file(path: Path) -> File:
    try:
        status = path.lstat()
    except OSError:  # it was removed meanwhile
        return File(path.name, 0, 0)
    return File(path.name, status.st_size, status.st_mtime_ns // 1000)
