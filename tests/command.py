"""The command `kemem` as people run it: in a process of its own, in an empty home."""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from tests.warm import start_warm

COMMAND = [sys.executable, "-W", "error", "-m", "kemem.serve.cli.main"]
SECONDS = 60


def environment(home: Path, **given: str) -> dict[str, str]:
    """The environment of somebody whose home is empty, with settings by their variables."""
    inherited = {name: it for name, it in os.environ.items() if not name.startswith("KEMEM_")}
    return {
        **inherited,
        "HOME": str(home),
        "KEMEM_DATA_DIR": str(home / "data"),
        "KEMEM_EMBEDDER": "none",
        **given,
    }


def kemem_cold(
    home: Path, *arguments: str, typed: str = "", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a new interpreter, which imports what it finds in the home first."""
    ran = subprocess.run(
        [*COMMAND, *arguments],
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
    """Run the command and wait for its end; it never ends with a traceback."""
    with (
        tempfile.TemporaryFile() as typing,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        typing.write(typed.encode())
        typing.seek(0)
        streams = (typing, output, errors)
        process = start_warm(arguments, streams, environment(home, **given), home, strict=True)
        end = process.wait(SECONDS)
        output.seek(0)
        errors.seek(0)
        shown, told = output.read().decode(), errors.read().decode()
    ran = subprocess.CompletedProcess(["kemem", *arguments], end, shown, told)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran
