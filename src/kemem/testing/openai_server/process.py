"""The scripted server as a process of its own."""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from kemem.testing.openai_server.script import Play, told
from kemem.testing.openai_server.wire import Answer

_PATIENCE = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class OpenAIServerProcess:
    """Where a server in another process is, and how to end it early."""

    base_url: str
    process: subprocess.Popen[str]

    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests that it was sent, in order."""
        connection = HTTPConnection(urlsplit(self.base_url).netloc, timeout=_PATIENCE)
        try:
            connection.request("GET", "/requests")
            sent: list[dict[str, Any]] = json.load(connection.getresponse())
            return sent
        finally:
            connection.close()


@contextmanager
def openai_server_process(
    script: Sequence[Answer],
    *,
    port: int = 0,
    refuses: Collection[str] = (),
    strict: Collection[str] = (),
    repeat_last: bool = False,
    formatted: Answer = None,
) -> Iterator[OpenAIServerProcess]:
    """`running_openai_server` in a process of its own, on a port that may be chosen."""
    play = json.dumps(told(Play(script, refuses, strict, repeat_last, formatted)))
    command = [sys.executable, "-m", "kemem.testing.openai_server", "-", "--port", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(play)
            process.stdin.close()
            base_url = process.stdout.readline().strip()
            if not base_url:
                raise RuntimeError(f"the scripted server ended with {process.wait(_PATIENCE)}")
            yield OpenAIServerProcess(base_url, process)
        finally:
            process.kill()
