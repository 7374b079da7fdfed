"""The HTTP server that plays a script, in this process or in one of its own."""

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from kemem.testing.openai_server.script import Script, ScriptPlayer, script_to_dict
from kemem.testing.openai_server.wire import (
    MODELS,
    Answer,
    Fault,
    Streamed,
    parts,
    status,
    streamed,
)

_POLL = 0.02  # seconds between two checks whether the client has disconnected
_TIMEOUT = 30.0  # seconds for a server process to answer or to end


@dataclass(slots=True)
class OpenAIServer:
    """Where the server is, and the bodies of the chat requests that it was sent."""

    base_url: str
    requests: list[dict[str, Any]]
    hung_up: threading.Event = field(default_factory=threading.Event)  # a client, too early


@contextmanager
def running_openai_server(
    script: Script,
    *,
    refuses: Collection[str] = (),
    strict: Collection[str] = (),
    repeat_last: bool = False,
    formatted: Answer = None,
) -> Iterator[OpenAIServer]:
    """A server on a free port that gives a script's answers: texts, calls, JSON values, faults.

    A None is an answer whose content is null. Response formats named by `refuses`, and "tools", are
    answered with 400 and use up nothing:  running_openai_server(script, refuses={"json_schema"})
    So are histories that break a rule named by `strict`: "reasoning_content", "tools", "pairs".
    Requests with a response format get `formatted`, if it is given, and use up nothing either.
    """
    http = ScriptedServer(0, ScriptPlayer(script, refuses, strict, repeat_last, formatted))
    thread = threading.Thread(target=http.serve_forever, args=(_POLL,), daemon=True)
    thread.start()
    try:
        yield http.info
    finally:
        http.closing.set()
        http.shutdown()
        http.server_close()
        thread.join()


@dataclass(frozen=True, slots=True)
class OpenAIServerProcess:
    """Where a server in another process is, and how to end it early."""

    base_url: str
    process: subprocess.Popen[str]

    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests that it was sent, in order."""
        connection = HTTPConnection(urlsplit(self.base_url).netloc, timeout=_TIMEOUT)
        try:
            connection.request("GET", "/requests")
            requests: list[dict[str, Any]] = json.load(connection.getresponse())
            return requests
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
    player = ScriptPlayer(script, refuses, strict, repeat_last, formatted)
    command = [sys.executable, "-m", "kemem.testing.openai_server", "-", "--port", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(script_to_dict(player)))
            process.stdin.close()
            base_url = process.stdout.readline().strip()
            if not base_url:
                raise RuntimeError(f"the scripted server ended with {process.wait(_TIMEOUT)}")
            yield OpenAIServerProcess(base_url, process)
        finally:
            process.kill()


class ScriptedServer(ThreadingHTTPServer):
    """A server that listens, and plays a script once it serves."""

    daemon_threads = True

    def __init__(self, port: int, player: ScriptPlayer) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.player = player
        self.info = OpenAIServer(f"http://127.0.0.1:{self.server_port}/v1", player.requests)
        self.closing = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"  # streams are chunked
    disable_nagle_algorithm = True  # every delta leaves at once

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.server.info.hung_up.set()

    def do_GET(self) -> None:
        pages = {"/v1/models": MODELS, "/requests": self.server.info.requests}
        if self.path not in pages:
            return self._send(status(404, "no such path"))
        self._send(Fault(json.dumps(pages[self.path]).encode()))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self._send(status(404, "no such path"))
        answer = self.server.player.answer(request)
        if isinstance(answer, Fault):
            return self._send(answer)
        self._stream(streamed(answer), request)

    def _send(self, answer: Fault) -> None:
        if answer.reset:
            return self._reset()
        self._wait(answer.delay)
        self._begin(answer.code, "application/json", "Content-Length", str(len(answer.body)))
        self.wfile.write(answer.body)

    def _stream(self, answer: Streamed, request: dict[str, Any]) -> None:
        kind = "text/event-stream" if request.get("stream") else "application/json"
        self._begin(200, kind, "Transfer-Encoding", "chunked")
        for number, part in enumerate(parts(answer, request)):
            self._wait(answer.pause if number else 0)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        if answer.breaks_after is not None and not answer.quietly:
            return self._reset()
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, code: int, kind: str, framing: str, framed: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header(framing, framed)
        self.send_header("Connection", "close")
        self.end_headers()

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)  # closing then sends RST
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        os.close(self.connection.detach())
        self.close_connection = True

    def _wait(self, seconds: float) -> None:
        """Until then, or until the server closes; a client that hangs up is a ConnectionError."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.server.closing.wait(min(left, _POLL)):
                return
            if select.select([self.connection], [], [], 0)[0]:
                raise ConnectionAbortedError("the client has hung up")

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal."""
