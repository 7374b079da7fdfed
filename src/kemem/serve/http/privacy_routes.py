"""Privacy over HTTP: what is kept of a user, as counts, as an archive, and erased."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from kemem.privacy import Receipt
from kemem.records import Inventory
from kemem.serve.http.routing import GuardedRoute, Memory
from kemem.serve.http.schemas import PathId


def _check_reach(request: Request) -> None:
    """What is kept of a user may be with any agent: not for a key of one agent."""
    request.state.caller.check_any_agent()


router = APIRouter(route_class=GuardedRoute, tags=["privacy"], dependencies=[Depends(_check_reach)])

_ZIP: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.get("/v1/users/{user_id}/inventory")
async def read_inventory(user_id: PathId, memory: Memory) -> Inventory:
    """The amount of data of a user, by kind."""
    return await memory.privacy.inventory(user_id)


@router.get(
    "/v1/users/{user_id}/export",
    response_class=FileResponse,
    responses={200: {"content": {"application/zip": _ZIP}}},
)
async def export_user(user_id: PathId, memory: Memory) -> FileResponse:
    """All data of a user as one zip; sensitive rows only for callers with a grant."""
    return await export_response(user_id, memory)


async def export_response(user_id: str, memory: Memory) -> FileResponse:
    """An export as a download; the file goes when it is sent."""
    folder = Path(tempfile.mkdtemp(prefix="kemem-export-"))  # mode 0700
    try:
        made = await memory.privacy.export(user_id, folder / "export.zip")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    headers = {"X-Content-SHA256": made.digest, "Cache-Control": "no-store"}
    sent = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    name = f"kemem-export-{user_id}.zip"
    return FileResponse(made.path, 200, headers, "application/zip", sent, name)


@router.delete("/v1/users/{user_id}")
async def erase_user(user_id: PathId, memory: Memory) -> Receipt:
    """Erase all data of a user; the receipt lists what was erased and where copies may remain."""
    return await memory.privacy.erase(user_id)
