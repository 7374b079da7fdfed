"""Forms: the token that proves a change was asked for on a page of ours."""

import hmac
import secrets

from fastapi import Request, Response
from starlette.datastructures import UploadFile

from kemem.errors import PermissionDenied
from kemem.serve.http.auth import SESSION_COOKIE, Authenticator

FORM_COOKIE = "kemem_form"
FIELD = "form_token"
HEADER = "X-Form-Token"
PATH = "/dashboard"


def form_token(request: Request) -> str:
    """The token for the forms of a page: bound to the browser that gets the page."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator.form_token(_seat(request))


async def check_form_token(request: Request) -> None:
    """Refuse a change that comes from no page of ours."""
    sent: str | UploadFile | None = request.headers.get(HEADER)
    if sent is None:
        sent = (await request.form()).get(FIELD)
    seated = SESSION_COOKIE in request.cookies or FORM_COOKIE in request.cookies
    if not seated or not isinstance(sent, str):
        raise PermissionDenied("a change needs the token of its page: load the page again")
    if not hmac.compare_digest(sent.encode(), form_token(request).encode()):
        raise PermissionDenied("the token is not that of this page: load the page again")


def seat(request: Request, response: Response) -> None:
    """Let a browser without a cookie keep one that its forms are bound to."""
    if SESSION_COOKIE not in request.cookies and FORM_COOKIE not in request.cookies:
        set_cookie(request, response, FORM_COOKIE, _seat(request))


def set_cookie(
    request: Request, response: Response, name: str, value: str, max_age: int | None = None
) -> None:
    """A cookie that no script reads and no other site sends."""
    proxied = request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path=PATH,
        secure=proxied or request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _seat(request: Request) -> str:
    """What tells this browser from others."""
    kept = request.cookies.get(SESSION_COOKIE) or request.cookies.get(FORM_COOKIE)
    if kept is None:
        kept = getattr(request.state, "seat", None) or secrets.token_urlsafe(24)
        request.state.seat = kept
    return kept
