"""KeMem on SQLite, with the settings that it comes with."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from bench.corpus import Batch
from bench.remember.systems import USER, Search, System
from bench.systems import LIMIT, versions
from bench.systems.kemem import TableEmbedder, as_kemem
from bench.vectors import VectorTable
from kemem import Memory
from kemem.records import NOTES
from kemem.results import Added
from kemem.settings import load


class KeMemMemories:
    def __init__(self, folder: Path, table: VectorTable, base_url: str, model: str) -> None:
        settings = load(data_dir=folder, llm_base_url=base_url, llm_model=model)
        self._memory = Memory(settings=settings, embedder=TableEmbedder(table))
        self._memory.health()  # opens the store now, as mem0 does, and not in the first timed call

    @property
    def searches(self) -> Mapping[str, Search]:
        return {
            "notes and messages": self._search,
            "notes": lambda question: self._search(question, NOTES),
        }

    def load(self, batch: Batch) -> None:
        self._check(
            self._memory.add(
                [as_kemem(message) for message in batch.messages], user_id=USER, infer=False
            )
        )

    def add(self, message: str, *, infer: bool) -> int:
        said = [{"role": "user", "content": message}]
        return self._check(self._memory.add(said, user_id=USER, infer=infer))

    def close(self) -> None:
        self._memory.close()

    def _search(self, question: str, kinds: frozenset[str] | None = None) -> int:
        return len(self._memory.search(question, user_id=USER, limit=LIMIT, kinds=kinds))

    def _check(self, added: Added) -> int:
        if added.pending or added.problems:
            raise RuntimeError(f"work was put off, its time would not count: {added.problems}")
        return len(added.results)


def kemem_system(table: VectorTable, base_url: str) -> System:
    return System(
        open=lambda folder, model: KeMemMemories(folder, table, base_url, model),
        versions={"SQLite": sqlite3.sqlite_version} | versions("openai", "SQLAlchemy", "numpy"),
    )
