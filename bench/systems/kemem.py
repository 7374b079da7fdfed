"""KeMem itself, as an embedded library on SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from bench.corpus import Batch, Message
from bench.material import Question
from bench.systems import LIMIT, Search, Stores, versions
from bench.vectors import WIDTH, Matrix, VectorTable
from kemem import Memory


class TableEmbedder:
    """Reads vectors from the table, the same as everyone else's."""

    in_process = True  # as the default embedder: a remote one is asked between two transactions
    name = "bench-table"
    width = WIDTH

    def __init__(self, table: VectorTable) -> None:
        self._table = table

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        return self._table.look_up(texts)


class KeMemStore:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.health()  # opens the store now, as the peers do, and not in the first timed call

    @property
    def searches(self) -> Mapping[str, Search]:
        return {"lexical": self._lexical, "semantic": self._semantic, "hybrid": self._hybrid}

    def add(self, batch: Batch) -> None:
        told = self._memory.ingest(
            [as_kemem(message) for message in batch.messages], user_id=batch.user_id
        )
        if told.pending:
            raise RuntimeError("vectors were put off: the time of this add would not count them")

    def close(self) -> None:
        self._memory.close()

    def _lexical(self, user_id: str, question: Question) -> Sequence[str]:
        found = self._memory.lexical_search(question.text, user_id=user_id, page_size=LIMIT)
        return [hit.id for hit in found.items]

    def _semantic(self, user_id: str, question: Question) -> Sequence[str]:
        found = self._memory.semantic_search(
            query_embedding=question.vector, user_id=user_id, top_k=LIMIT
        )
        return [hit.id for hit in found]

    def _hybrid(self, user_id: str, question: Question) -> Sequence[str]:
        found = self._memory.hybrid_search(question.text, user_id=user_id, limit=LIMIT)
        return [hit.id for hit in found]


def as_kemem(message: Message) -> dict[str, str]:
    return {
        "role": message.role,
        "content": message.text,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "ts": message.ts,
    }


def sqlite_stores(workspace: Path, table: VectorTable) -> Stores:
    embedder = TableEmbedder(table)
    return Stores(
        open=lambda name: KeMemStore(Memory(data_dir=workspace / name, embedder=embedder)),
        versions={"SQLite": sqlite3.sqlite_version} | versions("SQLAlchemy", "numpy"),
    )
