"""Privacy in the dashboard: what is kept of a user, to download and to erase."""

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument
from kemem.serve.dashboard.page import DashboardRoute, Fields, page, suggested_users, translator
from kemem.serve.http.privacy_routes import export_response
from kemem.serve.http.routing import Memory
from kemem.text.ids import check_id

PATH = "/dashboard/privacy"

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def show_privacy(request: Request, memory: Memory) -> Response:
    """The counts of a user, and the forms to download and to erase; without one, a choice."""
    user_id = Fields(request.query_params).text("user_id")
    kept = None if user_id is None else await memory.privacy.inventory(user_id)
    user_ids = await suggested_users(memory)
    return page(request, "privacy.html", kept=kept, user_ids=user_ids)


@router.get(PATH + "/export")
async def export(request: Request, memory: Memory) -> Response:
    """Everything that is kept of a user, as a zip."""
    user_id = check_id(Fields(request.query_params).text("user_id"), "user_id")
    return await export_response(user_id, memory)


@router.post(PATH)
async def erase(request: Request, memory: Memory) -> Response:
    """Erase everything of a user, where the id was typed once more; shows the receipt."""
    fields = Fields(await request.form())
    user_id = check_id(fields.text("user_id"), "user_id")
    if fields.text("typed") != user_id:
        t = translator(request)
        reason = t(f"type {user_id} to erase it", f"请输入 {user_id} 以确认删除")
        raise InvalidArgument(reason, field="typed")
    receipt = await memory.privacy.erase(user_id)
    kept = await memory.privacy.inventory(user_id)
    return page(request, "privacy.html", kept=kept, receipt=receipt, user_ids=[])
