"""The dashboard at /dashboard: every view, its files, and the sign-in with an admin key."""

from functools import cache
from os import PathLike, stat_result
from typing import Annotated

from fastapi import APIRouter, FastAPI, Form, Request, Response
from fastapi.responses import RedirectResponse
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from kemem.errors import NotFound, Unauthenticated
from kemem.serve.dashboard import (
    audit,
    backups,
    conversations,
    graph,
    imports,
    journal,
    keys,
    live,
    memories,
    ontology,
    operators,
    privacy,
    users,
    webhooks,
)
from kemem.serve.dashboard import page as pages
from kemem.serve.http.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.http.limits import RateLimited, address_of

VIEWS = (
    operators,
    backups,
    users,
    memories,
    conversations,
    graph,
    journal,
    imports,
    live,
    privacy,
    ontology,
    keys,
    audit,
    webhooks,
)
_IMMUTABLE = "public, max-age=31536000, immutable"

sign_in = APIRouter(route_class=pages.DashboardRoute)
fallback = APIRouter(route_class=pages.DashboardRoute)


class CachedFiles(StaticFiles):
    """Files that browsers keep for good where their address names the version."""

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """A file, or that it has not changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        versioned = scope["query_string"].startswith(b"v=")
        response.headers["Cache-Control"] = _IMMUTABLE if versioned else "no-cache"
        return response


def offer_dashboard(app: FastAPI) -> None:
    """Serve the dashboard; `/` leads there."""
    app.mount(pages.STATIC_PATH, CachedFiles(directory=pages.STATIC))
    app.router.routes += _routes()


@cache
def _routes() -> list[BaseRoute]:
    """The pages; all apps share them, as those of the API."""
    dashboard = APIRouter(include_in_schema=False)
    for router in (sign_in, *(view.router for view in VIEWS), fallback):  # the last takes the rest
        dashboard.include_router(router)
    return dashboard.routes


@sign_in.get("/dashboard/login")
async def login_page(request: Request, to: str | None = None) -> Response:
    """The form for a key; where none is required there is nothing to sign in to."""
    authenticator: Authenticator = request.app.state.authenticator
    is_open = not await authenticator.requires_credentials()
    if is_open or await authenticator.signed_in(request.headers):
        return RedirectResponse(pages.own_address(to), 303)
    return await _login_form(request, to)


@sign_in.post("/dashboard/login")
async def login(
    request: Request, key: Annotated[str, Form()] = "", to: Annotated[str | None, Form()] = None
) -> Response:
    """Let whoever has an admin key in for a while."""
    authenticator: Authenticator = request.app.state.authenticator
    limits, address = request.app.state.limits, address_of(request.scope)
    try:
        limits.check_failures(address)
        session, request.state.caller = await authenticator.sign_in(key)
    except Unauthenticated:
        limits.count_failure(address)
        return await _login_form(request, to, 401)
    except RateLimited as refused:
        response = await _login_form(request, to, 429, wait=refused.details["retry_after"])
        response.headers["Retry-After"] = str(refused.details["retry_after"])
        return response
    response = RedirectResponse(pages.own_address(to), 303)
    pages.set_cookie(request, response, SESSION_COOKIE, session, SESSION_SECONDS)
    return response


@sign_in.post("/dashboard/logout")
async def logout(request: Request) -> Response:
    """Forget who was signed in here."""
    response = pages.done(request, "/dashboard/login", "signed_out")
    response.delete_cookie(SESSION_COOKIE, path=pages.PATH, httponly=True, samesite="strict")
    return response


async def _login_form(
    request: Request, to: str | None, status: int = 200, wait: object = None
) -> Response:
    has_key = await request.app.state.authenticator.can_sign_in()
    values = {"to": pages.own_address(to), "has_key": has_key, "wait": wait}
    values["is_wrong"] = status == 401
    return pages.page(request, "login.html", status, **values)


@fallback.get("/")
@fallback.get("/dashboard/")
async def root() -> Response:
    """The way to the dashboard."""
    return RedirectResponse(pages.PATH, 303)


@fallback.get("/dashboard/{rest:path}")
async def not_found(rest: str) -> Response:
    """Any address that no view has."""
    raise NotFound(NOT_FOUND)
