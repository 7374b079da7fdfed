"""Pages: a template in the reader's language and theme, for operators only, safe from CSRF."""

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import UploadFile

from kemem.errors import KeMemError, PermissionDenied, StoreMoved
from kemem.memory import AsyncMemory
from kemem.records import Message, Note
from kemem.runtime import system_clock
from kemem.serve.cli.language import in_language
from kemem.serve.dashboard import display, flash
from kemem.serve.dashboard.fields import Ids, ignored
from kemem.serve.dashboard.labels import error_text, label
from kemem.serve.http import projects
from kemem.serve.http.auth import SESSION_COOKIE, form_token, is_open
from kemem.serve.http.responses import retry_after, shown_error
from kemem.serve.telemetry.prometheus import check_store

PATH = "/dashboard"
LOGIN = "/dashboard/login"
STATIC_PATH = "/dashboard/static"
STATIC = Path(__file__).parent / "static"
VENDOR = STATIC / "vendor"  # files of others that npm brings
VENDOR_FILES = ("htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css", "force-graph.min.js")
SWAGGER_FILES = ("swagger-ui-bundle.js", "swagger-ui.css")  # of the page about the API
FORM_COOKIE = "kemem_form"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with "Origin: null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
SUGGESTED = 200  # users
PATIENCE = 0.4  # seconds that a page waits for the counts of jobs
FAILURES = 2  # of the model in a row, until pages say that it does not answer
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
                request.state.caller.check_operator()
                request.state.caller.check_writes(request.method, request.url.path)
                if request.method not in ("GET", "HEAD"):
                    await _check_csrf(request)
                    form = await request.form()
                    request.state.user_id = form.get("user_id")
                    request.state.agent_id = form.get("agent_id")
                request.state.alerts = await _alerts(request)
                response = await handle(request)
            except Exception as error:  # the edge: people get a page, the log gets the rest
                response = error_page(request, error)
            response.headers.update(HEADERS)
            return response

        return guarded


def error_page(request: Request, error: Exception) -> Response:
    """What went wrong, as a page; internals are logged and not shown."""
    shown = shown_error(error)
    response = page(request, "error.html", status=shown.status, error=shown)
    response.headers.update(HEADERS | retry_after(shown))
    return response


def page(request: Request, template: str, /, status: int = 200, **values: Any) -> Response:
    """A template as a response, in the reader's language and with the CSRF token for its forms.

    `?language=` and `?theme=` are remembered.
    """

    def switched(**changes: str) -> str:
        """The address of this page with another language, theme or cursor."""
        if request.method != "GET":
            return f"{PATH}?{urlencode(changes)}"
        changed = request.url.include_query_params(**changes)
        return f"{changed.path}?{changed.query}"

    language, theme = language_of(request), _chosen(request, "theme", "auto", "light", "dark")
    part, now, route = is_fragment(request), system_clock(), request.scope.get("route")
    message = None if part else flash.decode(request.cookies.get(flash.COOKIE), language)
    shared: dict[str, Any] = {
        "t": translator(request),
        "language": language,
        "theme": theme or "auto",
        "form_token": form_token(_csrf_cookie(request), request.app.state.project),
        "nav": "/".join(request.url.path.split("/")[:3]),
        "switched": switched,
        "has_vendor": has_all(request.app.state.vendor),
        "is_fragment": part,
        "signed_in": SESSION_COOKIE in request.cookies,
        "given": request.query_params,
        "now": now,
        "zone": display.zone(display.local(now)),
        "offset": display.offset(display.local(now)),
        "label": lambda group, word: label(group, word, language),
        "phrase": partial(in_language, language),
        "error_text": partial(error_text, language=language),
        "problem": None,  # of a form that was refused
        "typed": None,  # into it
        "flash": message,
        "alerts": getattr(request.state, "alerts", ()),
        "ignored": ignored(route.path, request.query_params) if route and status == 200 else (),
        "project": request.app.state.project,
        "projects": _projects(request),
    }
    text = environment().get_template(template).render(shared | values)
    response = HTMLResponse(text, status)
    if SESSION_COOKIE not in request.cookies and FORM_COOKIE not in request.cookies:
        set_cookie(request, response, FORM_COOKIE, _csrf_cookie(request))
    if message:
        set_cookie(request, response, flash.COOKIE, "", 0)  # it is shown once
    for name in ("language", "theme"):
        if request.query_params.get(name) == shared[name]:
            set_cookie(request, response, f"kemem_{name}", shared[name], _YEAR)
    if projects.QUERY in request.query_params and status == 200:
        set_cookie(request, response, projects.COOKIE, shared["project"] or "")
    return response


def _projects(request: Request) -> list[str]:
    """The projects that the reader may switch to."""
    caller = getattr(request.state, "caller", None)  # none: refused before it was known
    if caller is None or is_open(request.url.path):
        return []
    if not caller.is_operator or caller.project is not None:
        return []
    return sorted(request.app.state.authenticator.projects)


def done(request: Request, address: str, message: str, **values: object) -> Response:
    """Lead to the page that shows what an action did, with one of the messages of `flash`."""
    response = RedirectResponse(address, status_code=303)
    set_cookie(request, response, flash.COOKIE, flash.encode(message, **values), flash.SECONDS)
    return response


def translator(request: Request) -> Callable[[str, str], str]:
    """The function `t` of templates: chooses between an English and a Chinese text."""
    is_chinese = language_of(request) == "zh"
    return lambda english, chinese: chinese if is_chinese else english


def language_of(request: Request) -> str:
    """The language that a reader chose, or else the one that their browser asks for."""
    accepted = request.headers.get("accept-language", "").lower()
    return _chosen(request, "language", "en", "zh") or ("zh" if accepted.startswith("zh") else "en")


def _chosen(request: Request, name: str, *options: str) -> str | None:
    """What a reader chose, now or before."""
    values = (request.query_params.get(name), request.cookies.get(f"kemem_{name}"))
    return next((value for value in values if value in options), None)


def is_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of a page."""
    headers = request.headers
    return headers.get("hx-request") == "true" and headers.get("hx-boosted") != "true"


def own_address(address: str | None) -> str:
    """An address of the dashboard; any other becomes that of its first page."""
    return address if address and _ADDRESS.fullmatch(address) else PATH


def set_cookie(
    request: Request, response: Response, name: str, value: str, max_age: int | None = None
) -> None:
    """A cookie that no script reads and no other site sends."""
    proxied = request.headers.get("x-forwarded-proto") == "https"
    secure = proxied or request.url.scheme == "https"
    options: dict[str, Any] = {"path": PATH, "httponly": True, "samesite": "strict"}
    response.set_cookie(name, value, max_age=max_age, secure=secure, **options)


def _csrf_cookie(request: Request) -> str:
    """The cookie that tokens are bound to; a browser without one gets it with its first page."""
    cookie = request.cookies.get(SESSION_COOKIE) or request.cookies.get(FORM_COOKIE)
    if cookie is None:
        cookie = getattr(request.state, "csrf_cookie", None) or secrets.token_urlsafe(24)
        request.state.csrf_cookie = cookie
    return cookie


async def _alerts(request: Request) -> dict[str, Any]:
    """What an operator should look at, by name: it is shown on every page."""
    is_open = request.url.path == LOGIN  # to strangers: the store is not asked for them
    if is_fragment(request) or request.method != "GET" or is_open:
        return {}
    metrics, moved_to = request.app.state.metrics, None
    try:
        await asyncio.wait_for(check_store(metrics.memory), PATIENCE)
    except StoreMoved as error:
        moved_to = error.details["place"]
    except (KeMemError, TimeoutError):  # the page says so
        pass
    with suppress(TimeoutError):  # then the last counts do
        await asyncio.wait_for(metrics.health.get(), PATIENCE)
    health = metrics.health.last
    alerts = {"jobs": health and health.failed_jobs, "llm": metrics.llm_failures >= FAILURES}
    return {name: it for name, it in {"moved": moved_to, **alerts}.items() if it}


async def _check_csrf(request: Request) -> None:
    """Refuse a change that does not come from a page of ours."""
    token: str | UploadFile | None = request.headers.get("X-Form-Token")
    if token is None:
        token = (await request.form()).get("form_token")
    has_cookie = SESSION_COOKIE in request.cookies or FORM_COOKIE in request.cookies
    if not has_cookie or not isinstance(token, str):
        raise PermissionDenied("a change needs the token of its page: load the page again")
    expected = form_token(_csrf_cookie(request), request.app.state.project)
    if not hmac.compare_digest(token.encode(), expected.encode()):
        raise PermissionDenied("the token is not that of this page: load the page again")


def owner_of(row: Message | Note) -> Ids:
    """The ids under which a memory is found; what users share is the agent's."""
    session_id = None if row.user_id or isinstance(row, Note) else row.session_id
    return {"user_id": row.user_id or None, "agent_id": row.agent_id, "session_id": session_id}


def link_to(row: Message | Note) -> str:
    """Where the dashboard shows a memory; a message id is unique only within its owner."""
    return address(f"/dashboard/memories/{quote(row.id)}", owner_of(row))


def address(path: str, query: Ids) -> str:
    """An address with the values of a query that are not empty."""
    return f"{path}?{urlencode({name: value for name, value in query.items() if value})}"


async def suggested_users(memory: AsyncMemory) -> list[str]:
    """Users that a form suggests."""
    users = await memory.users(limit=SUGGESTED)
    return sorted({entry.id for entry in users.items if entry.id})


def static_url(name: str) -> str:
    """The URL of a file, with its version."""
    try:
        file = (STATIC / name).stat()
    except FileNotFoundError:
        return f"{STATIC_PATH}/{name}"
    return f"{STATIC_PATH}/{name}?v={file.st_mtime_ns ^ file.st_size:x}"


def has_all(vendor: Path, names: Sequence[str] = VENDOR_FILES) -> bool:
    """Whether the files that npm brings are there."""
    return all((vendor / name).is_file() for name in names)


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
    templates.globals |= {"static": static_url, "link_to": link_to}
    templates.globals |= {"highlighted": display.highlighted, "labelled": display.labelled}
    for name in ("when", "day", "short", "counted", "number", "seconds", "size"):
        templates.filters[name] = getattr(display, name)
    return templates
