"""System and jobs: settings, versions, storage, backups, tokens for users, and later work."""

import asyncio
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import Micros
from kemem.serve.cli.doctor import examine, show_settings
from kemem.serve.dashboard.page import DashboardRoute, language_of, page, translator
from kemem.serve.http.auth import Authenticator
from kemem.serve.http.responses import to_json
from kemem.serve.http.routing import Memory
from kemem.serve.rpc.methods import MemoryTools
from kemem.text.ids import check_id

HOME = "/dashboard/system"
JOBS = "/dashboard/jobs"
_BACKUPS = 100  # that are listed
_DAY = 24 * 3600
_LONGEST = 366  # days that a token is good for
_PACKAGES = ("fastapi", "jinja2", "mcp", "openai", "sqlalchemy", "uvicorn")

_MAX_JOBS = 1_000  # that one call reads
_JOBS = 200  # that are listed
_MAX_FILES = 20_000  # that are counted in one folder

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class File:
    """A file or folder, and what it takes up."""

    name: str
    size: int  # bytes
    changed: Micros
    is_least: bool = False  # a folder with so many files that the rest was not counted


@router.get(HOME)
async def system(
    request: Request, memory: Memory, done: Annotated[str | None, Query()] = None
) -> Response:
    """Everything about this server."""
    t = translator(language_of(request))
    messages = {
        "backup": t("The backup is written.", "备份已完成。"),
        "restore": t("The backup is restored.", "已从备份恢复。"),
    }
    return page(
        request, "system.html", flash=messages.get(done or ""), **await _system(request, memory)
    )


@router.get(HOME + "/checks")
async def checks(request: Request, memory: Memory) -> Response:
    """What the doctor finds; it loads the embedder, which takes a while."""
    results = await asyncio.to_thread(examine, memory.settings)
    return page(request, "system_checks.html", checks=results)


@router.post(HOME + "/backup")
async def back_up(memory: Memory) -> Response:
    """Write everything to a new file in the directory of backups."""
    await memory.backup()
    return RedirectResponse(f"{HOME}?done=backup", 303)


@router.get(HOME + "/restore")
async def ask_to_restore(
    request: Request, memory: Memory, name: Annotated[str, Query()]
) -> Response:
    """Ask whether everything is to be replaced."""
    backup = await _backup(name, memory)
    return page(
        request, "system_restore.html", backup=backup, survey=await request.app.state.survey.get()
    )


@router.post(HOME + "/restore")
async def restore(
    memory: Memory, name: Annotated[str, Form()], typed: Annotated[str, Form()] = ""
) -> Response:
    """Put a backup in the place of everything, if its name was typed."""
    backup = await _backup(name, memory)
    if typed.strip() != backup.name:
        raise InvalidArgument(f"type the name {backup.name!r}, not {typed!r:.80}", field="typed")
    await memory.restore(backup.name)
    return RedirectResponse(f"{HOME}?done=restore", 303)


@router.get(HOME + "/dump")
async def dump(memory: Memory, agent_id: Annotated[str | None, Query()] = None) -> Response:
    """Knowledge and the files of workspaces as a JSON file."""
    agent = check_id(agent_id or memory.settings.rpc_agent, "agent_id")
    held = (await MemoryTools(memory, agent).dump())["data"]
    headers = {"Content-Disposition": 'attachment; filename="kemem.json"'}
    return Response(to_json(held), headers=headers, media_type="application/json")


@router.post(HOME + "/token")
async def mint_token(
    request: Request,
    memory: Memory,
    user_id: Annotated[str, Form()] = "",
    days: Annotated[int, Form(ge=1, le=_LONGEST)] = 30,
    sensitive: Annotated[bool, Form()] = False,
) -> Response:
    """A token that is bound to one user, shown this once."""
    authenticator: Authenticator = request.app.state.authenticator
    user = check_id(user_id.strip(), "user_id")
    token = authenticator.issue_token(user, days * _DAY, sensitive=sensitive)
    minted = {"token": token, "user_id": user, "days": days}
    return page(request, "system.html", **await _system(request, memory, minted))


async def _system(
    request: Request, memory: AsyncMemory, minted: dict[str, Any] | None = None
) -> dict[str, Any]:
    settings, authenticator = memory.settings, request.app.state.authenticator
    embedded = settings.database_url is None
    backups = await asyncio.to_thread(backups_in, memory.places.backups, _BACKUPS)
    return {
        "settings": show_settings(settings, request.app.state.flags),
        "versions": _versions(),
        "survey": await request.app.state.survey.get(),
        "files": await asyncio.to_thread(files_in, settings.data_dir) if embedded else None,
        "places": memory.places,
        "backups": backups,
        "has_key": authenticator.has_key,
        "mints": authenticator.issues_tokens,
        "minted": minted,
        "longest": _LONGEST,
    }


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in _PACKAGES}
    return {"KeMem": version("kemem-memory"), "Python": platform.python_version(), **packages}


async def _backup(name: str, memory: AsyncMemory) -> File:
    """A backup of the list, and no other file."""
    for backup in await asyncio.to_thread(backups_in, memory.places.backups, _BACKUPS):
        if backup.name == name:
            return backup
    raise NotFound(f"there is no backup {name!r:.80}")


def files_in(directory: Path) -> list[File]:
    """What a directory holds, largest first; a missing directory is empty."""
    files = [_file(Path(entry.path)) for entry in _entries(directory)]
    return sorted(files, key=lambda file: (-file.size, file.name))


def backups_in(directory: Path, most: int) -> list[File]:
    """The newest backups of a directory, the newest first, without unfinished ones."""
    files = [
        _file(Path(entry.path))
        for entry in _entries(directory)
        if entry.is_file(follow_symlinks=False) and not entry.name.startswith(".")
    ]
    return sorted(files, key=lambda file: (-file.changed, file.name))[:most]


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # it is created on first use
        return []


def _file(path: Path) -> File:
    status = path.lstat()
    changed = status.st_mtime_ns // 1000
    if not path.is_dir() or path.is_symlink():
        return File(path.name, status.st_size, changed)
    sizes = list(islice(_sizes(path), _MAX_FILES))
    return File(f"{path.name}/", sum(sizes), changed, len(sizes) == _MAX_FILES)


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size
            except OSError:  # it was removed meanwhile
                continue


@router.get(JOBS)
async def list_jobs(
    request: Request, memory: Memory, retried: Annotated[int | None, Query(ge=0)] = None
) -> Response:
    """The jobs: failed ones first, then in the order of their age."""
    jobs = await memory.jobs(_MAX_JOBS)
    jobs.sort(key=lambda job: job.state != "failed")  # a stable sort
    return page(
        request,
        "jobs.html",
        jobs=jobs[:_JOBS],
        health=await request.app.state.metrics.health.get() or await memory.health(),
        retried=retried,
    )


@router.post(JOBS + "/retry")
async def retry_all(memory: Memory) -> Response:
    """Let every job that was given up be tried again."""
    return RedirectResponse(f"{JOBS}?retried={await memory.retry_jobs()}", 303)


@router.post(JOBS + "/{job_id}/retry")
async def retry_job(job_id: str, memory: Memory) -> Response:
    """Let a job be tried again now."""
    await memory.retry_job(job_id)
    return RedirectResponse(f"{JOBS}?retried=1", 303)
