"""The command `kemem` as people run it: in a process of its own, in an empty home."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-W", "error", "-m", "kemem.serve.cli"]
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


def kemem(
    home: Path, *arguments: str, typed: str = "", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run the command and wait for its end; it never ends with a traceback."""
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
