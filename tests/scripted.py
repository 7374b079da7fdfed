"""OpenAI's chat API from a script, in this process: a transport under the official clients."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx  # what the openai package is built on
from openai import AsyncOpenAI, OpenAI

from kemem.testing.openai_server import MODELS, Fault, Script, ScriptPlayer, parts, status, streamed


@dataclass(slots=True)
class ScriptedApi:
    """What `running_openai_server` is on a port, without one: give its clients to the code."""

    player: ScriptPlayer
    base_url: str = "http://scripted.test/v1"
    hung_up: threading.Event = field(default_factory=threading.Event)  # a client, too early

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests that came."""
        return self.player.requests

    def client(self, **options: Any) -> OpenAI:
        """The official client, without retries."""
        http = httpx.Client(transport=_Transport(self), trust_env=False)
        return OpenAI(**{**self._connection(), **options}, http_client=http)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """The same, asynchronous."""
        http = httpx.AsyncClient(transport=_AsyncTransport(self), trust_env=False)
        return AsyncOpenAI(**{**self._connection(), **options}, http_client=http)

    def _connection(self) -> dict[str, Any]:
        return {"base_url": self.base_url, "api_key": "any", "max_retries": 0}


def scripted_api(script: Script, *, strict: Collection[str] = (), **rules: Any) -> ScriptedApi:
    """An API that gives a script's answers; the rules are those of `running_openai_server`."""
    return ScriptedApi(ScriptPlayer(script, strict=strict, **rules))


@dataclass(slots=True)
class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The parts of an answer, with the pauses and the break that the script asks for."""

    parts: Iterator[bytes]
    hung_up: threading.Event
    pause: float = 0.0
    breaks: bool = False
    is_read: bool = False

    def __iter__(self) -> Iterator[bytes]:
        for number, part in enumerate(self.parts):
            time.sleep(self.pause if number else 0)
            yield part
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for number, part in enumerate(self.parts):
            await asyncio.sleep(self.pause if number else 0)
            yield part
        self._end()

    def _end(self) -> None:
        self.is_read = True
        if self.breaks:
            raise httpx.ReadError("the connection was reset")

    def close(self) -> None:
        if not self.is_read:
            self.hung_up.set()

    async def aclose(self) -> None:
        self.close()


def _answer(api: ScriptedApi, request: httpx.Request) -> tuple[float, httpx.Response]:
    """The response to a request, and how long it takes to come."""
    if request.url.path == "/v1/models":
        return 0.0, httpx.Response(200, json=MODELS)
    body = json.loads(request.content)
    found = request.url.path == "/v1/chat/completions"
    answer = api.player.answer(body) if found else status(404, "no such path")
    if isinstance(answer, Fault):
        if answer.reset:
            raise httpx.ReadError("the connection was reset")
        kind = {"Content-Type": "application/json"}
        return answer.delay, httpx.Response(answer.code, content=answer.body, headers=kind)
    manner = streamed(answer)
    breaks = manner.breaks_after is not None and not manner.quietly
    stream = _Body(parts(manner, body), api.hung_up, manner.pause, breaks)
    kind = {"Content-Type": "text/event-stream" if body.get("stream") else "application/json"}
    return 0.0, httpx.Response(200, stream=stream, headers=kind)


@dataclass(slots=True)
class _Transport(httpx.BaseTransport):
    api: ScriptedApi

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        delay, response = _answer(self.api, request)
        time.sleep(delay)
        return response


@dataclass(slots=True)
class _AsyncTransport(httpx.AsyncBaseTransport):
    api: ScriptedApi

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        delay, response = await asyncio.to_thread(_answer, self.api, request)  # it may block
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self.api.hung_up.set()
            raise
        return response
