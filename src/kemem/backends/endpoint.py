"""One address of a server of models: JSON goes in and comes out, and what fails is named."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kemem.backends.client import open_client
from kemem.errors import Unavailable, shown_address
from kemem.ports.faults import fault

_REFUSALS = (400, 413, 422)  # how servers say that they cannot take this body


class Refused(Unavailable):
    """The server does not take what it was sent; another body may do."""


class Endpoint:
    """Where a model is asked; nothing is imported or opened before the first question.

    Endpoint("http://127.0.0.1:11434/v1", "/embeddings")
    """

    def __init__(
        self,
        base_url: str | None,
        path: str = "",
        *,
        api_key: str | None = None,
        setting: str = "its API key",
    ) -> None:
        """`setting` names where the key comes from, for who has to change it."""
        self._base_url = base_url
        parts = urlsplit(base_url or "")
        self._path = parts._replace(path=parts.path.rstrip("/") + path).geturl()
        self._api_key = api_key
        self._setting = setting
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
            raise kind(f"{self.address} {fault(error, key=self._setting)}") from error
        except (TimeoutError, APIConnectionError) as error:
            raise Unavailable(f"{self.address} {fault(error, seconds)}") from error
        except (ValueError, RecursionError, APIResponseValidationError) as error:
            raise Unavailable(f"{self.address} answered with what is not JSON") from error

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.close()

    def _connected(self) -> Any:
        if self._client is None:
            self._client = open_client(self._base_url, self._api_key)
        return self._client
