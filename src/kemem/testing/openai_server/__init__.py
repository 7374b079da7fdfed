"""A real HTTP server that speaks OpenAI's API from a script, and fails as real ones do.

with running_openai_server([{"facts": []}, status(500), RESET]) as server:
    client = AsyncOpenAI(base_url=server.base_url, api_key="any")

Embeddings and rankings (`/v1/embeddings`, `/v1/rerank`) it gives by hashed words; the faults of
these are a list of their own:  running_openai_server([], faults=[status(429, retry_after="1")])

As a command it reads the script from a file:  python -m kemem.testing.openai_server SCRIPT.json
"""

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from kemem.testing.openai_server.answers import (
    EMPTY,
    GARBAGE,
    MODEL,
    NO_CHOICES,
    NULL_CONTENT,
    REASON,
    RESET,
    TRUNCATED,
    Answer,
    Fault,
    Script,
    Streamed,
    hang,
    huge,
    parts,
    status,
    streamed,
)
from kemem.testing.openai_server.rules import RULES
from kemem.testing.openai_server.vectors import VECTORS

__all__ = [
    "EMPTY",
    "GARBAGE",
    "MODEL",
    "MODELS",
    "NO_CHOICES",
    "NULL_CONTENT",
    "REASON",
    "RESET",
    "STRICT",
    "TRUNCATED",
    "Answer",
    "Fault",
    "OpenAIServer",
    "OpenAIServerProcess",
    "Script",
    "ScriptPlayer",
    "ScriptedServer",
    "Streamed",
    "hang",
    "huge",
    "openai_server_process",
    "parts",
    "running_openai_server",
    "status",
    "streamed",
]

MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kemem"}]}
_POLL = 0.02  # seconds between two checks whether the client has disconnected
_TIMEOUT = 30.0  # seconds for a server process to answer or to end


STRICT = frozenset(RULES)


@dataclass(slots=True)
class ScriptPlayer:
    """A script, its rules, and how far it has been played; thread-safe."""

    script: Script
    refuses: Collection[str] = ()
    strict: Collection[str] = ()
    repeat_last: bool = False
    formatted: Answer = None
    faults: Sequence[Fault | None] = ()  # of embeddings and rankings; None is an honest answer
    requests: list[dict[str, Any]] = field(default_factory=list, init=False)
    _turn: int = field(default=0, init=False)
    _fault: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if unknown := set(self.strict) - STRICT:
            raise ValueError(f"strict knows {sorted(STRICT)}, not {sorted(unknown)}")

    def answer(self, request: dict[str, Any]) -> Answer:
        """The next answer of the script, or one that uses up nothing of it."""
        form = (request.get("response_format") or {}).get("type")
        features = [form, *request]
        refused = (f"{it} is not supported" for it in features if it in self.refuses)
        broken = (rule(request) for name, rule in RULES.items() if name in self.strict)
        reason = next(chain(refused, *broken), None)
        unscripted = status(400, reason) if reason else self.formatted if form else None
        with self._lock:
            self.requests.append(request)
            turn, self._turn = self._turn, self._turn + (unscripted is None)
        if unscripted is not None:
            return unscripted
        if callable(self.script):
            return self.script(request)
        size = len(self.script)
        if turn >= size and not (size and self.repeat_last):
            return status(500, f"the script has only {size} answers")
        return self.script[min(turn, size - 1)]

    def vectors(self, path: str, request: dict[str, Any]) -> Fault:
        """The embeddings or the ranking that is asked for, or the next fault."""
        refused = sorted(request.keys() & {*self.refuses})
        with self._lock:
            self.requests.append(request)
            turn, self._fault = self._fault, self._fault + (not refused)
        if refused:
            return status(422, f"{refused[0]} is not supported")
        fault = self.faults[turn] if turn < len(self.faults) else None
        try:
            return fault or Fault(json.dumps(VECTORS[path](request)).encode())
        except KeyError as error:
            return status(400, f"{error} is missing")

    def to_dict(self) -> dict[str, Any]:
        """The script as the command reads it; TypeError for one that is a function."""
        if callable(self.script):
            raise TypeError("a function cannot be sent to another process; use a list of answers")
        return {
            "answers": [_answer_to_dict(it) for it in self.script],
            "refuses": sorted(self.refuses),
            "strict": sorted(self.strict),
            "repeat_last": self.repeat_last,
            "formatted": _answer_to_dict(self.formatted),
            "faults": [_answer_to_dict(it) for it in self.faults],
        }


def _answer_to_dict(answer: Answer) -> dict[str, Any] | None:
    if isinstance(answer, Fault):
        body = answer.body.decode("utf-8", "surrogateescape")
        timing = {name: getattr(answer, name) for name in ("delay", "reset", "retry_after")}
        return {"body": body, "status": answer.code, **timing}
    return None if answer is None else asdict(streamed(answer))


@dataclass(slots=True)
class OpenAIServer:
    """Where the server is, and the bodies of the chat requests that it was sent."""

    base_url: str
    requests: list[dict[str, Any]]
    hung_up: threading.Event = field(default_factory=threading.Event)  # a client, too early
    keys: list[str | None] = field(default_factory=list)  # of the requests


@contextmanager
def running_openai_server(
    script: Script,
    *,
    refuses: Collection[str] = (),
    strict: Collection[str] = (),
    repeat_last: bool = False,
    formatted: Answer = None,
    faults: Sequence[Fault | None] = (),
) -> Iterator[OpenAIServer]:
    """A server on a free port that gives a script's answers: texts, calls, JSON values, faults.

    A None is an answer whose content is null. Formats and parameters named by `refuses` are
    answered with 400 and use up nothing:  running_openai_server(script, refuses={"json_schema"})
    So are histories that break a rule named by `strict`: "reasoning_content", "tools", "pairs".
    Requests with a response format get `formatted`, if it is given, and use up nothing either.
    Requests for embeddings and rankings get the next of `faults`, or an honest answer.
    """
    http = ScriptedServer(0, ScriptPlayer(script, refuses, strict, repeat_last, formatted, faults))
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
    faults: Sequence[Fault | None] = (),
) -> Iterator[OpenAIServerProcess]:
    """`running_openai_server` in a process of its own, on a port that may be chosen."""
    player = ScriptPlayer(script, refuses, strict, repeat_last, formatted, faults)
    command = [sys.executable, "-m", __name__, "-", "--port", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(player.to_dict()))
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
        page = Fault(json.dumps(pages.get(self.path)).encode())
        self._send(page if self.path in pages else status(404, "no such path"))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.info.keys.append(self.headers["Authorization"])
        if self.path in VECTORS:
            return self._send(self.server.player.vectors(self.path, request))
        if self.path != "/v1/chat/completions":
            return self._send(status(404, "no such path"))
        answer = self.server.player.answer(request)
        if isinstance(answer, Fault):
            return self._send(answer)
        answer = streamed(answer)
        kind = "text/event-stream" if request.get("stream") else "application/json"
        self._begin(200, kind, {"Transfer-Encoding": "chunked"})
        for number, part in enumerate(parts(answer, request)):
            self._wait(answer.pause if number else 0)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        if answer.breaks_after is not None and not answer.quietly:
            return self._reset()
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, answer: Fault) -> None:
        if answer.reset:
            return self._reset()
        self._wait(answer.delay)
        wait = {"Retry-After": answer.retry_after} if answer.retry_after else {}
        length = {"Content-Length": str(len(answer.body))}
        self._begin(answer.code, "application/json", {**length, **wait})
        self.wfile.write(answer.body)

    def _begin(self, code: int, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": kind, **headers, "Connection": "close"}.items():
            self.send_header(name, value)
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
