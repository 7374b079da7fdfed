"""Whatever callers have that can chat, as an LLM: OpenAI's API, AutoGen's clients, functions.

Models that know no tools are told of them in the prompt, and call them by JSON that they write.
"""

import json
import logging
import re
import sys
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from inspect import Parameter, signature
from secrets import token_hex
from typing import Any, cast

from kemem.backends.client import open_client
from kemem.backends.contexts import ask_context
from kemem.backends.refusals import Refusals, refuses
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import (
    LLM,
    LLM_TIMEOUT,
    Prompt,
    Reply,
    Schema,
    Tool,
    ToolCall,
    too_long,
)
from kemem.ports.chat import cut_short
from kemem.ports.faults import OPENAI, fault, whose
from kemem.ports.limits import REFUSALS, TokenLimit, answer_tokens, patience
from kemem.text.language import count_tokens, is_chinese
from kemem.text.leaks import filter_text
from kemem.threads import call

_FORMATS = ("json_schema", "json_object", "text")  # what to ask for, best first
_PATIENCE = 3.0  # seconds for what a server tells of itself

# How servers say that a prompt is too long, and what they tell of the context.
_TOO_LONG = re.compile(
    r"context[ _]?(?:length|size|window)|maximum context|n_ctx|prompt is too long|too many tokens",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"(?:context (?:length|size|window)\D{0,20}|n_ctx\D{0,5})(\d{3,8})", re.IGNORECASE
)

log = logging.getLogger("kemem")


def as_llm(client: Any, model: str, timeout: float) -> LLM:
    """An LLM from an object with `reply`, an OpenAI or AutoGen client, or a function.

    as_llm(AsyncOpenAI(), "gpt-5-mini", 60)
    as_llm(lambda messages: my_model(messages), "", 60)
    """
    if not isinstance(client, type):  # a class has the methods as well, but cannot be asked
        if callable(getattr(client, "reply", None)) and isinstance(_part(client, "name"), str):
            parameters = signature(client.reply).parameters.values()
            if any(it.name == "tools" or it.kind is Parameter.VAR_KEYWORD for it in parameters):
                return cast(LLM, client)
            return WrittenCalls(client.name, client.reply)
        completions = getattr(getattr(client, "chat", None), "completions", None)
        if callable(getattr(completions, "create", None)):
            if not model:
                raise InvalidArgument("an OpenAI client needs the name of a model", field="model")
            return OpenAILLM(client, model, timeout)
        if callable(getattr(client, "create", None)):
            return WrittenCalls(model or type(client).__name__, _ask_autogen(client))
        if callable(client):
            name = getattr(client, "__name__", type(client).__name__)
            return WrittenCalls(model or name, _ask_function(client))
    raise InvalidArgument(
        "llm must be an OpenAI client, an AutoGen client with create(messages=...), "
        "a function of the list of messages, or an object with `name` and "
        f"`async reply(messages, schema=...)`, not {type(client).__name__}",
        field="llm",
    )


class OpenAILLM:
    """A model of a client from the package `openai`, sync or async, or of one that is built alike.

    What the server refuses by name, a format, tools or a limit of tokens, is not sent again for
    some time; calls are then written. A failed call is not repeated here: the job that asked comes
    back.
    """

    def __init__(self, client: Any, model: str, timeout: float = LLM_TIMEOUT) -> None:
        bounded = hasattr(client, "with_options")
        self._client = client.with_options(timeout=timeout, max_retries=0) if bounded else client
        self._connect: Callable[[], Any] | None = None  # makes the client when it is first used
        self._timeout = timeout
        self._refusals = Refusals()
        self._limit = TokenLimit()
        self.context = 0  # tokens, once the server has told them
        self._base_url = ""  # of a server that may be asked for them, which is done once
        self.name = model
        self.address = str(getattr(client, "base_url", ""))

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
        llm, options = cls(None, model, timeout), {"timeout": timeout, "max_retries": 0}
        llm._connect = partial(open_client, base_url, api_key, **options)
        llm._base_url, llm.address = base_url or "", base_url or OPENAI
        return llm

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """The model's answer; with a schema, JSON in the strictest format that the server knows."""
        try:
            return await self._reply(messages, schema, tools)
        except Unavailable:
            raise
        except Exception as error:  # of the client's library, which may not be OpenAI's
            seconds = self._timeout * patience.get()
            raise Unavailable(f"{self._whose} {fault(error, seconds)}") from error

    async def _reply(self, messages: Prompt, schema: Schema | None, tools: Sequence[Tool]) -> Reply:
        has_tools, is_named = not self._refusals.hold("tools"), False
        if not tools:
            return await self._answer(messages if has_tools else written(messages, ()), schema)
        if has_tools:
            try:
                native = {"tools": [tool.to_dict() for tool in tools]}
                reply = self._read(await self._complete(messages, native))
                return read_calls(reply, tools)  # many servers leave the calls in the text
            except Exception as error:  # of the client's library, which may not be OpenAI's
                is_named = self._refused(error, "tools", "they are described in the prompt")
        reply = read_calls(await self._answer(written(messages, tools), None), tools)
        # What was refused may be a broken call of the conversation: that proves nothing.
        if is_named and all(it["role"] != "tool" for it in messages):
            self._refusals.learn(["tools"])
        return reply

    async def ask_context(self) -> int:
        """The tokens of the model's context; 0 where nobody knows.

        The server is asked once, and only one that was given by its address.
        """
        address, self._base_url = self._base_url, ""
        if address and not self.context:
            client = self._opened().with_options(timeout=_PATIENCE, max_retries=0)
            told = await ask_context(client, address, self.name)
            self.context = self.context or told
        return self.context

    async def close(self) -> None:
        """Let go of the connections; a client that was handed in is left to its owner."""
        if self._connect and self._client is not None:
            await self._client.close()

    async def _answer(self, messages: Prompt, schema: Schema | None) -> Reply:
        formats = [it for it in _FORMATS if not self._refusals.hold(it)] if schema else ["text"]
        strict = {"json_schema": {"name": "reply", "strict": True, "schema": schema}}
        refused: list[str] = []  # by name
        for name, following in zip(formats, [*formats[1:], ""], strict=True):
            form = {"type": name, **(strict if name == "json_schema" else {})}
            options = {} if name == "text" else {"response_format": form}
            try:
                completion = await self._complete(messages, options)
            except Exception as error:  # of the client's library, which may not be OpenAI's
                if self._refused(error, name, following and f"it is asked for {following}"):
                    refused.append(name)
                continue
            self._refusals.learn(refused)
            return self._read(completion)
        raise AssertionError("the last format returns or raises")

    async def _complete(self, messages: Prompt, options: Mapping[str, Any]) -> Any:
        """A completion that has an end, where the server knows how to set one."""
        tokens = self._limit.room * answer_tokens.get()
        texts = (str(options), *(str(it.get("content") or "") for it in messages))
        size = sum(map(count_tokens, texts))
        if 0 < self.context < size + tokens:  # which ends the answer sooner
            tokens = 0
        while True:
            limit = self._limit.option(tokens)
            try:
                return await call(self._create, messages, {**options, **limit})
            except Exception as error:  # of the client's library, which may not be OpenAI's
                if limit and self._is_too_long(error) and not 0 < self.context < size:
                    tokens = 0  # some count the limit as if it were used
                elif not self._limit.is_refused(limit, error, self._whose):
                    raise

    def _read(self, completion: object) -> Reply:
        """A reply; a model that has thought until it was cut is given more room the next time."""
        choices = _part(completion, "choices")
        if not isinstance(choices, list) or not choices:
            raise Unavailable("the model answered without choices")
        cut = _part(choices[0], "finish_reason") == "length"
        if cut:
            log.warning("the answer of %s was cut: it reached its limit of tokens", self._whose)
        try:
            return replace(_read(choices[0], _part(completion, "usage")), cut=cut)
        except Unavailable:
            if cut and not self._limit.widen():
                raise cut_short() from None
            raise

    def _create(self, messages: Prompt, options: Mapping[str, Any]) -> Any:
        plain, times = [dict(message) for message in messages], patience.get()
        client = self._opened()
        if times > 1 and hasattr(client, "with_options"):
            client = client.with_options(timeout=self._timeout * times)
        return client.chat.completions.create(model=self.name, messages=plain, **options)

    def _opened(self) -> Any:
        if self._client is None and self._connect:
            self._client = self._connect()
        return self._client

    @property
    def _whose(self) -> str:
        return whose(self.name, self.address)

    def _refused(self, error: Exception, what: str, instead: str) -> bool:
        """Whether a refusal names what is refused; whatever is no refusal is raised again."""
        if self._is_too_long(error):
            raise too_long(self.context) from error
        is_refusal, is_named = refuses(error, what)
        if not is_refusal or not instead:
            raise error
        log.warning("%s %s to a question with %s; %s", self._whose, fault(error), what, instead)
        return is_named

    def _is_too_long(self, error: Exception) -> bool:
        """Whether a server refuses a prompt for its length; it often tells what would fit."""
        status = getattr(error, "status_code", None)
        if status not in (*REFUSALS, 413, 500) or not _TOO_LONG.search(str(error)):
            return False
        known = _CONTEXT.search(str(error))
        self.context = int(known[1]) if known else self.context
        return True


def _read(choice: object, usage: object) -> Reply:
    message = _part(choice, "message")
    entries, calls = _part(message, "tool_calls"), []
    for entry in entries if isinstance(entries, list) else ():
        function = _part(entry, "function")
        name = _part(function, "name")
        if isinstance(name, str) and name:
            calls.append(_new_call(_part(entry, "id"), name, _part(function, "arguments")))
    return _reply(_part(message, "content"), usage, tuple(calls))


def _reply(text: object, usage: object, calls: tuple[ToolCall, ...] = ()) -> Reply:
    """A reply from what a client reports; with neither a text nor calls it is Unavailable."""
    answer = text if isinstance(text, str) and text.strip() else ""
    if not answer and not calls:
        raise Unavailable("the model answered without a text")
    counts = [_part(usage, name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (it if isinstance(it, int) and it > 0 else 0 for it in counts)
    return Reply(answer, prompt, completion, calls)


def _part(value: object, name: str) -> Any:
    """A field of an object or a mapping, None where there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _ask_autogen(client: Any) -> Callable[..., Awaitable[Reply]]:
    """A client with `create(messages=..., json_output=True)`, as AutoGen's have it.

    Its own clients take its own message objects; those built alike take plain messages.
    """
    # A client that says that its model has no JSON mode refuses to be asked for it.
    has_json = _part(_part(client, "model_info"), "json_output") is not False
    family = {base.__module__.split(".")[0] for base in type(client).__mro__}

    async def reply(messages: Prompt, *, schema: Schema | None = None) -> Reply:
        prompt: list[Any] = [dict(message) for message in messages]
        models = sys.modules.get("autogen_core.models")
        if models and "autogen_core" in family:
            kinds = {
                "system": models.SystemMessage,
                "user": partial(models.UserMessage, source="user"),
                "assistant": partial(models.AssistantMessage, source="assistant"),
            }
            prompt = [kinds[it["role"]](content=it["content"]) for it in messages]
        options = {"json_output": True} if schema is not None and has_json else {}
        result = await call(client.create, messages=prompt, **options)
        cut = _part(result, "finish_reason") == "length"
        return replace(_reply(_part(result, "content"), _part(result, "usage")), cut=cut)

    return reply


def _ask_function(function: Callable[..., Any]) -> Callable[..., Awaitable[Reply]]:
    """A function of the list of messages, sync or async, that returns a text or the JSON itself."""

    async def reply(messages: Prompt, *, schema: Schema | None = None) -> Reply:
        result = await call(function, [dict(message) for message in messages])
        if isinstance(result, Reply):
            return result
        text = _json(result) if isinstance(result, Mapping | list) else result
        return _reply(text, None)

    return reply


class WrittenCalls:
    """A chat model that takes no tools, as one that does."""

    def __init__(self, name: str, reply: Callable[..., Awaitable[Reply]]) -> None:
        self.name = name
        self._reply = reply

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """The model's answer, with the calls that it wrote."""
        plain = written(messages, tools)
        if tools:
            return read_calls(await self._reply(plain), tools)
        return await self._reply(plain, schema=schema)


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads((files(__package__) / "written_calls.toml").read_text("utf-8"))


def written(messages: Prompt, tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The same conversation in plain messages, with the tools in its system prompt."""
    begun = bool(messages) and messages[0]["role"] == "system"
    system = messages[0]["content"] if begun else ""
    texts = _texts()["zh" if is_chinese(system) else "en"]
    calls = [each for it in messages for each in it.get("tool_calls") or ()]
    names = {it["id"]: it["function"]["name"] for it in calls}
    plain = [_plain(message, names, texts["result"]) for message in messages]
    if not tools:
        return plain
    tool = texts["tool"].format
    lines = [tool(it.name, it.description, _json(dict(it.parameters))) for it in tools]
    manual = "\n".join([system, "", texts["manual"], *lines]).strip()
    return [{"role": "system", "content": manual}, *plain[begun:]]


def _plain(message: Mapping[str, Any], names: Mapping[str, str], result: str) -> dict[str, Any]:
    if message["role"] == "tool":
        call_id = message["tool_call_id"]
        text = result.format(call_id, names.get(call_id, "?"), message["content"])
        return {"role": "user", "content": text}
    if not message.get("tool_calls"):
        return dict(message)
    calls = []
    for it in message["tool_calls"]:
        name, arguments = it["function"]["name"], it["function"]["arguments"]
        with suppress(ValueError, RecursionError):  # broken ones are shown as they were written
            arguments = json.loads(arguments)
        calls.append({"id": it["id"], "name": name, "arguments": arguments})
    text = f"{message.get('content') or ''}\n{_json({'calls': calls})}"
    return {"role": "assistant", "content": text.strip()}


def read_calls(reply: Reply, tools: Sequence[Tool]) -> Reply:
    """A reply with the calls of these tools that stand written in its text, in whatever form.

    A text without any stays as it is, and so does one beside calls that were made properly.
    """
    names = {tool.name for tool in tools}
    shown = filter_text(reply.text, names) if reply.text and not reply.calls else None
    leaked = [call for leak in shown.leaks for call in leak.calls] if shown else []
    calls = tuple(_new_call(None, it.name, dict(it.arguments)) for it in leaked if it.name in names)
    return replace(reply, text=shown.text.strip(), calls=calls) if shown and calls else reply


def _new_call(call_id: object, name: str, arguments: object) -> ToolCall:
    """A call from what a model gave: one without an id gets one, arguments become JSON text."""
    text = arguments if isinstance(arguments, str) else _json(arguments or {})
    known = call_id if isinstance(call_id, str) and call_id else f"call_{token_hex(6)}"
    return ToolCall(known, name, text if text.strip() else "{}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
