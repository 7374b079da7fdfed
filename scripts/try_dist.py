"""Installs the built wheel into an empty virtual environment of each Python, and uses it there.

    python scripts/try_dist.py dist/kemem_memory-0.2.0-py3-none-any.whl python3.11 python3.14

Each Python remembers and finds two facts, prints the version of the command, starts a server, and
loads the dashboard and its scripts from it. The first thing that fails ends the run.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

REMEMBER = """
from kemem import Memory

with Memory(data_dir="data") as memory:
    memory.add("I live in Berlin. 我不吃辣。", user_id="ann")
    assert "Berlin" in str(memory.search("她住在哪里？", user_id="ann", limit=1))
    assert "不吃辣" in str(memory.search("spicy food", user_id="ann", limit=1))
"""
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PATIENCE = 60  # seconds that a server may take to start


def main(wheel: Path, pythons: list[str]) -> None:
    for python in pythons:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{version(python)}: {try_one(wheel.resolve(), python, Path(folder))}")


def version(python: str) -> str:
    command = [python, "-c", "import platform; print(platform.python_version())"]
    return (
        "Python "
        + subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    )


def try_one(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel and use it; returns the version that the command prints."""
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    binaries = folder / "venv/bin"
    pip: list[str | Path] = [
        binaries / "python",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    subprocess.run([*pip, "--constraint", CONSTRAINTS, f"{wheel}[server]"], check=True)
    subprocess.run([binaries / "python", "-W", "error", "-c", REMEMBER], cwd=folder, check=True)
    printed = subprocess.run(
        [binaries / "kemem", "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert wheel.name.split("-")[1] in printed, printed
    try_server(binaries, folder)
    return printed


def try_server(binaries: Path, folder: Path) -> None:
    """Start a server and load from it what a browser would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [binaries / "kemem", "serve", "--port", str(port), "--data-dir", folder / "data"],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/readyz")
        search = urllib.request.Request(
            f"{address}/v1/memories/search",
            json.dumps({"user_id": "ann", "query": "Where does she live?"}).encode(),
            {"Content-Type": "application/json"},
        )
        assert b"Berlin" in get(search)
        for script in ("htmx.min.js", "uPlot.iife.min.js", "force-graph.min.js", "LICENSES.txt"):
            assert get(f"{address}/dashboard/static/vendor/{script}"), script
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            get(address)
            return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def get(request: str | urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return bytes(response.read())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
