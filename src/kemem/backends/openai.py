"""Chat models behind the API that OpenAI began and nearly every server speaks."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from kemem.backends.written_calls import new_call, read_calls, written
from kemem.errors import Unavailable
from kemem.ports import LLM_TIMEOUT, Prompt, Reply, Schema, Tool, ToolCall
from kemem.threads import call

_FORMATS = ("json_schema", "json_object", "text")  # what to ask for, best first
_REFUSALS = (400, 404, 422)  # how servers say that they do not know a format, or tools

log = logging.getLogger("kemem")


class OpenAILLM:
    """A model of a client from the package `openai`, sync or async, or of one that is built alike.

    What the server refuses, a format or tools, is not asked for again; calls are then written. A
    failed call is not repeated here: the job that asked comes back.
    """

    def __init__(self, client: Any, model: str, timeout: float = LLM_TIMEOUT) -> None:
        bounded = hasattr(client, "with_options")
        self._client = client.with_options(timeout=timeout, max_retries=0) if bounded else client
        self._formats: tuple[str, ...] = _FORMATS
        self._has_tools = True
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

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """The model's answer; with a schema, JSON in the strictest format that the server knows."""
        if not tools:
            return await self._answer(
                messages if self._has_tools else written(messages, ()), schema
            )
        if self._has_tools:
            try:
                native = {"tools": [tool.to_dict() for tool in tools]}
                return _read(await call(self._create, messages, native))
            except Exception as error:  # of the client's library, which may not be OpenAI's
                if not self._refused(error, "tools"):
                    raise
        reply = read_calls(await self._answer(written(messages, tools), None))
        # What was refused may be a broken call of the conversation: that proves nothing.
        self._has_tools = self._has_tools and any(it["role"] == "tool" for it in messages)
        return reply

    async def close(self) -> None:
        """Let go of the connections; a client that was handed in is left to its owner."""
        if isinstance(self._client, _Connection) and "client" in vars(self._client):
            await self._client.client.close()

    async def _answer(self, messages: Prompt, schema: Schema | None) -> Reply:
        formats = self._formats if schema is not None else ("text",)
        for position, name in enumerate(formats):
            try:
                completion = await call(self._create, messages, _format(name, schema))
            except Exception as error:  # of the client's library, which may not be OpenAI's
                if name == "text" or not self._refused(error, name):
                    raise
                continue
            if schema is not None:
                self._formats = formats[position:]
            return _read(completion)
        raise AssertionError("the last format returns or raises")

    def _create(self, messages: Prompt, options: Mapping[str, Any]) -> Any:
        plain = [dict(message) for message in messages]
        return self._client.chat.completions.create(model=self.name, messages=plain, **options)

    def _refused(self, error: Exception, what: str) -> bool:
        status = getattr(error, "status_code", None)
        if status in _REFUSALS:
            log.info("%s answered %s to a question with %s", self.name, status, what)
        return status in _REFUSALS


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


def _format(name: str, schema: Schema | None) -> dict[str, Any]:
    if name == "text":
        return {}
    shape = {"json_schema": {"name": "reply", "strict": True, "schema": schema}}
    return {"response_format": {"type": name, **(shape if name == "json_schema" else {})}}


def _read(completion: object) -> Reply:
    choices = part(completion, "choices")
    if not isinstance(choices, list) or not choices:
        raise Unavailable("the model answered without choices")
    if part(choices[0], "finish_reason") == "length":
        log.warning("the model's answer was cut: it reached its limit of tokens")
    message = part(choices[0], "message")
    calls = tuple(_calls(part(message, "tool_calls")))
    return reply_of(part(message, "content"), part(completion, "usage"), calls)


def _calls(given: object) -> Iterator[ToolCall]:
    for entry in given if isinstance(given, list) else ():
        function = part(entry, "function")
        name = part(function, "name")
        if isinstance(name, str) and name:
            yield new_call(part(entry, "id"), name, part(function, "arguments"))


def reply_of(text: object, usage: object, calls: tuple[ToolCall, ...] = ()) -> Reply:
    """A reply from what a client reports; with neither a text nor calls it is Unavailable."""
    said = text if isinstance(text, str) and text.strip() else ""
    if not said and not calls:
        raise Unavailable("the model answered without a text")
    tokens = (_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
    return Reply(said, *tokens, calls)


def part(value: object, name: str) -> Any:
    """A field of an object or a mapping, None where there is none.  part({"a": 1}, "a") -> 1"""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: object, name: str) -> int:
    count = part(usage, name)
    return count if isinstance(count, int) and count > 0 else 0
