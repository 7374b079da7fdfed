"""The command `kemem` as a process that starts at once: forked from one that has it imported.

A process of its own with its own streams, signals and end, like any other; only the second or
two of importing is spared. What the documentation shows is run cold, as people do.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

STEP = 0.01  # seconds


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
    *,
    strict: bool = False,
) -> Warm:
    """Start the command with its three streams; `strict` makes warnings errors."""
    asked = json.dumps([[*arguments], dict(environment), str(cwd), strict]).encode()
    read, write = os.pipe()
    given = [*(stream.fileno() for stream in streams), write]
    socket.send_fds(_nursery(), [len(asked).to_bytes(4)], given)
    _nursery().sendall(asked)
    os.close(write)
    return Warm(os.fdopen(read, "rb", buffering=0))


@cache
def _nursery() -> socket.socket:
    """The way to the process that forks."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(root), str(root / "src")])
    process = subprocess.Popen(
        command, cwd=root, pass_fds=[theirs.fileno()], env={**os.environ, "PYTHONPATH": path}
    )
    theirs.close()

    def end() -> None:
        ours.close()  # which ends the process
        process.wait()

    atexit.register(end)
    return ours


def _become_asked(requests: socket.socket) -> None:
    """Fork for each request; returns in the new process, which then is what was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who mind
    while True:
        head, given, _, _ = socket.recv_fds(requests, 4, 4)
        if not head:
            os._exit(0)
        size = int.from_bytes(head)
        asked = requests.recv(size, socket.MSG_WAITALL)
        if os.fork() == 0:
            requests.close()
            _mind(given.pop())
            break
        for each in given:
            os.close(each)
    for number, stream in enumerate(given):
        os.dup2(stream, number)
        os.close(stream)
    arguments, environment, cwd, strict = json.loads(asked)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["kemem", *arguments]
    if strict:
        warnings.simplefilter("error")


def _mind(status: int) -> None:
    """Fork once more and tell how that one ends; returns in it alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(status, b"%d\n" % pid)
        os.write(status, b"%d" % os.waitpid(pid, 0)[1])
        os._exit(0)
    os.close(status)


if __name__ == "__main__":
    for heavy in ("kemem.chat.turn", "kemem.serve.http.app", "typer.main"):
        import_module(heavy)
    assert threading.active_count() == 1, "what has threads must not fork"
    gc.freeze()  # at the end nobody need take apart what was imported
    _become_asked(socket.socket(fileno=int(sys.argv[1])))
    import_module("kemem.serve.cli.main").main()  # only now: its consoles read the environment
