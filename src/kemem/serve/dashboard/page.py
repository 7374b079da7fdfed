"""Pages: a template, the reader's language and theme, and what every page shows."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kemem.assemble import system_clock
from kemem.records import Micros
from kemem.serve.dashboard.forms import form_token, seat, set_cookie
from kemem.serve.dashboard.static_files import address, has_all
from kemem.serve.http.auth import SESSION_COOKIE
from kemem.text.times import to_rfc3339

LANGUAGES = ("en", "zh")
THEMES = ("auto", "light", "dark")
_YEAR = 365 * 24 * 3600
_ADDRESS = re.compile(r"/dashboard(?:/[^\s\\]*)?(?:\?[^\s\\]*)?")


@dataclass(frozen=True, slots=True)
class View:
    """A view of the dashboard, as the navigation names it."""

    path: str
    english: str
    chinese: str

    def holds(self, path: str) -> bool:
        """Whether a page belongs to it."""
        within = self.path != "/dashboard" and path.startswith(f"{self.path}/")
        return within or path == self.path


VIEWS = (
    View("/dashboard", "Overview", "总览"),
    View("/dashboard/memories", "Memories", "记忆"),
    View("/dashboard/playground", "Search playground", "检索试验"),
    View("/dashboard/conversations", "Conversations", "对话"),
    View("/dashboard/graph", "Graph", "图谱"),
    View("/dashboard/traces", "Recall traces", "回忆轨迹"),
    View("/dashboard/quality", "Quality", "质量"),
    View("/dashboard/jobs", "Jobs", "任务"),
    View("/dashboard/system", "System", "系统"),
)


def page(request: Request, template: str, /, status: int = 200, **values: Any) -> Response:
    """A template as an answer, in the reader's language and with the token for its forms.

    `?language=` and `?theme=` are remembered.
    """
    language, theme = language_of(request), theme_of(request)
    path = request.url.path
    shared: dict[str, Any] = {
        "t": translator(language),
        "language": language,
        "theme": theme,
        "form_token": form_token(request),
        "views": VIEWS,
        "nav": next((view for view in VIEWS if view.holds(path)), None),
        "path": path,
        "switched": lambda **chosen: _switched(request, **chosen),
        "static": address,
        "has_vendor": has_all(request.app.state.vendor),
        "is_fragment": is_fragment(request),
        "signed_in": SESSION_COOKIE in request.cookies,
        "now": system_clock(),
    }
    text = environment().get_template(template).render(shared | values)
    response = HTMLResponse(text, status)
    seat(request, response)
    _remember(request, response, language=language, theme=theme)
    return response


def language_of(request: Request) -> str:
    """The language that a reader chose, or else the one that their browser asks for."""
    for chosen in (request.query_params.get("language"), request.cookies.get("kemem_language")):
        if chosen in LANGUAGES:
            return str(chosen)
    wanted = request.headers.get("accept-language", "").lower()
    return "zh" if wanted.startswith("zh") else "en"


def theme_of(request: Request) -> str:
    """The theme that a reader chose; "auto" is that of their system."""
    for chosen in (request.query_params.get("theme"), request.cookies.get("kemem_theme")):
        if chosen in THEMES:
            return str(chosen)
    return "auto"


def is_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of a page."""
    headers = request.headers
    return headers.get("hx-request") == "true" and headers.get("hx-boosted") != "true"


def own_address(address: str | None) -> str:
    """An address of the dashboard, as it was given; anything else leads to its first page."""
    return address if address and _ADDRESS.fullmatch(address) else "/dashboard"


def translator(language: str) -> Callable[[str, str], str]:
    """The function `t` of templates: chooses between an English and a Chinese text."""

    def t(english: str, chinese: str) -> str:
        return chinese if language == "zh" else english

    return t


@cache
def environment() -> Environment:
    """The templates: everything is escaped, and what is not given is an error."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "when": when,
        "short": short,
        "number": number,
        "seconds": seconds,
        "size": size,
    }
    return templates


def when(at: Micros | None) -> str:
    """A time for people, in the time zone of the server; "–" for none."""
    if at is None:
        return "–"
    moment = datetime.fromisoformat(to_rfc3339(at))
    with suppress(OverflowError):  # of the year 9999 some zones see the next
        moment = moment.astimezone()
    shown = f"{moment:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), shown)


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


def _switched(request: Request, **chosen: str) -> str:
    """The address of this page with another language or theme."""
    if request.method != "GET":
        return f"/dashboard?{urlencode(chosen)}"
    changed = request.url.include_query_params(**chosen)
    return f"{changed.path}?{changed.query}"


def _remember(request: Request, response: Response, **chosen: str) -> None:
    for name, value in chosen.items():
        if request.query_params.get(name) == value:
            set_cookie(request, response, f"kemem_{name}", value, _YEAR)
