"""Signing in with the key of the server, and out again."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import Unauthenticated
from kemem.serve.dashboard.forms import PATH, set_cookie
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.page import own_address, page
from kemem.serve.http.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator

router = APIRouter(route_class=DashboardRoute)


@router.get("/dashboard/login")
async def login_page(request: Request, to: Annotated[str | None, Query()] = None) -> Response:
    """Where the key is asked for; without one there is nothing to sign in to."""
    authenticator: Authenticator = request.app.state.authenticator
    if not authenticator.requires_credentials or authenticator.is_signed_in(request.headers):
        return RedirectResponse(own_address(to), 303)
    return _asked(request, to)


@router.post("/dashboard/login")
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
        return _asked(request, to, is_wrong=True)
    response = RedirectResponse(own_address(to), 303)
    set_cookie(request, response, SESSION_COOKIE, session, SESSION_SECONDS)
    return response


@router.post("/dashboard/logout")
async def logout(request: Request) -> Response:
    """Forget who was signed in here."""
    response = RedirectResponse("/dashboard/login", 303)
    response.delete_cookie(SESSION_COOKIE, path=PATH, httponly=True, samesite="strict")
    return response


def _asked(request: Request, to: str | None, is_wrong: bool = False) -> Response:
    has_key = request.app.state.authenticator.has_key
    status = 401 if is_wrong else 200
    shown = {"to": own_address(to), "has_key": has_key, "is_wrong": is_wrong}
    return page(request, "login.html", status=status, **shown)
