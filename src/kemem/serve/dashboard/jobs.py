"""Jobs: later work that waits or has failed."""

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.page import page
from kemem.serve.http.routing import Memory

HOME = "/dashboard/jobs"
SHOWN = 200
_LOOKED_AT = 1000  # jobs: as many as one call gives

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def list_jobs(
    request: Request, memory: Memory, retried: Annotated[int | None, Query(ge=0)] = None
) -> Response:
    """The jobs: failed ones first, then in the order of their age."""
    found = await memory.jobs(_LOOKED_AT)
    found.sort(key=lambda job: job.state != "failed")  # a stable sort
    states = Counter(job.state for job in found)
    return page(
        request,
        "jobs.html",
        jobs=found[:SHOWN],
        states=states,
        is_cut=len(found) > SHOWN,
        at_least="≥ " if len(found) == _LOOKED_AT else "",
        retried=retried,
    )


@router.post(HOME + "/retry")
async def retry_all(memory: Memory) -> Response:
    """Let every job that was given up be tried again."""
    return RedirectResponse(f"{HOME}?retried={await memory.retry_jobs()}", 303)


@router.post(HOME + "/{job_id}/retry")
async def retry_job(job_id: str, memory: Memory) -> Response:
    """Let a job be tried again now."""
    await memory.retry_job(job_id)
    return RedirectResponse(f"{HOME}?retried=1", 303)
