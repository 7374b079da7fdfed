"""The audit log over HTTP, for operators."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from kemem.records import Page
from kemem.records.audit import AuditEvent
from kemem.scope import to_range
from kemem.serve.http.routing import Memory, OperatorRoute
from kemem.serve.http.schemas import Id, PageQuery, Time
from kemem.serve.telemetry.audit import AuditFilter, read_events

PATH = "/v1/audit"

router = APIRouter(route_class=OperatorRoute, tags=["operators"])


class AuditQuery(PageQuery):
    user_id: Id | None = None
    actor: str | None = None
    operation: str | None = None
    since: Time | None = None
    until: Time | None = None


@router.get(PATH)
async def list_audit(
    query: Annotated[AuditQuery, Query()], request: Request, memory: Memory
) -> Page[AuditEvent]:
    """The audit log, newest first: who did what to which user's data, never contents."""
    await request.app.state.audit_log.flush()  # what this server has seen is there
    times = to_range(query.since, query.until)
    chosen = AuditFilter(query.user_id, query.actor, query.operation, *times)
    return await read_events(memory.journal, chosen, query.limit, query.cursor)
