"""The embedder that comes with the package: a sentence encoder; no key, no service needed."""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from cachetools import LRUCache

from kemem.fork import hold_across_fork
from kemem.records import Matrix, Vector

if TYPE_CHECKING:
    from kemem.backends.encoder import Encoder

_CHUNK = 16  # texts at once: larger chunks cost memory and gain nothing
_THREADS = min(os.cpu_count() or 1, 4)
_CACHED = 256

# What was embedded last: a message is often asked about, or kept as a note, in the same words.
_recent: LRUCache[str, Vector] = LRUCache(_CACHED)
_recent_lock = threading.Lock()
_loading = threading.Lock()
hold_across_fork(_recent_lock)
hold_across_fork(_loading)


class LocalEmbedder:
    """512 dimensions in one space for Chinese, English and 14 more languages."""

    name = "kemem-multilingual-1"
    width = 512
    in_process = True

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """Vectors of unit length; questions and passages are embedded alike."""
        with _recent_lock:
            vectors = {text: _recent[text] for text in texts if text in _recent}
        # Texts of one length side by side: a chunk is as slow as its longest text.
        missing = sorted({*texts} - vectors.keys(), key=lambda text: (len(text), text))
        chunks = [missing[at : at + _CHUNK] for at in range(0, len(missing), _CHUNK)]
        loop, workers = asyncio.get_running_loop(), _workers(os.getpid())
        # A round at a time, so that a question need not wait for a long import.
        for at in range(0, len(chunks), _THREADS):
            some = chunks[at : at + _THREADS]
            jobs = [loop.run_in_executor(workers, _encode, chunk) for chunk in some]
            for chunk, matrix in zip(some, await asyncio.gather(*jobs), strict=True):
                vectors |= zip(chunk, matrix, strict=True)
        with _recent_lock:
            _recent.update({text: vectors[text] for text in missing[-_CACHED:]})
        return np.array([vectors[text] for text in texts], dtype=np.float32)


@cache
def _workers(pid: int) -> ThreadPoolExecutor:  # each process needs threads of its own
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="kemem-embed")


def _encode(texts: list[str]) -> Matrix:
    with _loading:
        model = _model()
    return model.encode(texts)


@cache
def _model() -> "Encoder":
    from kemem.backends.encoder import Encoder

    return Encoder()
