"""A model's server that does one thing at a time, as a process:  python -m tests.single_slot

It prints its address. Requests wait for the slot; one whose client hangs up leaves it. `GET /log`
tells of each what it was, how long it waited, and how it ended.
"""

import json
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kemem.testing.openai_server import parts, streamed

BOAT = "What colour is my boat?"
SECONDS = {"reply": 0.1, "extraction": 2.0, "probe": 2.0}
ANSWERS: dict[str, Any] = {"reply": "好的 OK", "extraction": {"facts": []}, "probe": "turquoise"}


@dataclass(slots=True)
class Request:
    """A request that has come."""

    kind: str
    waited: float = 0.0  # seconds for the slot
    outcome: str = "waits"


class Handler(BaseHTTPRequestHandler):
    slot = threading.Lock()
    requests: list[Request] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self._send("application/json", [json.dumps([asdict(it) for it in self.requests]).encode()])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asks = BOAT in [it["content"] for it in body["messages"]]
        kind = "extraction" if "response_format" in body else "probe" if asks else "reply"
        request = Request(kind)
        self.requests.append(request)
        with self._slot(request):
            self._wait(SECONDS[kind])
            manner = "text/event-stream" if body.get("stream") else "application/json"
            self._send(manner, parts(streamed(ANSWERS[kind]), body))

    @contextmanager
    def _slot(self, request: Request) -> Iterator[None]:
        came, request.outcome = time.monotonic(), "hung up"
        while not self.slot.acquire(timeout=0.02):
            self._wait(0)
        request.waited, request.outcome = time.monotonic() - came, "runs"
        try:
            yield
            request.outcome = "done"
        except ConnectionError:
            request.outcome = "hung up"
        finally:
            self.slot.release()

    def _wait(self, seconds: float) -> None:
        """Until then; a client that hangs up is a ConnectionError."""
        until = time.monotonic() + seconds
        while True:
            if select.select([self.connection], [], [], 0)[0]:
                raise ConnectionAbortedError
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def _send(self, kind: str, pieces: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
