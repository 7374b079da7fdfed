"""Chat models behind the API that OpenAI began and nearly every server speaks."""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from kemem.backends.threads import call
from kemem.errors import Unavailable
from kemem.ports import LLM_TIMEOUT, Prompt, Schema
from kemem.types import Reply

_FORMATS = ("json_schema", "json_object", "text")  # what to ask for, best first
_REFUSALS = (400, 404, 422)  # how servers say that they do not know a format

log = logging.getLogger("kemem")


class OpenAILLM:
    """A model of a client from the package `openai`, sync or async, or of one that is built alike.

    A format that the server refuses is not asked for again. A failed call is not repeated here:
    the job that asked comes back.
    """

    def __init__(self, client: Any, model: str, timeout: float = LLM_TIMEOUT) -> None:
        bounded = hasattr(client, "with_options")
        self._client = client.with_options(timeout=timeout, max_retries=0) if bounded else client
        self._formats: tuple[str, ...] = _FORMATS
        self.name = model

    @classmethod
    def connect(
        cls,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = LLM_TIMEOUT,
    ) -> "OpenAILLM":
        """A model by its address; nothing is imported or opened before the first question.

        OpenAILLM.connect("qwen3", base_url="http://127.0.0.1:8000/v1")
        """
        return cls(_Connection(base_url, api_key, timeout), model, timeout)

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        """The model's answer; with a schema, JSON in the strictest format that the server knows."""
        formats = self._formats if schema is not None else ("text",)
        for position, name in enumerate(formats):
            try:
                completion = await call(self._create, messages, name, schema)
            except Exception as error:  # of the client's library, which may not be OpenAI's
                status = getattr(error, "status_code", None)
                if status not in _REFUSALS or name == "text":
                    raise
                log.info("%s answered %s to the format %s", self.name, status, name)
                continue
            if schema is not None:
                self._formats = formats[position:]
            return _read(completion)
        raise AssertionError("the last format returns or raises")

    async def close(self) -> None:
        """Let go of the connections; a client that was handed in is left to its owner."""
        if isinstance(self._client, _Connection) and "client" in vars(self._client):
            await self._client.client.close()

    def _create(self, messages: Prompt, name: str, schema: Schema | None) -> Any:
        request: dict[str, Any] = {"model": self.name, "messages": [dict(it) for it in messages]}
        if name == "json_schema":
            shape = {"name": "reply", "strict": True, "schema": schema}
            request["response_format"] = {"type": name, "json_schema": shape}
        elif name == "json_object":
            request["response_format"] = {"type": name}
        return self._client.chat.completions.create(**request)


class _Connection:
    """A client that is made when it is first used: the import alone takes most of a second."""

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        self._base_url = base_url
        # Without a key the library would take one from the environment: not for another's server.
        self._api_key = api_key or ("none" if base_url else None)
        self._timeout = timeout

    @cached_property
    def client(self) -> Any:
        from openai import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self._base_url, api_key=self._api_key, timeout=self._timeout, max_retries=0
        )

    @property
    def chat(self) -> Any:
        return self.client.chat


def _read(completion: object) -> Reply:
    choices = part(completion, "choices")
    if not isinstance(choices, list) or not choices:
        raise Unavailable("the model answered without choices")
    if part(choices[0], "finish_reason") == "length":
        log.warning("the model's answer was cut: it reached its limit of tokens")
    return reply_of(part(part(choices[0], "message"), "content"), part(completion, "usage"))


def reply_of(text: object, usage: object) -> Reply:
    """A reply from what a client reports; an answer that is no text is Unavailable."""
    if not isinstance(text, str) or not text.strip():
        raise Unavailable("the model answered without a text")
    return Reply(text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def part(value: object, name: str) -> Any:
    """A field of an object or a mapping, None where there is none.  part({"a": 1}, "a") -> 1"""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: object, name: str) -> int:
    count = part(usage, name)
    return count if isinstance(count, int) and count > 0 else 0
