"""A real HTTP server that speaks OpenAI's chat API from a script, and fails as real ones do.

with running_openai_server([{"facts": []}, status(500), RESET]) as server:
    client = AsyncOpenAI(base_url=server.base_url, api_key="any")
"""

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kemem.ports import ToolCall
from kemem.testing.llm import Said, scripted_reply

MODEL = "scripted"
_PIECE = 8  # characters of one event of a stream


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that is wrong: a raw body, late or never."""

    body: bytes = b""
    code: int = 200
    delay: float = 0.0  # seconds
    reset: bool = False  # break the connection instead


Answer = Said | None | Fault
Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


def status(code: int, message: str = "the script says so") -> Fault:
    """A refusal with the body that OpenAI would send.  status(429)"""
    return Fault(json.dumps({"error": {"message": message, "type": "scripted"}}).encode(), code)


def hang(seconds: float) -> Fault:
    """Silence, and then an empty answer."""
    return Fault(delay=seconds)


def huge(megabytes: int = 10) -> Fault:
    """A valid completion with a very long text of facts."""
    item = {"text": "用户住在北京。" * 10, "type": "residence"}
    facts = [item] * (megabytes * 1_000_000 // len(json.dumps(item, ensure_ascii=False).encode()))
    return _completion(json.dumps({"facts": facts, "entities": []}, ensure_ascii=False))


def _completion(text: str | None) -> Fault:
    return Fault(json.dumps(_body(_message(text), {})).encode())


@dataclass(slots=True)
class OpenAIServer:
    """Where the server is, and the bodies of the chat requests that it was sent."""

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def running_openai_server(
    script: Script, *, refuses: Collection[str] = ()
) -> Iterator[OpenAIServer]:
    """A server on a free port that gives a script's answers: texts, calls, JSON values, faults.

    A None is an answer whose content is null. Response formats named by `refuses`, and "tools", are
    answered with 400 and use up nothing:  running_openai_server(script, refuses={"json_schema"})
    """
    http = _Server(("127.0.0.1", 0), _Handler)
    http.script, http.refuses = script, refuses
    http.site = OpenAIServer(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield http.site
    finally:
        http.closing.set()
        http.shutdown()
        http.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    script: Script
    refuses: Collection[str]
    site: OpenAIServer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._turn = 0

    def answer(self, request: dict[str, Any]) -> Answer:
        """The next line of the script."""
        asked = [(request.get("response_format") or {}).get("type")]
        asked += ["tools"] if "tools" in request else []
        with self._lock:
            self.site.requests.append(request)
            if refused := [it for it in asked if it in self.refuses]:
                return status(400, f"{refused[0]} is not supported")
            turn, self._turn = self._turn, self._turn + 1
        if callable(self.script):
            return self.script(request)
        if turn >= len(self.script):
            return status(500, f"the script has only {len(self.script)} answers")
        return self.script[turn]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        known = self.path == "/v1/models"
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kemem"}]}
        self._send(Fault(json.dumps(models).encode()) if known else status(404, "no such path"))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self._send(status(404, "no such path"))
        answer = self.server.answer(request)
        if isinstance(answer, Fault):
            return self._send(answer)
        message = _message(answer)
        if request.get("stream"):
            return self._send(Fault(b"".join(_events(message, request))), "text/event-stream")
        self._send(Fault(json.dumps(_body(message, request)).encode()))

    def _send(self, answer: Fault, kind: str = "application/json") -> None:
        if answer.reset:
            linger = struct.pack("ii", 1, 0)  # closing then sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            os.close(self.connection.detach())
            return
        self.server.closing.wait(answer.delay)
        with suppress(ConnectionError):  # the client may have gone
            self.send_response(answer.code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal."""


def _message(answer: Said | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if answer is None:
        return message
    reply = scripted_reply(answer)
    if not reply.calls:
        return {**message, "content": reply.text}
    calls = [_function(call) for call in reply.calls]
    return {**message, "content": reply.text or None, "tool_calls": calls}


def _function(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _usage(message: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, int]:
    asked = sum(len(str(it.get("content") or "")) for it in request.get("messages") or ())
    counts = {"prompt_tokens": asked, "completion_tokens": len(message["content"] or "")}
    return {**counts, "total_tokens": sum(counts.values())}


def _body(message: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": _reason(message), "logprobs": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_769_424_420,
        "model": request.get("model", MODEL),
        "choices": [choice],
        "usage": _usage(message, request),
    }


def _reason(message: Mapping[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _events(message: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[bytes]:
    base = {**_body(message, request), "object": "chat.completion.chunk"}
    choices = [{"index": 0, "delta": it, "finish_reason": None} for it in _deltas(message)]
    for choice in [*choices, {"index": 0, "delta": {}, "finish_reason": _reason(message)}]:
        chunk = {**base, "choices": [choice], "usage": None}
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    if (request.get("stream_options") or {}).get("include_usage"):
        yield b"data: " + json.dumps({**base, "choices": []}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for piece in _pieces(message["content"] or ""):
        yield {"role": "assistant", "content": piece}
    for index, call in enumerate(message.get("tool_calls", ())):
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        yield {"role": "assistant", "tool_calls": [begun]}
        for piece in _pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


RESET = Fault(reset=True)
EMPTY = Fault()
GARBAGE = Fault(b"<html>502 Bad Gateway</html>")
TRUNCATED = Fault(b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess')
NO_CHOICES = Fault(b'{"id": "chatcmpl-1", "object": "chat.completion", "choices": []}')
NULL_CONTENT = _completion(None)
