"""Pages of the dashboard for tests: a browser without a network, and what no page may hold."""

import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr

from kemem.memory import AsyncMemory
from kemem.serve.dashboard.operators import survey
from kemem.serve.dashboard.page import STATIC_PATH
from kemem.serve.http.app import create_app
from kemem.serve.telemetry.metrics import StaleWhileRevalidate
from kemem.settings import Settings
from tests.routes import is_page

EVIL = "<img src=x onerror=alert(1)>\"'"
HTML = {"Accept": "text/html,application/xhtml+xml"}


@asynccontextmanager
async def browsing(
    data_dir: Path, *, base_url: str = "http://127.0.0.1:8420", **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, FastAPI]]:
    """A browser at a server of this process, and the app that answers it."""
    for name in {"api_key", "jwt_secret"} & settings.keys():
        settings[name] = SecretStr(settings[name])
    given = {"embedder": "none", "llm": "none", "failure_rate_limit": 0, **settings}
    chosen = Settings(**{"data_dir": data_dir, **given})
    async with AsyncMemory(settings=chosen) as memory:
        app = create_app(memory)
        compute = partial(survey, memory, app.state.metrics)
        app.state.survey = StaleWhileRevalidate(compute, clock=lambda: 0.0, patience=30)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url=base_url, headers=HTML
        ) as browser:
            yield browser, app
        for project in app.state.projects.values():
            await project.state.memory.close()


def page_routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of the dashboard, with something in the place of ids."""
    return sorted(
        (method, re.sub(r"\{[^}]+\}", "x", route.path or ""))
        for route in iter_route_contexts(app.routes)
        if is_page(route.path or "") and not (route.path or "").startswith(STATIC_PATH)
        for method in route.methods or ["GET"]
    )


def text_of(answer: httpx.Response, status: int = 200) -> str:
    """The words of a page that has this status."""
    assert answer.status_code == status, answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def token_of(answer: httpx.Response) -> str:
    """The token of a page for its forms."""
    found = re.search(r'name="form_token" value="([^"]+)"', answer.text)
    found = found or re.search(r'"X-Form-Token": "([^"]+)"', answer.text)
    assert found, answer.text
    return found[1]


async def send(
    browser: httpx.AsyncClient, address: str, at: str = "/dashboard/nowhere", **fields: Any
) -> httpx.Response:
    """A form with the token of a page, if not of the cheapest there is."""
    token = token_of(await browser.get(at))
    return await browser.post(address, data={"form_token": token, **fields})


def faults_of(page: str) -> list[str]:
    """What a page holds that its policy forbids: scripts, styles and handlers in its text."""
    parser = _Faults()
    parser.feed(page)
    parser.close()
    return parser.found


class _Faults(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.found += [f"<{tag} {name}>" for name in self._forbidden(attrs)]
        if tag == "style" or (tag == "script" and not dict(attrs).get("src")):
            self.found.append(f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, text: str) -> None:
        if self._inside in ("script", "style") and text.strip():
            self.found.append(f"text in <{self._inside}>")

    def _forbidden(self, attrs: list[tuple[str, str | None]]) -> Iterator[str]:
        for name, value in attrs:
            named = name.startswith(("on", "hx-on")) or name in ("style", "hx-vars")
            leads_away = name in ("src", "href", "action") and bool(
                re.match(r"\s*(javascript:|data:|https?:|//)", value or "")
            )
            if named or leads_away:
                yield name
