"""Imports in the dashboard: a form for a file, and how far each import is."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import UploadFile

from kemem.errors import InvalidArgument
from kemem.imports.recipe import Target
from kemem.memory import AsyncMemory
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page
from kemem.serve.http.routing import Memory

PATH = "/dashboard/imports"
_CHUNK = 1 << 20  # bytes

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def list_imports(request: Request, memory: Memory) -> Response:
    """The form, and the imports so far."""
    return await _page(request, memory)


@router.post(PATH)
async def import_file(request: Request, memory: Memory) -> Response:
    """Import the file of the form."""
    async with request.form() as form:
        file, fields = form.get("file"), Fields(form)
        try:
            if not isinstance(file, UploadFile) or not file.filename:
                raise InvalidArgument("choose a file to import", field="file")
            agent = fields.text("agent_id") or "default"
            target = Target(fields.text("user_id"), agent, infer=fields.text("infer") is not None)
            await memory.imports.upload(file.filename, _chunks(file), target)
        except InvalidArgument as problem:
            return await _page(request, memory, **refusal(problem, fields))
    request.app.state.wake_worker()
    return done(request, PATH, "import_started", name=file.filename)


async def _page(request: Request, memory: AsyncMemory, **refused: Any) -> Response:
    return page(request, "imports.html", imports=await memory.imports.states(), **refused)


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(_CHUNK):
        yield chunk
