"""The dashboard: every view, its files, and the way to it."""

from functools import partial

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import NotFound
from kemem.serve.dashboard import (
    conversations,
    graph,
    jobs,
    memories,
    overview,
    playground,
    quality,
    sign_in,
    system,
    traces,
)
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.static_files import STATIC, STATIC_PATH, VENDOR, CachedFiles
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.telemetry.stale import StaleWhileRevalidate

ends = APIRouter(route_class=DashboardRoute)


@ends.get("/")
async def root(request: Request) -> Response:
    """The way to the dashboard."""
    return RedirectResponse("/dashboard", 303)


@ends.get("/dashboard/{rest:path}")
async def nowhere(rest: str) -> Response:
    """What no view has."""
    raise NotFound(NOT_FOUND)


def offer_dashboard(app: FastAPI) -> None:
    """Serve the dashboard at /dashboard; `/` leads there."""
    state = app.state
    state.vendor = VENDOR
    state.survey = StaleWhileRevalidate(partial(overview.survey, state.memory, state.metrics))
    app.mount(STATIC_PATH, CachedFiles(directory=STATIC))
    for view in (
        sign_in,
        overview,
        memories,
        playground,
        conversations,
        graph,
        traces,
        quality,
        jobs,
        system,
    ):
        app.include_router(view.router, include_in_schema=False)
    app.include_router(ends, include_in_schema=False)  # last: it takes what no view does
