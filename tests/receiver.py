"""A receiver of webhooks: a server with a real socket, which answers as a test wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """One request: its headers in small letters, and its body as it came."""

    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Receiver:
    """What came so far, and how the next requests are answered: 200 where nothing is said."""

    port: int = 0
    requests: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)  # cleared: it hangs

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/钩子?q=1"

    @property
    def types(self) -> list[str]:
        return sorted(it.event["type"] for it in self.requests)


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A receiver that listens, at a port if one is given."""
    receiver = Receiver()
    receiver.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append(Received(headers, body))
            receiver.answers.wait()
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
            self.send_header("location", "http://127.0.0.1:1/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
