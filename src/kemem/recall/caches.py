"""Caches of recall: bounded, with a time to live, void as soon as the store changes."""

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from cachetools import TTLCache

from kemem.recall.schemas import ExtractKeywordsOutput, GetMemoryDetailOutput, Model
from kemem.results import Hit, Memories

V = TypeVar("V")
_MEGABYTE = 1_000_000


class Cache(Generic[V]):
    """Values with a time to live; one that was stored under another mark is never served.

    `room` bounds the sum of what the values weigh.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        room: int,
        weigh: Callable[[V], int],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.hits = 0
        self.misses = 0
        self._room = room
        self._weigh = weigh
        self._kept: TTLCache[Hashable, tuple[str, V]] = TTLCache(
            room, seconds, timer, lambda kept: weigh(kept[1])
        )

    def get(self, key: Hashable, mark: str = "") -> V | None:
        """The value under a key, if it was stored under this mark and is still fresh."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] == mark:
            self.hits += 1
            return kept[1]
        self.misses += 1
        return None

    def put(self, key: Hashable, value: V, mark: str = "") -> None:
        """Keep a value in place of the last one; what is too large is not kept."""
        self._kept.pop(key, None)
        if self._weigh(value) <= self._room:
            self._kept[key] = (mark, value)

    def __len__(self) -> int:
        return len(self._kept)


class Caches:
    """The caches of recall; marks are generations of the store, keys name whose data a value is."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        large = 16 * _MEGABYTE
        self.expansion = Cache[ExtractKeywordsOutput]("expansion", 300, _MEGABYTE, _size, timer)
        self.search = Cache[Memories[Hit]]("search", 60, large, _size_of_hits, timer)
        self.content = Cache[GetMemoryDetailOutput]("content", 600, large, _size, timer)

    def __iter__(self) -> Iterator[Cache[Any]]:
        return iter((self.expansion, self.search, self.content))


def _size(output: Model) -> int:
    return 1_000 + 2 * len(output.model_dump_json())


def _size_of_hits(hits: Memories[Hit]) -> int:
    return 1_000 + sum(2_000 + 2 * len(hit.memory) for hit in hits)
