"""The size of a model's context, as servers tell it beside OpenAI's API."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# What servers with a list of models call it: vLLM and SGLang, OpenRouter, LM Studio, Groq.
_LISTED = ("max_model_len", "context_length", "max_context_length", "context_window")
_VERSION = re.compile(r"/v\d+/*$")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


async def ask_context(client: Any, base_url: str, model: str) -> int:
    """The tokens that a server tells; 0 where it tells none, or fails, which is no matter.

    The client is an AsyncOpenAI; what the model was trained for counts where no limit is told.
    """
    root, trained = _VERSION.sub("", base_url.rstrip("/")), 0
    with suppress(Exception):  # of the client's library
        told = _model(await client.get("/models", cast_to=object), model)
        if size := next(filter(None, (_size(told.get(name)) for name in _LISTED)), 0):
            return size
        trained = _size(_fields(told.get("meta")).get("n_ctx_train"))
    with suppress(Exception):  # llama.cpp
        told = _fields(await client.get(f"{root}/props", cast_to=object))
        slot = _fields(told.get("default_generation_settings"))
        if size := _size(slot.get("n_ctx")) or _size(told.get("n_ctx")):
            return size
    with suppress(Exception):  # Ollama
        shown = await client.post(f"{root}/api/show", body={"model": model}, cast_to=object)
        told = _fields(shown)
        if match := _NUM_CTX.search(str(told.get("parameters") or "")):
            return int(match[1])
        info = _fields(told.get("model_info"))
        trained = trained or _size(
            next((value for name, value in info.items() if name.endswith(".context_length")), 0)
        )
    return trained


def _model(page: object, name: str) -> Mapping[str, Any]:
    """A model in a list of models, or the only one, whose name may be a path there."""
    listed = _fields(page).get("data")
    models = [it for it in listed if isinstance(it, Mapping)] if isinstance(listed, list) else []
    named = [it for it in models if it.get("id") == name]
    return (named or (models if len(models) == 1 else [{}]))[0]


def _fields(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _size(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
