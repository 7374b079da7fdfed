"""How the suite runs; what tests share is in `tests/fixtures.py`."""

import gc
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from tests import forkserver

NOT_RUN = "tests were NOT RUN"
FRAMEWORKS = Path(__file__).with_name("frameworks")


def pytest_configure(config: pytest.Config) -> None:
    """Import what tests share, but not where others run them: the import takes seconds."""
    if config.getoption("numprocesses", None):
        forkserver.share()
    else:
        gc.disable()  # until all is imported, and stays
        config.pluginmanager.register(import_module("tests.fixtures"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out `tests/frameworks/`, which needs `make test-frameworks`, unless it is named."""
    named = any("frameworks" in Path(it).parts for it in config.args)
    return True if collection_path == FRAMEWORKS and not named else None


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: what looks for garbage need not look through them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly, after everything else, which tests were left out for want of a program."""
    reasons = Counter(
        report.longreprtext.partition("Skipped: ")[2].removesuffix("')")
        for report in terminalreporter.getreports("skipped")
        if NOT_RUN in report.longreprtext
    )
    if reasons:
        terminalreporter.section(NOT_RUN, sep="!", red=True)
    for reason, count in reasons.items():
        terminalreporter.line(f"{count} {reason}", red=True)
