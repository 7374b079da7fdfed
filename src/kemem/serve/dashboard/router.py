"""The dashboard at /dashboard: every view, its files, and the sign-in with the server's key."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, FastAPI, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import NotFound, Unauthenticated
from kemem.serve.dashboard import (
    conversations,
    graph,
    memories,
    overview,
    playground,
    quality,
    system,
    traces,
)
from kemem.serve.dashboard.page import PATH, DashboardRoute, own_address, page, set_cookie
from kemem.serve.dashboard.static_files import STATIC, STATIC_PATH, VENDOR, CachedFiles
from kemem.serve.http.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.telemetry.metrics import StaleWhileRevalidate

VIEWS = (overview, memories, playground, conversations, graph, traces, quality, system)

sign_in = APIRouter(route_class=DashboardRoute)
fallback = APIRouter(route_class=DashboardRoute)


def offer_dashboard(app: FastAPI) -> None:
    """Serve the dashboard; `/` leads there."""
    state = app.state
    state.vendor = VENDOR
    state.survey = StaleWhileRevalidate(partial(overview.survey, state.memory, state.metrics))
    app.mount(STATIC_PATH, CachedFiles(directory=STATIC))
    for router in (sign_in, *(view.router for view in VIEWS), fallback):  # the last takes the rest
        app.include_router(router, include_in_schema=False)


@sign_in.get("/dashboard/login")
async def login_page(request: Request, to: Annotated[str | None, Query()] = None) -> Response:
    """The form for the key; without a key there is nothing to sign in to."""
    authenticator: Authenticator = request.app.state.authenticator
    if not authenticator.requires_credentials or authenticator.is_signed_in(request.headers):
        return RedirectResponse(own_address(to), 303)
    return _login_form(request, to)


@sign_in.post("/dashboard/login")
async def login(
    request: Request,
    key: Annotated[str, Form()] = "",
    to: Annotated[str | None, Form()] = None,
) -> Response:
    """Let whoever knows the key in for a while."""
    authenticator: Authenticator = request.app.state.authenticator
    try:
        session = authenticator.sign_in(key)
    except Unauthenticated:
        return _login_form(request, to, is_wrong=True)
    response = RedirectResponse(own_address(to), 303)
    set_cookie(request, response, SESSION_COOKIE, session, SESSION_SECONDS)
    return response


@sign_in.post("/dashboard/logout")
async def logout(request: Request) -> Response:
    """Forget who was signed in here."""
    response = RedirectResponse("/dashboard/login", 303)
    response.delete_cookie(SESSION_COOKIE, path=PATH, httponly=True, samesite="strict")
    return response


def _login_form(request: Request, to: str | None, is_wrong: bool = False) -> Response:
    return page(
        request,
        "login.html",
        status=401 if is_wrong else 200,
        to=own_address(to),
        has_key=request.app.state.authenticator.has_key,
        is_wrong=is_wrong,
    )


@fallback.get("/")
async def root(request: Request) -> Response:
    """The way to the dashboard."""
    return RedirectResponse(PATH, 303)


@fallback.get("/dashboard/{rest:path}")
async def not_found(rest: str) -> Response:
    """Any address that no view has."""
    raise NotFound(NOT_FOUND)
