"""Processes that start at once: forked from one that has imported what takes a second or two.

Each is a process of its own with its own streams, signals and end, like any other. What depends on
a cold start (an import that fails, what is imported and when), or on a signal that arrives before
anything else does, needs a new interpreter instead.
"""

import asyncio
import atexit
import gc
import io
import json
import os
import runpy
import select
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, TextIO

import httpcore2
import httpx
from pydantic import SecretStr
from structlog.testing import capture_logs

import kemem
from kemem.memory import AsyncMemory
from kemem.serve.http.app import create_app
from kemem.settings import Settings
from tests import forkserver, warm_python

STEP = 0.01  # seconds
KEY = SecretStr("any")
HEAVY = (  # what is imported when it is needed
    *("agents", "openai.resources.chat.completions", "rich.progress", "typer.main"),
    *("uvicorn.lifespan.on", "uvicorn.protocols.http.h11_impl"),
)


class Warm:
    """A running command, with what tests use of subprocess.Popen."""

    def __init__(self, status: IO[bytes]) -> None:
        self._status = status
        self._end: int | None = None
        self.pid = int(status.readline())

    def poll(self) -> int | None:
        """How it ended, as Popen tells it; None while it runs."""
        if self._end is None:
            os.set_blocking(self._status.fileno(), False)
            if line := self._status.read():
                self._end = os.waitstatus_to_exitcode(int(line))
                self._status.close()
        return self._end

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, when it has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (end := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("kemem", timeout or 0)
            time.sleep(STEP)
        return end

    def send_signal(self, number: int) -> None:
        """Tell it something, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def start_warm(
    arguments: Sequence[str],
    streams: Sequence[IO[bytes]],
    environment: Mapping[str, str],
    cwd: Path,
) -> Warm:
    """Start the command `kemem` with its three streams."""
    numbers = [stream.fileno() for stream in streams]
    status = warm_python.ask(
        forkserver.address(), ["kemem", *arguments], numbers, environment, str(cwd)
    )
    return Warm(os.fdopen(status, "rb", buffering=0))


def share_certificates() -> None:
    """Read those of the system once: each HTTP client does, and it takes longer than most tests."""
    ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]
    httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)


def python() -> list[str]:
    """In place of `sys.executable`, before -W, -c and -m."""
    return [sys.executable, "-IS", warm_python.__file__, forkserver.address()]


def write_command(folder: Path) -> None:
    """Make an executable `kemem` in a folder, for a PATH."""
    command = folder / "kemem"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(python())} kemem "$@"\n')
    command.chmod(0o755)


def _become_asked(lifeline: socket.socket, listening: socket.socket) -> list[str]:
    """Fork for each request; returns in the new process what it shall run."""
    while True:
        ready, _, _ = select.select([lifeline, listening], [], [])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if lifeline in ready:
            os._exit(0)
        connection, _ = listening.accept()
        head, streams, _, _ = socket.recv_fds(connection, 4, 3)
        request = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        arguments, environment, cwd = json.loads(request)
        if environment.get("KEMEM_EMBEDDER") != "none":
            _load_model()
        if os.fork() == 0:
            lifeline.close()
            listening.close()
            _mind(connection.detach())
            break
        connection.close()
        for each in streams:
            os.close(each)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # New ones: the old, which stay in sys.__stdout__, believe that they can seek if a file could.
    sys.stdout = _writer(1, sys.stdout, line_buffering=os.isatty(1))
    sys.stderr = _writer(2, sys.stderr, line_buffering=True)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    return list(arguments)


def _writer(number: int, like: TextIO, *, line_buffering: bool) -> TextIO:
    """A writer to a stream of this process, with the encoding of another."""
    binary = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(
        binary, encoding=like.encoding, errors=like.errors, line_buffering=line_buffering
    )


@cache
def _load_model() -> None:
    """Load the model of the local embedder once for all; without a thread, unlike the embedder."""
    import_module("kemem.backends.local")._model().complete()
    gc.freeze()


def _mind(connection: int) -> None:
    """Fork once more and tell how that one ends; returns in it alone."""
    pid = os.fork()
    if pid == 0:
        os.close(connection)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def kill_if_forsaken() -> None:
        with suppress(ConnectionError):
            os.read(connection, 1)  # nobody sends anything: it ends when the other side does
        os.kill(pid, signal.SIGKILL)

    with suppress(OSError):  # whoever asked may be gone
        os.write(connection, b"%d\n" % pid)
        threading.Thread(target=kill_if_forsaken, daemon=True).start()
        os.write(connection, b"%d" % os.waitpid(pid, 0)[1])
    os._exit(0)


def _run(arguments: list[str]) -> None:
    """Do what Python does with these arguments, or the command `kemem`."""
    match arguments:
        case ["-W", action, *rest]:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            _run(rest)
        case ["-c", code, *rest]:
            sys.argv, sys.path[0] = ["-c", *rest], ""
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(main))
        case ["-m", module, *rest]:
            sys.argv, sys.path[0] = [module, *rest], os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["kemem", *_]:
            sys.argv = arguments
            import_module("kemem.serve.cli.main").main()
        case _:
            sys.exit(f"tests.warm cannot run {arguments}")


async def _use_once() -> None:
    """Do once what most programs do first: what is compiled and loaded then stays."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), embedder="none", llm="none")
        app = create_app(AsyncMemory(settings=settings))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            for text in ("我搬到了罗马，我不吃辣。", "I moved to Oslo, I don't eat beef."):
                await client.post("/v1/memories", json={"user_id": "u", "messages": text})
                asked = {"user_id": "u", "query": text}
                await client.post("/v1/memories/search", json=asked)
                await client.post("/v1/recall", json={"user_id": "u", "question": text})
            await client.get("/readyz")
        guarded = create_app(AsyncMemory(settings=settings.model_copy(update={"api_key": KEY})))
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.get("/dashboard/login")  # the last route that is looked for


def _run_to_end(arguments: list[str]) -> None:
    """Run, and end as Python does, but leave what was imported to the system: to take it apart
    takes longer than most programs do.
    """
    code = 0
    try:
        _run(arguments)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what is not closed is told
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    share_certificates()
    # All but the command itself, whose consoles read the environment, and what is for tests.
    for each in walk_packages(kemem.__path__, "kemem."):
        if not each.name.startswith(("kemem.serve.cli", "kemem.testing", "kemem.integrations")):
            import_module(each.name)
    for heavy in HEAVY:
        import_module(heavy)
    with capture_logs():
        asyncio.run(_use_once())
    for thread in set(threading.enumerate()) - {threading.main_thread()}:
        thread.join(timeout=10)
    assert threading.active_count() == 1, "what has threads must not fork"
    gc.freeze()  # at the end nobody need take apart what was imported
    _run_to_end(_become_asked(*(socket.socket(fileno=int(each)) for each in sys.argv[1:])))
