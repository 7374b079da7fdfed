"""The HTTP server that plays a script, in this process."""

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kemem.testing.openai_server.script import Play, Script
from kemem.testing.openai_server.wire import MODEL, Answer, Fault, Streamed, parts, status, streamed

_BEAT = 0.02  # seconds between two looks at who has gone


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
    http = ScriptedServer(0, Play(script, refuses, strict, repeat_last, formatted))
    thread = threading.Thread(target=http.serve_forever, args=(_BEAT,), daemon=True)
    thread.start()
    try:
        yield http.site
    finally:
        http.closing.set()
        http.shutdown()
        http.server_close()
        thread.join()


class ScriptedServer(ThreadingHTTPServer):
    """A server that listens, and plays when it is told to serve."""

    daemon_threads = True

    def __init__(self, port: int, play: Play) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.play = play
        self.site = OpenAIServer(f"http://127.0.0.1:{self.server_port}/v1", play.requests)
        self.closing = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"  # streams are chunked
    disable_nagle_algorithm = True  # every delta leaves at once

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.server.site.hung_up.set()

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kemem"}]}
        known = {"/v1/models": models, "/requests": self.server.site.requests}
        found = self.path in known
        self._send(Fault(_json(known[self.path])) if found else status(404, "no such path"))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self._send(status(404, "no such path"))
        answer = self.server.play.answer(request)
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
            if self.server.closing.wait(min(left, _BEAT)):
                return
            if select.select([self.connection], [], [], 0)[0]:
                raise ConnectionAbortedError("the client has hung up")

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal."""


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
