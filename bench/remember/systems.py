"""The two systems behind the same three methods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from bench.corpus import Batch

SYSTEMS = ("kemem", "mem0")
USER = "talker"

Search: TypeAlias = Callable[[str], int]  # question -> number of answers


class Memories(Protocol):
    """One open store of one system; all of it belongs to one user."""

    @property
    def searches(self) -> Mapping[str, Search]:
        """The kinds of search, by name."""

    def load(self, batch: Batch) -> None:
        """Keeps messages word by word, many at once."""

    def add(self, message: str, *, infer: bool) -> int:
        """Remembers one message; returns how many memories that made."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class System:
    """How to open a store in a folder with a model by its name, and what a system is made of."""

    open: Callable[[Path, str], Memories]
    versions: dict[str, str]
