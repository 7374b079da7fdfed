"""A pytest plugin that runs LangGraph's own tests of stores on KeMemStore.

Its tests make an InMemoryStore; with this plugin, that name is a KeMemStore of a user of its own,
with the embeddings that a test passes. The plugin is loaded by its file's name alone, because
LangGraph's tests are a package called `tests`, too.
"""

import itertools
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any

import langgraph.store.memory
import numpy as np

from kemem import Memory
from kemem.integrations.langgraph import KeMemStore
from kemem.records import Matrix
from kemem.settings import load

_directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
_owners = itertools.count()


class Embedded:
    """The embeddings of LangGraph's tests as an embedder of ours."""

    in_process = True
    name = "of LangGraph's tests"

    def __init__(self, index: Any) -> None:
        self.width = index["dims"]
        self._embeddings = index["embed"]

    async def embed(self, texts: Sequence[str], *, purpose: str) -> Matrix:
        vectors = np.array(self._embeddings.embed_documents(list(texts)), dtype=np.float32)
        vectors[~vectors.any(axis=1), 0] = 1.0  # of texts without any letter that they know
        return vectors


_indexes: dict[int, Any] = {}


@cache
def opened(width: int) -> Memory:
    """The memory of all stores without embeddings, or with those of a width."""
    settings = load(data_dir=f"{_directory.name}/{width}", embedder="none", llm="none")
    return Memory(settings=settings, embedder=Embedded(_indexes[width]) if width else None)


class SwappedStore(KeMemStore):
    """A KeMemStore that is made as LangGraph's InMemoryStore is."""

    def __init__(self, *, index: Any = None) -> None:
        width = index["dims"] if index else 0
        _indexes.setdefault(width, index)
        fields = index.get("fields") if index else None
        super().__init__(opened(width), user_id=f"user_{next(_owners)}", fields=fields)


vars(langgraph.store.memory)["InMemoryStore"] = SwappedStore
