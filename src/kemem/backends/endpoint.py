"""One address of a server of models: JSON goes in and comes out, and what fails is named."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kemem.errors import Unavailable, shown_address

_REFUSALS = (400, 413, 422)  # how servers say that they cannot take this body
_NO_KEY = "none"  # without a key the library would take one from the environment


class Refused(Unavailable):
    """The server does not take what it was sent; another body may do."""


class Endpoint:
    """Where a model is asked; nothing is imported or opened before the first question.

    Endpoint("http://127.0.0.1:11434/v1", "/embeddings")
    """

    def __init__(self, base_url: str | None, path: str = "", *, api_key: str | None = None) -> None:
        self._base_url = base_url
        parts = urlsplit(base_url or "")
        self._path = parts._replace(path=parts.path.rstrip("/") + path).geturl()
        self._api_key = api_key
        self._client: Any = None  # of the package openai

    @property
    def address(self) -> str:
        """The address without its secrets, for messages."""
        if self._base_url is None:
            return shown_address(str(self._connected().base_url).rstrip("/") + self._path)
        return shown_address(self._path)

    async def post(self, body: Mapping[str, Any], *, seconds: float, retries: int) -> Any:
        """The JSON that the server answers with; whatever it does wrong is Unavailable.

        What can pass (429, 5xx, a broken connection) is tried again, after the pause that the
        server asks for, within `seconds` in all.
        """
        from openai import APIConnectionError, APIResponseValidationError, APIStatusError

        client = self._connected().with_options(timeout=seconds, max_retries=retries)
        try:
            async with asyncio.timeout(seconds):
                text = await client.post(self._path, cast_to=str, body=dict(body))
            return json.loads(text)
        except APIStatusError as error:
            kind = Refused if error.status_code in _REFUSALS else Unavailable
            raise kind(f"{self.address} answered {error.status_code}") from error
        except (TimeoutError, APIConnectionError) as error:
            late = isinstance(error, TimeoutError) or "Timeout" in type(error).__name__
            fault = f"did not answer within {seconds:g} s" if late else "cannot be reached"
            raise Unavailable(f"{self.address} {fault}") from error
        except (ValueError, RecursionError, APIResponseValidationError) as error:
            raise Unavailable(f"{self.address} answered with what is not JSON") from error

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.close()

    def _connected(self) -> Any:
        if self._client is None:
            from openai import AsyncOpenAI, OpenAIError  # the import takes most of a second

            key = self._api_key or (_NO_KEY if self._base_url else None)
            try:
                self._client = AsyncOpenAI(base_url=self._base_url, api_key=key)
            except OpenAIError as error:
                raise Unavailable("OpenAI's API needs a key, and none is set") from error
        return self._client
