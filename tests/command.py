"""The command `kemem` as people run it, in an empty home: in this process, or in one of its own."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

import structlog

from kemem.serve.cli import language
from kemem.serve.cli.main import main
from tests import warm

COMMAND = ["-W", "error", "-m", "kemem.serve.cli.main"]
SECONDS = 60


def command(*arguments: str) -> list[str]:
    """The command in a process of its own, which starts at once."""
    return [*warm.python(), *COMMAND, *arguments]


def environment(home: Path, **given: str) -> dict[str, str]:
    """The environment of somebody whose home is empty, with settings by their variables."""
    inherited = {name: it for name, it in os.environ.items() if not name.startswith("KEMEM_")}
    return {
        **inherited,
        "HOME": str(home),
        "KEMEM_DATA_DIR": str(home / "data"),
        "KEMEM_EMBEDDER": "none",
        "LC_ALL": "C.UTF-8",
        **given,
    }


@contextmanager
def own_signals() -> Iterator[None]:
    """A command that runs in this process may handle signals, until the block ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def kemem_cold(
    home: Path, *arguments: str, typed: str = "", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a new interpreter, which imports what it finds in the home first."""
    ran = subprocess.run(
        [sys.executable, *COMMAND, *arguments],
        input=typed,
        env=environment(home, **given),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


@contextmanager
def own_logs() -> Iterator[None]:
    """A command that runs in this process may set up its log, which ends with the block."""
    before, handlers, level = structlog.get_config(), logging.root.handlers[:], logging.root.level
    yield
    structlog.configure(**before)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def kemem(
    home: Path, *arguments: str, typed: str = "", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, as somebody whose home is empty; it shows no traceback."""
    code: object = 0
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as typing,
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        own_logs(),
        own_signals(),
        chdir(home),
        patch.dict(os.environ, environment(home, **given), clear=True),
        patch.multiple(sys, argv=["kemem", *arguments], stdin=typing, stdout=output, stderr=errors),
        patch.object(language, "_current", "en"),  # of this command alone
    ):
        typing.write(typed)
        typing.seek(0)
        try:
            main()
        except SystemExit as end:
            code = end.code
        output.seek(0)
        errors.seek(0)
        shown, reported = output.read(), errors.read()
    assert isinstance(code, int) and "Traceback" not in reported, reported
    return subprocess.CompletedProcess(["kemem", *arguments], code, shown, reported)
