"""The largest body a request may have, counted as it arrives."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.errors import Exhausted

_PATIENCE = 16 << 20  # bytes read on and dropped: who is still sending does not read the answer


class BodyLimit:
    """Refuses a body as soon as it is too large, whatever its headers say."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._most = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                await _drop(message, receive)
                raise Exhausted(f"a request body must be at most {self._most} bytes")
            return message

        await self._app(scope, counted if scope["type"] == "http" else receive, send)


async def _drop(message: Message, receive: Receive) -> None:
    dropped = 0
    while message.get("more_body") and dropped < _PATIENCE:
        message = await receive()
        dropped += len(message.get("body", b""))
