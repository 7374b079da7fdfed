"""Servers for tests: an app in this process, or a process of its own with its own port."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from kemem.memory import AsyncMemory
from kemem.serve.http.app import create_app
from kemem.settings import Settings
from tests.warm import Warm, start_warm

PATIENCE = 20.0  # seconds
STEP = 0.02


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it answers, what it logs, and its process."""

    url: str
    port: int
    log: Path
    process: Warm

    def client(self, token: str | None = None) -> httpx.Client:
        """A client of this server, with a bearer token if one is given."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)


class InProcess(httpx.BaseTransport):
    """Sends requests to an app that lives in the event loop of another thread."""

    def __init__(self, portal: BlockingPortal, app: FastAPI) -> None:
        self._portal = portal
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The whole answer."""
        return self._portal.call(self._send, request)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        request.stream = httpx.ByteStream(request.read())
        answer = await self._transport.handle_async_request(request)
        content = await answer.aread()
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """An app in this process, for what needs no process of its own."""

    transport: InProcess

    def client(self, token: str | None = None) -> httpx.Client:
        """A client of the app, with a bearer token if one is given."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(
            transport=self.transport, base_url="http://localhost", headers=headers, timeout=PATIENCE
        )


@contextmanager
def local_server(
    data_dir: Path, backends: dict[str, Any] | None = None, /, **settings: Any
) -> Iterator[LocalServer]:
    """An app over a directory, with its background work; settings go by their names."""
    given = Settings(
        **{"data_dir": data_dir, "embedder": "none", "failure_rate_limit": 0, **settings}
    )
    app = create_app(AsyncMemory(settings=given, **(backends or {})))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        yield LocalServer(InProcess(portal, app))


def check_all(check: Callable[..., None], *cases: Iterable[Any]) -> None:
    """Check every case, and tell of all that fail; several lists are combined."""
    failures = []
    for case in product(*cases):
        try:
            check(*case)
        except AssertionError as error:
            failures.append(f"{case!r:.200}: {error}")
    assert not failures, "\n".join(failures)


@contextmanager
def running_server(
    data_dir: Path, *, ready_at: str = "/readyz", **settings: str
) -> Iterator[Server]:
    """A server over a directory; settings go by their names: embedder="local"."""
    server = start(data_dir, **settings)
    try:
        with server.client() as client:
            wait_for(lambda: _answers(server, client, ready_at))
        yield server
    finally:
        stop(server)


def start(data_dir: Path, **settings: str) -> Server:
    """A server process that may not listen yet."""
    port, log = free_port(), data_dir.with_suffix(".log")
    process = start_process(data_dir, ["serve", "--port", str(port)], **settings)
    return Server(f"http://127.0.0.1:{port}", port, log, process)


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start_process(data_dir: Path, command: Sequence[str], **settings: str) -> Warm:
    """A command that goes on beside the test, with its log beside the directory."""
    given = {"embedder": "none", "data_dir": str(data_dir), "failure_rate_limit": "0", **settings}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KEMEM_")}
    environment |= {f"KEMEM_{name.upper()}": value for name, value in given.items()}
    away = data_dir.parent  # no kemem.toml of the checkout
    with open(os.devnull, "r+b") as nothing, data_dir.with_suffix(".log").open("ab") as written:
        return start_warm(command, (nothing, nothing, written), environment, away)


def stop(server: Server) -> None:
    """End the process, gently first."""
    server.process.terminate()
    try:
        server.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()


def wait_for(check: Callable[[], object]) -> None:
    """Ask again in small steps until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(STEP)


def _answers(server: Server, client: httpx.Client, path: str) -> bool:
    assert server.process.poll() is None, server.log.read_text("utf-8")
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def said(
    content: str, message_id: str, ts: str = "2026-01-26T10:47:00.000000Z", **more: Any
) -> Any:
    """A message to post.  said("我不吃辣", "m1", role="assistant")"""
    return {"role": "user", "content": content, "message_id": message_id, "ts": ts, **more}


def post(client: httpx.Client, user_id: str, *messages: Any) -> Any:
    """Store messages and return what became of them."""
    answer = client.post(f"/v1/users/{user_id}/messages", json={"messages": messages})
    assert answer.status_code == 200, answer.text
    return answer.json()


def add(client: httpx.Client, messages: Any, **given: Any) -> Any:
    """Store messages, remember what they say, and return what became of them."""
    answer = client.post("/v1/memories", json={"messages": messages, **given})
    assert answer.status_code == 200, answer.text
    return answer.json()


def note_of(client: httpx.Client, user: str, words: str = "我喜欢茶 tea", **given: Any) -> str:
    """The id of a fresh note that says these words."""
    added = add(client, words, user_id=user, infer=False, **given)
    return str(added["results"][0]["id"])


def notes(client: httpx.Client, **asked: Any) -> dict[str, str]:
    """The notes of a list, newest first: ids and texts."""
    answer = client.get("/v1/memories", params=asked)
    assert answer.status_code == 200, answer.text
    return {item["id"]: item["memory"] for item in answer.json()["results"]}


def search(client: httpx.Client, kind: str, user_id: str, **asked: Any) -> Any:
    """The answer of a search that must succeed.  search(client, "lexical", "u", query_text="辣")"""
    answer = client.post(f"/v1/messages/{kind}_search", json={"user_id": user_id, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def read(client: httpx.Client, user_id: str, **asked: Any) -> Any:
    """A page of a user's messages."""
    answer = client.get(f"/v1/users/{user_id}/messages", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(answer: Any) -> list[str]:
    """The ids of an answer's items, in their order."""
    return [item["message_id"] for item in answer["items"]]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, whose body must have the one form of all errors."""
    body = answer.json()
    assert body.keys() == {"error"}, answer.text
    assert {"code", "message"} <= body["error"].keys() <= {"code", "message", "details"}
    assert isinstance(body["error"]["message"], str) and body["error"]["message"]
    assert isinstance(body["error"].get("details", {}), dict)
    return answer.status_code, body["error"]["code"]


INVALID = (400, "INVALID_ARGUMENT")
MISSING = (404, "NOT_FOUND")
