"""Privacy in the dashboard: what is kept of a user, to download and to erase."""

from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.privacy import counts_of
from kemem.serve.dashboard.fields import Fields, check_typed, refusal
from kemem.serve.dashboard.page import DashboardRoute, page, suggested_users
from kemem.serve.dashboard.users import unknown_owner
from kemem.serve.http.privacy_routes import export_response
from kemem.serve.http.routing import Memory
from kemem.text.ids import check_id

PATH = "/dashboard/privacy"

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def show_privacy(request: Request, memory: Memory) -> Response:
    """The counts of a user, and the forms to download and to erase; without one, a choice."""
    return await _page(request, memory, Fields(request.query_params).text("user_id"))


@router.get(PATH + "/export")
async def export(request: Request, memory: Memory) -> Response:
    """Everything that is kept of a user, as a zip."""
    user_id = check_id(Fields(request.query_params).text("user_id"), "user_id")
    if not counts_of(await memory.privacy.inventory(user_id)):
        return await _page(request, memory, user_id, status=404)
    return await export_response(user_id, memory)


@router.post(PATH)
async def erase(request: Request, memory: Memory) -> Response:
    """Erase everything of a user, where the id was typed once more; shows the receipt."""
    fields = Fields(await request.form())
    user_id = check_id(fields.text("user_id"), "user_id")
    try:
        check_typed(fields, user_id)
    except InvalidArgument as problem:
        return await _page(request, memory, user_id, **refusal(problem, fields))
    try:
        receipt = await memory.privacy.erase(user_id)
    except NotFound:
        return await _page(request, memory, user_id, status=404)
    return await _page(request, memory, user_id, receipt=receipt)


async def _page(
    request: Request, memory: AsyncMemory, user_id: str | None, **values: Any
) -> Response:
    """What is kept of a user; of one who is unknown, and was not just erased, that they are."""
    kept = unknown = None
    if user_id is not None:
        kept = await memory.privacy.inventory(user_id)
        if "receipt" not in values and not kept.journal:  # a vote alone is something to erase
            unknown = await unknown_owner(user_id, None, memory)
    user_ids = await suggested_users(memory)
    shown: dict[str, Any] = {"kept": kept, "unknown": unknown, "user_ids": user_ids}
    return page(request, "privacy.html", **shown, **values)
