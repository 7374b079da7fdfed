"""The memory tools as programs call them: over HTTP, and over the pipe of a process."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.command import SECONDS, command, environment
from tests.server import running_server

DOCKER = {
    "content": "Docker 是一个开源的应用容器引擎，"
    "让开发者可以打包他们的应用以及依赖包到一个可移植的容器中。",
    "summary": "Docker 容器化技术",
    "tags": ["docker", "container", "devops"],
}
REQUESTS = {
    "content": "在 Python 中，使用 `requests` 库可以方便地发送 HTTP 请求。",
    "summary": "Python HTTP 请求库",
    "tags": ["python", "http", "requests"],
}
FASTAPI = {
    "content": "FastAPI is a modern, fast web framework for building APIs.",
    "summary": "A web framework",
    "tags": ["python", "fastapi", "web"],
}


class Face(NamedTuple):
    """A way to ask: the bytes of a request in, those of its answer out; and a way to see disk."""

    send: Callable[[bytes], bytes]
    data_dir: Path

    def ask(self, method: str, params: object = None, id_: object = 1) -> Any:
        """The whole answer, in whose text keys stand in the order of the seed."""
        asked = {"jsonrpc": "2.0", "method": method, "params": params or {}, "id": id_}
        answer = json.loads(self.send(json.dumps(asked, ensure_ascii=False).encode()))
        assert list(answer) in (["jsonrpc", "result", "id"], ["jsonrpc", "error", "id"])
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", id_)
        return answer

    def do(self, method: str, **params: object) -> Any:
        """The result of a request that must succeed."""
        answer = self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def refused(self, method: str, **params: object) -> tuple[int, str]:
        """The codes of a request that must fail."""
        error = self.ask(method, params)["error"]
        return error["code"], error["data"]["code"]


@contextmanager
def over_http(home: Path) -> Iterator[Face]:
    """A server process, asked over its socket."""
    with running_server(home / "data") as server, server.client() as client:

        def send(raw: bytes) -> bytes:
            headers = {"content-type": "application/json"}
            answer = client.post("/rpc", content=raw, headers=headers)
            assert answer.status_code == (200 if answer.content else 204), answer.text
            return answer.content

        yield Face(send, home / "data")


@contextmanager
def over_a_pipe(home: Path) -> Iterator[Face]:
    """A process that reads requests and writes answers, a line each."""
    with piped(home) as process:
        assert process.stdin and process.stdout
        put, got = process.stdin, process.stdout

        def send(raw: bytes) -> bytes:
            put.write(raw + b"\n")
            put.flush()
            return got.readline()

        yield Face(send, home / "data")


@contextmanager
def piped(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`kemem rpc`, which ends by itself when its input does."""
    process = subprocess.Popen(
        command("rpc"),
        env=environment(home),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
        rest, log = process.communicate(timeout=SECONDS)
        assert (rest, process.returncode) == (b"", 0), log
    finally:
        process.kill()
        process.wait()


FACES = {"http": over_http, "pipe": over_a_pipe}
