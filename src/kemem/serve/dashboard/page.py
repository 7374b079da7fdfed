"""Pages: a template in the reader's language and theme, for operators only, safe from CSRF."""

import hmac
import re
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from kemem.errors import InvalidArgument, KeMemError, PermissionDenied
from kemem.records import Micros
from kemem.records.times import to_rfc3339
from kemem.runtime import system_clock
from kemem.serve.dashboard.static_files import has_all, static_url
from kemem.serve.http.auth import SESSION_COOKIE, Authenticator
from kemem.serve.http.errors import public_error
from kemem.serve.http.responses import invalid_request

PATH = "/dashboard"
FORM_COOKIE = "kemem_form"
LANGUAGES = ("en", "zh")
THEMES = ("auto", "light", "dark")
NAVIGATION = {
    "/dashboard": ("Overview", "总览"),
    "/dashboard/memories": ("Memories", "记忆"),
    "/dashboard/playground": ("Search playground", "检索试验"),
    "/dashboard/conversations": ("Conversations", "对话"),
    "/dashboard/graph": ("Graph", "图谱"),
    "/dashboard/traces": ("Recall traces", "回忆轨迹"),
    "/dashboard/quality": ("Quality", "质量"),
    "/dashboard/jobs": ("Jobs", "任务"),
    "/dashboard/system": ("System", "系统"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with "Origin: null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_YEAR = 365 * 24 * 3600
_ADDRESS = re.compile(r"/dashboard(?:/[^\s\\]*)?(?:\?[^\s\\]*)?")


class DashboardRoute(APIRoute):
    """A route for operators: a change needs a CSRF token, and an error is a page as well."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.name = f"dashboard.{self.name}"  # counted apart from what applications ask for

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                request.state.caller.check_users()
                if request.method not in ("GET", "HEAD"):
                    await _check_csrf(request)
                response = await handle(request)
            except Exception as error:  # the edge: people get a page, the log gets the rest
                public = _public(error)
                response = page(request, "error.html", status=public.status, error=public)
            response.headers.update(HEADERS)
            return response

        return guarded


def _public(error: Exception) -> KeMemError:
    """What a reader is told of an error."""
    match error:
        case RequestValidationError():
            return invalid_request(error)
        case HTTPException():
            return InvalidArgument(str(error.detail))
        case _:
            return public_error(error)


def page(request: Request, template: str, /, status: int = 200, **values: Any) -> Response:
    """A template as a response, in the reader's language and with the CSRF token for its forms.

    `?language=` and `?theme=` are remembered.
    """
    language, theme = language_of(request), _chosen(request, "theme", THEMES) or "auto"
    path = request.url.path
    shared: dict[str, Any] = {
        "t": translator(language),
        "language": language,
        "theme": theme,
        "form_token": _csrf_token(request),
        "navigation": NAVIGATION,
        "nav": "/".join(path.split("/")[:3]),
        "switched": lambda **chosen: _switched(request, **chosen),
        "static": static_url,
        "has_vendor": has_all(request.app.state.vendor),
        "is_fragment": is_fragment(request),
        "signed_in": SESSION_COOKIE in request.cookies,
        "now": system_clock(),
    }
    text = environment().get_template(template).render(shared | values)
    response = HTMLResponse(text, status)
    if SESSION_COOKIE not in request.cookies and FORM_COOKIE not in request.cookies:
        set_cookie(request, response, FORM_COOKIE, _csrf_cookie(request))
    for name, value in (("language", language), ("theme", theme)):
        if request.query_params.get(name) == value:
            set_cookie(request, response, f"kemem_{name}", value, _YEAR)
    return response


def language_of(request: Request) -> str:
    """The language that a reader chose, or else the one that their browser asks for."""
    accepted = request.headers.get("accept-language", "").lower()
    return _chosen(request, "language", LANGUAGES) or ("zh" if accepted.startswith("zh") else "en")


def _chosen(request: Request, name: str, options: tuple[str, ...]) -> str | None:
    """What a reader chose, now or before."""
    for value in (request.query_params.get(name), request.cookies.get(f"kemem_{name}")):
        if value in options:
            return value
    return None


def is_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of a page."""
    headers = request.headers
    return headers.get("hx-request") == "true" and headers.get("hx-boosted") != "true"


def own_address(address: str | None) -> str:
    """An address of the dashboard; any other becomes that of its first page."""
    return address if address and _ADDRESS.fullmatch(address) else PATH


def translator(language: str) -> Callable[[str, str], str]:
    """The function `t` of templates: chooses between an English and a Chinese text."""
    return lambda english, chinese: chinese if language == "zh" else english


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


def _csrf_token(request: Request) -> str:
    """The token for the forms of a page, bound to the browser that gets the page."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator.form_token(_csrf_cookie(request))


def _csrf_cookie(request: Request) -> str:
    """The cookie that tokens are bound to; a browser without one gets it with its first page."""
    cookie = request.cookies.get(SESSION_COOKIE) or request.cookies.get(FORM_COOKIE)
    if cookie is None:
        cookie = getattr(request.state, "csrf_cookie", None) or secrets.token_urlsafe(24)
        request.state.csrf_cookie = cookie
    return cookie


async def _check_csrf(request: Request) -> None:
    """Refuse a change that does not come from a page of ours."""
    token: str | UploadFile | None = request.headers.get("X-Form-Token")
    if token is None:
        token = (await request.form()).get("form_token")
    has_cookie = SESSION_COOKIE in request.cookies or FORM_COOKIE in request.cookies
    if not has_cookie or not isinstance(token, str):
        raise PermissionDenied("a change needs the token of its page: load the page again")
    if not hmac.compare_digest(token.encode(), _csrf_token(request).encode()):
        raise PermissionDenied("the token is not that of this page: load the page again")


def _switched(request: Request, **chosen: str) -> str:
    """The address of this page with another language, theme or cursor."""
    if request.method != "GET":
        return f"{PATH}?{urlencode(chosen)}"
    changed = request.url.include_query_params(**chosen)
    return f"{changed.path}?{changed.query}"


@cache
def environment() -> Environment:
    """The templates: everything is escaped, and an undefined name is an error."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (when, short, number, seconds, size):
        templates.filters[function.__name__] = function
    return templates


def when(at: Micros | None) -> str:
    """A time for people, in the time zone of the server; "–" for none."""
    if at is None:
        return "–"
    moment = datetime.fromisoformat(to_rfc3339(at))
    with suppress(OverflowError):  # of the year 9999 some zones see the next
        moment = moment.astimezone()
    text = f"{moment:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), text)


def short(text: object, most: int = 80) -> str:
    """A text cut to one line.  "a\\nb" -> "a b" """
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def number(value: float | None) -> str:
    """A number for people; "–" for none.  12345.678 -> "12,345.7" """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """A duration for people.  0.0123 -> "12 ms" """
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value / 60:,.0f} min"


def size(count: int | None) -> str:
    """A number of bytes for people.  2048 -> "2.0 KiB" """
    if count is None:
        return "–"
    units = ("B", "KiB", "MiB", "GiB")
    power = min(len(units) - 1, max(0, count.bit_length() - 1) // 10)
    return f"{count:,} B" if power == 0 else f"{count / 1024**power:,.1f} {units[power]}"
