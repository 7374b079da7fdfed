"""Starts the process that forks others, tests.warm, without importing what it does.

Tests that run in several processes share one of whoever starts them.
"""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = "KEMEM_TEST_FORKSERVER"  # the address, for processes of tests
_shared = os.environ.get(SHARED)  # before any test empties the environment


@cache
def address() -> str:
    """The address of the process, which is started on first use."""
    return _shared or _start()


def share() -> None:
    """Start it for all processes that this one starts."""
    os.environ[SHARED] = address()


def _start() -> str:
    folder = tempfile.mkdtemp()
    place = f"{folder}/socket"
    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listening, theirs:
        listening.bind(place)
        listening.listen()
        inherited = [theirs.fileno(), listening.fileno()]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": ""}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", *map(str, inherited)],
            cwd=ROOT,
            pass_fds=inherited,
            env=environment,
        )

    def end() -> None:
        ours.close()  # which ends the process
        process.wait()
        shutil.rmtree(folder)

    atexit.register(end)
    return place
