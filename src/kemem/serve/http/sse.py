"""Server-sent events: content negotiation, and a response that streams the events of some work."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from kemem.serve.http.responses import error_response, to_json

Emit = Callable[[str, dict[str, Any]], None]  # the name of an event, and its data
Work = Callable[[Emit], Coroutine[Any, Any, None]]

EVENT_STREAM = "text/event-stream"
PAUSE = 15.0  # seconds of silence, then a comment keeps the connection alive

_QUALITY = re.compile(r"q=([01](?:\.\d{0,3})?)")


class EventStream(Response):
    """Streams the events of some work, then the error that ended it; a disconnect cancels it.

    An error before the first event is an ordinary error response with a status of its own.
    """

    media_type = EVENT_STREAM

    def __init__(self, work: Work, pause: float = PAUSE) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"X-Accel-Buffering": "no"})  # or a proxy holds the events back
        self._work = work
        self._pause = pause

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        task = asyncio.create_task(
            self._work(lambda name, data: queue.put_nowait(self.event(name, to_json(data))))
        )
        task.add_done_callback(lambda _: queue.put_nowait(None))
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        disconnect.add_done_callback(lambda _: task.cancel())
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            async for chunk in self._chunks(queue, task):
                if head:
                    await send(head)
                    head = {}
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            disconnect.cancel()
            task.cancel()
            await asyncio.gather(disconnect, task, return_exceptions=True)

    def event(self, name: str, data: bytes) -> bytes:
        """An event as it is sent."""
        return format_sse_event(event=name, data_str=data.decode())

    async def _chunks(
        self, queue: asyncio.Queue[bytes | None], task: asyncio.Task[None]
    ) -> AsyncIterator[bytes]:
        """Every chunk to send; an error before the first one is raised."""
        sent = False
        while chunk := await self._next(queue):
            sent = True
            yield chunk
        if task.cancelled():
            error: BaseException | None = ClientDisconnect()
        else:
            error = task.exception()
        if isinstance(error, Exception) and sent:
            yield self.event("error", bytes(error_response(error).body))
        elif error is not None:
            raise error

    async def _next(self, queue: asyncio.Queue[bytes | None]) -> bytes | None:
        try:
            async with asyncio.timeout(self._pause):
                return await queue.get()
        except TimeoutError:
            return KEEPALIVE_COMMENT


def event_responses(events: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a response that streams events."""
    schema = {"type": "string", "description": f"Events with JSON as data: {events}"}
    return {200: {"content": {EVENT_STREAM: {"schema": schema}}}}


def wants_events(request: Request) -> bool:
    """Whether a request prefers events to JSON, by its Accept headers."""
    accepted = ",".join(request.headers.getlist("accept")).lower()
    return _rank(EVENT_STREAM, accepted) > _rank("application/json", accepted)


def _rank(media_type: str, accepted: str) -> tuple[float, int, int]:
    """How much a type is wanted: the quality, exactness and place of the range that fits best."""
    ranges = ["*/*", media_type.partition("/")[0] + "/*", media_type]
    fitting = [(0, 0.0, 0)]
    for place, each in enumerate(accepted.split(",")):
        name, *parameters = (part.strip() for part in each.split(";"))
        if name in ranges:
            qualities = [float(q[1]) for it in parameters if (q := _QUALITY.fullmatch(it))]
            fitting.append((ranges.index(name), qualities[0] if qualities else 1.0, -place))
    exactness, quality, place = max(fitting)
    return (quality, exactness, place) if quality else (0.0, 0, 0)


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
