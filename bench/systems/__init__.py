"""The measured systems, each in a file of its own behind the same three methods."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, TypeAlias

from bench.corpus import Batch
from bench.material import Question
from bench.vectors import VectorTable

LIMIT = 10  # answers asked of every search

Search: TypeAlias = Callable[[str, Question], Sequence[str]]  # user id, question -> message ids


class Store(Protocol):
    """One open store of one system."""

    @property
    def searches(self) -> Mapping[str, Search]:
        """The kinds of search it offers, by name."""

    def add(self, batch: Batch) -> None:
        """Stores one batch; durable when it returns."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Stores:
    """How to open a system's stores by name, new or closed before, and what it is made of."""

    open: Callable[[str], Store]
    versions: dict[str, str]


KEMEM = ("kemem-sqlite", "kemem-postgres")
PEERS = ("chroma", "mem0")


@contextmanager
def system(name: str, workspace: Path, table: VectorTable) -> Iterator[Stores]:
    """Opens stores of the named system, and stops whatever had to run for them."""
    # The imports wait because each process has only its own system installed.
    match name:
        case "kemem-sqlite":
            from bench.systems.kemem import sqlite_stores

            yield sqlite_stores(workspace, table)
        case "kemem-postgres":
            from bench.systems.kemem_postgres import postgres_stores

            with postgres_stores(table) as stores:
                yield stores
        case "chroma":
            from bench.systems.chroma import chroma_stores

            yield chroma_stores(workspace, table)
        case "mem0":
            from bench.systems.mem0 import mem0_stores

            yield mem0_stores(workspace, table)
        case _:
            raise ValueError(f"a system is one of {(*KEMEM, *PEERS)}, not {name!r}")


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of some packages."""
    return {package: version(package) for package in packages}
