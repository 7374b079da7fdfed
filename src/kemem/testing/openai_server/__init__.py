"""A real HTTP server that speaks OpenAI's chat API from a script, and fails as real ones do.

with running_openai_server([{"facts": []}, status(500), RESET]) as server:
    client = AsyncOpenAI(base_url=server.base_url, api_key="any")

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from kemem.ports import ToolCall
from kemem.testing.doubles import ScriptedAnswer, scripted_reply
from kemem.testing.openai_server.rules import RULES, Request

MODEL = "scripted"
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kemem"}]}
REASON = "the script says so"
_POLL = 0.02  # seconds between two checks whether the client has disconnected
_TIMEOUT = 30.0  # seconds for a server process to answer or to end


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that is wrong: a raw body, late or never."""

    body: bytes = b""
    code: int = 200
    delay: float = 0.0  # seconds
    reset: bool = False  # break the connection instead


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer with reasoning, and how it is streamed: in which deltas, how fast, where it ends.

    Streamed("你好，世界", reasoning="greet", piece=1)
    Streamed(pieces=("<｜DS", "ML｜function_calls>"), breaks_after=1)
    """

    text: str | None = ""  # None: the content is null
    reasoning: str = ""  # sent as `reasoning_content`
    calls: tuple[ToolCall, ...] = ()  # one without an id gets a fresh one whenever it is sent
    piece: int = 8  # characters of one delta
    pieces: Sequence[str] = ()  # the deltas of the text, instead of `text` and `piece`
    breaks_after: int | None = None  # deltas, then the connection is reset
    quietly: bool = False  # then it ends instead, without an error, a finish reason or [DONE]
    finish_reason: str | None = None
    pause: float = 0.0  # seconds between deltas

    def __post_init__(self) -> None:
        whole = "".join(self.pieces)
        if self.pieces and self.text not in ("", whole):
            raise ValueError(f"text {self.text!r} is not what its pieces say: {whole!r}")
        if self.piece < 1:
            raise ValueError(f"a piece has at least one character, not {self.piece!r}")
        object.__setattr__(self, "text", whole or self.text)


Answer = ScriptedAnswer | Fault | Streamed | None
Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


def status(code: int, message: str = REASON) -> Fault:
    """A refusal with the body that OpenAI would send.  status(429)"""
    return Fault(json.dumps({"error": {"message": message, "type": "scripted"}}).encode(), code)


def hang(seconds: float) -> Fault:
    """Silence, and then an empty answer."""
    return Fault(delay=seconds)


def huge(megabytes: int = 10) -> Fault:
    """A valid completion with a very long text of facts."""
    item = {"text": "用户住在北京。" * 10, "type": "residence"}
    facts = [item] * (megabytes * 1_000_000 // len(json.dumps(item, ensure_ascii=False).encode()))
    text = json.dumps({"facts": facts, "entities": []}, ensure_ascii=False)
    return Fault(json.dumps(_body(Streamed(text), {})).encode())


def streamed(answer: ScriptedAnswer | Streamed | None) -> Streamed:
    """Any answer that is not a fault, with the default way of sending it."""
    if answer is None or isinstance(answer, Streamed):
        return answer or Streamed(None)
    reply = scripted_reply(answer)
    return Streamed(reply.text, calls=reply.calls)


def parts(answer: Streamed, request: Request) -> Iterator[bytes]:
    """What is written one after the other: the events of a stream, or a body in two halves."""
    if request.get("stream"):
        yield from _events(answer, request)
    else:
        body = json.dumps(_body(answer, request)).encode()
        middle = len(body) // 2
        yield from (body[:middle], body[middle:])[: 2 if answer.breaks_after is None else 1]


def _body(answer: Streamed, request: Request) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [_function(call) for call in answer.calls]
    prompt = sum(len(str(it.get("content") or "")) for it in request.get("messages") or ())
    completion = len(answer.reasoning) + len(answer.text or "")
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    reason = answer.finish_reason or ("tool_calls" if answer.calls else "stop")
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_769_424_420,
        "model": request.get("model", MODEL),
        "choices": [choice],
        "usage": {**usage, "total_tokens": prompt + completion},
    }


def _function(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id or f"call_{token_hex(6)}", "type": "function", "function": function}


def _events(answer: Streamed, request: Request) -> Iterator[bytes]:
    base = {**_body(answer, request), "object": "chat.completion.chunk"}

    def event(**fields: Any) -> bytes:
        return b"data: " + json.dumps({**base, **fields}).encode() + b"\n\n"

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        return event(choices=[{"index": 0, "delta": delta, "finish_reason": reason}], usage=None)

    yield from map(chunk, islice(_deltas(answer), answer.breaks_after))
    if answer.breaks_after is not None:
        return
    yield chunk({}, base["choices"][0]["finish_reason"])
    if (request.get("stream_options") or {}).get("include_usage"):
        yield event(choices=[])
    yield b"data: [DONE]\n\n"


def _deltas(answer: Streamed) -> Iterator[dict[str, Any]]:
    def cut(text: str) -> list[str]:
        return [text[at : at + answer.piece] for at in range(0, len(text), answer.piece)]

    for piece in cut(answer.reasoning):
        yield {"role": "assistant", "content": None, "reasoning_content": piece}
    for piece in answer.pieces or cut(answer.text or ""):
        yield {"role": "assistant", "content": piece}
    for index, call in enumerate(answer.calls):
        whole = _function(call)
        begun = {**whole, "index": index, "function": {**whole["function"], "arguments": ""}}
        yield {"role": "assistant", "tool_calls": [begun]}
        for piece in cut(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


RESET = Fault(reset=True)
EMPTY = Fault()
GARBAGE = Fault(b"<html>502 Bad Gateway</html>")
TRUNCATED = Fault(b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess')
NO_CHOICES = Fault(b'{"id": "chatcmpl-1", "object": "chat.completion", "choices": []}')
NULL_CONTENT = Fault(json.dumps(_body(Streamed(None), {})).encode())
STRICT = frozenset(RULES)


@dataclass(slots=True)
class ScriptPlayer:
    """A script, its rules, and how far it has been played; thread-safe."""

    script: Script
    refuses: Collection[str] = ()
    strict: Collection[str] = ()
    repeat_last: bool = False
    formatted: Answer = None
    requests: list[dict[str, Any]] = field(default_factory=list, init=False)
    _turn: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if unknown := set(self.strict) - STRICT:
            raise ValueError(f"strict knows {sorted(STRICT)}, not {sorted(unknown)}")

    def answer(self, request: dict[str, Any]) -> Answer:
        """The next answer of the script, or one that uses up nothing of it."""
        form = (request.get("response_format") or {}).get("type")
        features = [form, "tools"] if "tools" in request else [form]
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
        }


def _answer_to_dict(answer: Answer) -> dict[str, Any] | None:
    if isinstance(answer, Fault):
        body = answer.body.decode("utf-8", "surrogateescape")
        return {"body": body, "status": answer.code, "delay": answer.delay, "reset": answer.reset}
    return None if answer is None else asdict(streamed(answer))


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
        if self.path != "/v1/chat/completions":
            return self._send(status(404, "no such path"))
        answer = self.server.player.answer(request)
        if isinstance(answer, Fault):
            return self._send(answer)
        answer = streamed(answer)
        kind = "text/event-stream" if request.get("stream") else "application/json"
        self._begin(200, kind, "Transfer-Encoding", "chunked")
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
        self._begin(answer.code, "application/json", "Content-Length", str(len(answer.body)))
        self.wfile.write(answer.body)

    def _begin(self, code: int, kind: str, framing: str, framed: str) -> None:
        self.send_response(code)
        for name, value in (("Content-Type", kind), (framing, framed), ("Connection", "close")):
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
