"""A real browser for tests: it looks at pages as people do, and keeps what goes wrong on them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from kemem.serve.dashboard.page import VENDOR, VENDOR_FILES, has_all
from tests.conftest import NOT_RUN

PROGRAMS = ("chromium", "chromium-browser")
SCREENSHOTS = os.environ.get("KEMEM_TEST_SCREENSHOTS")  # a folder: they take a while
PATIENCE = 30_000  # milliseconds
LOCALES = {"zh": "zh-CN", "en": "en-GB"}
WIDE: ViewportSize = {"width": 1280, "height": 860}
TABLET: ViewportSize = {"width": 768, "height": 1024}
PHONE: ViewportSize = {"width": 390, "height": 844}
SMALL: ViewportSize = {"width": 360, "height": 740}
Theme = Literal["light", "dark"]


def require_browser(*files: str) -> None:
    """Skip the tests of a fixture where no browser can run them, or files of npm are missing; with
    KEMEM_TEST_BROWSER=required fail instead.
    """
    if lacking := missing(*files):
        refuse = pytest.fail if os.environ.get("KEMEM_TEST_BROWSER") == "required" else pytest.skip
        refuse(f"browser {NOT_RUN}: {lacking}")


def missing(*files: str) -> str | None:
    """What browser tests lack on this machine; None if they can run."""
    if not any(map(shutil.which, PROGRAMS)):
        return "there is no Chromium (on Debian: chromium and fonts-wqy-microhei)"
    if not has_all(VENDOR, (*VENDOR_FILES, *files)):
        return "files of npm are missing (run make assets)"
    return None


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """The Chromium of the system; while it runs, this thread cannot run another event loop."""
    program = next(filter(None, map(shutil.which, PROGRAMS)))
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox to use
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=alone)
        yield browser
        browser.close()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody with a browser window of their own, and what went wrong in it."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a page of the dashboard and wait until all of it is there."""
        answer = self.page.goto(f"{self.url}/dashboard{path}")
        assert answer is not None and answer.status == 200, path
        return self.page

    def look(self, theme: Theme, size: ViewportSize) -> None:
        """Prefer a theme and change the size of the window, on this page and the next ones."""
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        self.page.set_viewport_size(size)

    def keep_picture(self, name: str) -> None:
        """Take a screenshot of the whole page, if people want to look at them."""
        if SCREENSHOTS:
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@contextmanager
def visitor(
    browser: Browser,
    url: str,
    language: str,
    key: str | None = None,
) -> Iterator[Visitor]:
    """A visitor with a new profile; in the end nothing may have gone wrong on any page."""
    context = browser.new_context(
        locale=LOCALES[language],
        color_scheme="light",
        reduced_motion="reduce",
        viewport=WIDE,
        extra_http_headers={"Authorization": f"Bearer {key}"} if key else {},
    )
    with context:
        context.set_default_timeout(PATIENCE)
        someone = Visitor(context.new_page(), url)
        _watch(someone)
        with next_visit(someone):
            yield someone


@contextmanager
def next_visit(someone: Visitor) -> Iterator[None]:
    """What a visitor does without remembering earlier visits; nothing may go wrong meanwhile."""
    someone.page.context.clear_cookies()
    yield
    problems = someone.problems.copy()
    someone.problems.clear()
    assert not problems


def _watch(someone: Visitor) -> None:
    """Keep errors of scripts, of the console (which tells of broken policies) and of requests."""
    problems = someone.problems

    page = someone.page

    def asked(dialog: Dialog) -> None:
        problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def told(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"{message.text} ({page.url})")

    def failed(request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the visitor went on before it was there
            problems.append(f"{request.url}: {request.failure}")

    page.on("dialog", asked)
    page.on("console", told)
    page.on("requestfailed", failed)
    page.on("pageerror", lambda error: problems.append(f"an error: {error.message}"))
