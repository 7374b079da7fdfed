"""System: settings, versions, storage, backups, and tokens for users."""

import asyncio
import platform
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.serve.cli.doctor import examine, show_settings
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.page import language_of, page, translator
from kemem.serve.dashboard.storage import Stored, backups_in, stored_in
from kemem.serve.http.auth import Authenticator
from kemem.serve.http.errors import to_json
from kemem.serve.http.routing import Memory
from kemem.serve.rpc.methods import MemoryTools
from kemem.text.ids import check_id

HOME = "/dashboard/system"
_BACKUPS = 100  # that are listed
_DAY = 24 * 3600
_LONGEST = 366  # days that a token is good for
_PACKAGES = ("fastapi", "jinja2", "mcp", "openai", "sqlalchemy", "uvicorn")

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def system(
    request: Request, memory: Memory, done: Annotated[str | None, Query()] = None
) -> Response:
    """Everything about this server."""
    t = translator(language_of(request))
    told = {
        "backup": t("The backup is written.", "备份已完成。"),
        "restore": t("The backup is restored.", "已从备份恢复。"),
    }
    return page(
        request, "system.html", flash=told.get(done or ""), **await _described(request, memory)
    )


@router.get(HOME + "/checks")
async def checks(request: Request, memory: Memory) -> Response:
    """What the doctor finds; it loads the embedder, which takes a while."""
    found = await asyncio.to_thread(examine, memory.settings)
    return page(request, "system_checks.html", checks=found)


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
    backup = await _backup_called(name, memory)
    return page(
        request, "system_restore.html", backup=backup, survey=await request.app.state.survey.get()
    )


@router.post(HOME + "/restore")
async def restore(
    memory: Memory, name: Annotated[str, Form()], typed: Annotated[str, Form()] = ""
) -> Response:
    """Put a backup in the place of everything, if its name was typed."""
    backup = await _backup_called(name, memory)
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
    return page(request, "system.html", **await _described(request, memory, minted))


async def _described(
    request: Request, memory: AsyncMemory, minted: dict[str, Any] | None = None
) -> dict[str, Any]:
    settings, authenticator = memory.settings, request.app.state.authenticator
    embedded = settings.database_url is None
    backups = await asyncio.to_thread(backups_in, memory.places.backups, _BACKUPS)
    return {
        "settings": show_settings(settings, request.app.state.flags),
        "versions": _versions(),
        "survey": await request.app.state.survey.get(),
        "files": await asyncio.to_thread(stored_in, settings.data_dir) if embedded else None,
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


async def _backup_called(name: str, memory: AsyncMemory) -> Stored:
    """A backup of the list, and no other file."""
    found = await asyncio.to_thread(backups_in, memory.places.backups, _BACKUPS)
    for backup in found:
        if backup.name == name:
            return backup
    raise NotFound(f"there is no backup {name!r:.80}")
