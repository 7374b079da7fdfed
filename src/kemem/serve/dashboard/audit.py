"""The audit log in the dashboard: filtered, in pages, and as a file."""

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from kemem.errors import InvalidArgument
from kemem.scope import to_range
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.page import DashboardRoute, page, suggested_users
from kemem.serve.http.routing import Memory
from kemem.serve.telemetry.audit import AuditFilter, exported, operations, read_events

PATH = "/dashboard/audit"
PAGE = 50
FILTERS = ("user_id", "actor", "operation", "since", "until")
_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def list_audit(request: Request, memory: Memory) -> Response:
    """A page of the log, newest first."""
    fields = Fields(request.query_params)
    await request.app.state.audit_log.flush()  # what this server has seen is there
    shown: dict[str, Any] = {"events": (), "next_cursor": None}
    try:
        events = await read_events(memory.journal, chosen(fields), PAGE, fields.text("cursor"))
        shown = {"events": events.items, "next_cursor": events.next_cursor}
    except InvalidArgument as problem:
        shown |= refusal(problem, fields)
    given = {name: fields.text(name) for name in FILTERS}
    return page(
        request,
        "audit.html",
        **shown,
        filters=given,
        query=urlencode({name: text for name, text in given.items() if text}),
        operations=operations(),
        user_ids=await suggested_users(memory),
        level=memory.settings.audit,
        days=memory.settings.audit_days,
    )


@router.get(PATH + "/export")
async def export_audit(request: Request, memory: Memory) -> Response:
    """All that the filters admit, as JSON lines or CSV."""
    fields = Fields(request.query_params)
    await request.app.state.audit_log.flush()
    form = fields.one_of("format", tuple(_TYPES), "csv")
    name = {"Content-Disposition": f'attachment; filename="kemem-audit.{form}"'}
    pieces = exported(memory.journal, chosen(fields), "csv" if form == "csv" else "jsonl")
    return StreamingResponse(pieces, headers=name, media_type=_TYPES[form])


def chosen(fields: Fields) -> AuditFilter:
    """The filter that a form describes."""
    user_id, actor = fields.text("user_id"), fields.text("actor")
    times = to_range(fields.datetime("since"), fields.datetime("until"))
    return AuditFilter(user_id, actor, fields.text("operation"), *times)
