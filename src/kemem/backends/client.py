"""Clients of the package openai that read no more of an answer than has its place in memory."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import cache
from typing import Any

from kemem.errors import NotConfigured
from kemem.ports.faults import MAX_ANSWER, TooLarge

_NO_KEY = "none"  # without a key the library would take one from the environment


def open_client(base_url: str | None, api_key: str | None, **options: Any) -> Any:
    """An AsyncOpenAI; without an address it is OpenAI's own, which needs a key."""
    from openai import AsyncOpenAI, OpenAIError  # the import takes most of a second

    key = api_key or (_NO_KEY if base_url else None)
    try:
        return AsyncOpenAI(base_url=base_url, api_key=key, http_client=_bounded()(), **options)
    except OpenAIError as error:
        raise NotConfigured("OpenAI's API needs a key: set KEMEM_LLM_API_KEY") from error


@cache
def _bounded() -> Any:
    from httpx2 import AsyncByteStream
    from openai import DefaultAsyncHttpxClient

    class Counted(AsyncByteStream):
        """The bytes of an answer, up to the limit."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async with aclosing(aiter(self._inner)) as parts:
                async for part in parts:
                    size += len(part)
                    if size > MAX_ANSWER:
                        raise TooLarge
                    yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Bounded(DefaultAsyncHttpxClient):
        # Not a transport: given one, the library would not look for a proxy in the environment.
        async def send(self, request: Any, *, stream: bool = False, **more: Any) -> Any:
            request.headers["Accept-Encoding"] = "identity"  # as bytes are counted before decoding
            response = await super().send(request, stream=True, **more)
            response.stream = Counted(response.stream)
            try:
                if not stream:
                    await response.aread()
            except BaseException:
                await response.aclose()
                raise
            return response

    return Bounded
