"""Embedding models that run in this process, from the package `fastembed` (extra `fastembed`)."""

import asyncio
import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np

from kemem.errors import Unavailable
from kemem.fork import hold_across_fork
from kemem.records import Matrix

_lock = threading.Lock()  # one text list at a time, and one download
hold_across_fork(_lock)


class FastEmbedder:
    """A model by the name that fastembed knows it by, which it downloads on first use.

    So it is not `in_process` as the local one is: messages are durable before it is asked.
    """

    learns_width = True

    def __init__(self, model: str) -> None:
        self.name = f"fastembed:{model}"
        self.width = 0  # not known before the first answer
        self._model_name = model

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """A row for each text, as the model embeds questions or passages."""
        matrix = await asyncio.to_thread(self._embed, [*texts], purpose)
        self.width = self.width or matrix.shape[1]
        return matrix

    def _embed(self, texts: list[str], purpose: str) -> Matrix:
        with _lock:
            model = _load(self._model_name, os.getpid())
            asked = model.query_embed if purpose == "query" else model.passage_embed
            return np.array([*asked(texts)], np.float32)


@cache  # all memories of a process share a model; its threads do not survive a fork
def _load(name: str, pid: int) -> Any:
    try:
        from fastembed import TextEmbedding
    except ImportError:
        advice = "in the checkout, run: pip install '.[fastembed]'"
        raise Unavailable(f"the package fastembed is missing; {advice}") from None
    try:
        return TextEmbedding(name)
    except Exception as error:  # an unknown name, or a download that fails in whatever way
        fault = f"fastembed cannot load {name!r}: {type(error).__name__}"
        raise Unavailable(fault) from error
