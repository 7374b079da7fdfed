"""Whatever callers have that can chat, as an LLM."""

import json
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, cast

from kemem.backends.openai import OpenAILLM, part, reply_of
from kemem.backends.written_calls import WrittenCalls
from kemem.errors import InvalidArgument
from kemem.ports import LLM, Prompt, Reply, Schema
from kemem.threads import call


def as_llm(given: Any, model: str, timeout: float) -> LLM:
    """An LLM from an object with `reply`, an OpenAI or AutoGen client, or a function.

    as_llm(AsyncOpenAI(), "gpt-5-mini", 60)
    as_llm(lambda messages: my_model(messages), "", 60)
    """
    if not isinstance(given, type):  # a class has the methods as well, but cannot be asked
        if callable(getattr(given, "reply", None)) and isinstance(part(given, "name"), str):
            return cast(LLM, given) if _takes_tools(given.reply) else WrittenCalls(given)
        completions = getattr(getattr(given, "chat", None), "completions", None)
        if callable(getattr(completions, "create", None)):
            if not model:
                raise InvalidArgument("an OpenAI client needs the name of a model", field="model")
            return OpenAILLM(given, model, timeout)
        if callable(getattr(given, "create", None)):
            return WrittenCalls(AutogenLLM(given, model))
        if callable(given):
            return WrittenCalls(FunctionLLM(given, model))
    raise InvalidArgument(
        "llm must be an OpenAI client, an AutoGen client with create(messages=...), "
        "a function of the list of messages, or an object with `name` and "
        f"`async reply(messages, schema=...)`, not {type(given).__name__}",
        field="llm",
    )


class AutogenLLM:
    """A client with `create(messages=..., json_output=True)`, as AutoGen's have it."""

    def __init__(self, client: Any, model: str = "") -> None:
        self._client = client
        self.name = model or type(client).__name__
        # A client that says that its model has no JSON mode refuses to be asked for it.
        self._has_json = part(part(client, "model_info"), "json_output") is not False

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        """The model's answer; a schema asks for JSON."""
        wanted = {"json_output": True} if schema is not None and self._has_json else {}
        given = _for_autogen(messages, type(self._client))
        result = await call(self._client.create, messages=given, **wanted)
        return reply_of(part(result, "content"), part(result, "usage"))


class FunctionLLM:
    """A function of the list of messages, sync or async, that returns a text or the JSON itself."""

    def __init__(self, function: Callable[..., Any], model: str = "") -> None:
        self._function = function
        self.name = model or getattr(function, "__name__", type(function).__name__)

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        """What the function returns; the schema is not handed on."""
        result = await call(self._function, [dict(message) for message in messages])
        if isinstance(result, Reply):
            return result
        if isinstance(result, Mapping | list):
            result = json.dumps(result, ensure_ascii=False)
        return reply_of(result, None)


def _takes_tools(reply: Callable[..., Any]) -> bool:
    parameters = signature(reply).parameters.values()
    return any(it.name == "tools" or it.kind is Parameter.VAR_KEYWORD for it in parameters)


def _for_autogen(messages: Prompt, client: type) -> list[Any]:
    """AutoGen's own message objects for its own clients; plain messages for those built alike."""
    models = sys.modules.get("autogen_core.models")
    family = {base.__module__.split(".")[0] for base in client.__mro__}
    if models is None or "autogen_core" not in family:
        return [dict(message) for message in messages]
    kinds = {
        "system": models.SystemMessage,
        "user": lambda content: models.UserMessage(content=content, source="user"),
        "assistant": lambda content: models.AssistantMessage(content=content, source="assistant"),
    }
    return [kinds[message["role"]](content=message["content"]) for message in messages]
