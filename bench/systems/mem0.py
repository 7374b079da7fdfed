"""mem0 as `pip install mem0ai` gives it: local Qdrant on disk, verbatim adds, no model called."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import mem0

from bench.corpus import Batch, Message
from bench.material import Question
from bench.systems import LIMIT, Search, Stores, versions
from bench.vectors import WIDTH, Vectors, VectorTable

UNUSED_MODEL = {"provider": "openai", "config": {"api_key": "never-used"}}


class TableEmbedding:
    """Stands in for mem0's embedding model: the same vectors as everyone else's."""

    def __init__(self, table: Vectors) -> None:
        self._table = table

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._table.look_up([text])[0].tolist()  # type: ignore[no-any-return]

    def embed_batch(self, texts: list[str], memory_action: str = "add") -> list[list[float]]:
        return self._table.look_up(texts).tolist()  # type: ignore[no-any-return]


def open_mem0(
    folder: Path, table: Vectors, llm: Mapping[str, object], width: int = WIDTH
) -> mem0.Memory:
    """mem0 with its files in a folder and its vectors from the table."""
    folder.mkdir(parents=True, exist_ok=True)
    qdrant = {
        "path": str(folder / "qdrant"),
        "on_disk": True,  # otherwise an existing folder is emptied at opening
        "embedding_model_dims": width,
    }
    memory = mem0.Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": qdrant},
            "embedder": UNUSED_MODEL,
            "llm": llm,
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model = TableEmbedding(table)
    return memory


def close_mem0(memory: mem0.Memory) -> None:
    memory.vector_store.client.close()  # Memory.close leaves the folder locked
    memory.close()


class Mem0Store:
    def __init__(self, folder: Path, table: VectorTable) -> None:
        self._memory = open_mem0(folder, table, UNUSED_MODEL)

    @property
    def searches(self) -> Mapping[str, Search]:
        return {"search": self._search}

    def add(self, batch: Batch) -> None:
        # Metadata belongs to a whole call of mem0, so ids of messages cannot travel in it;
        # `name` is the one field that is kept for each message.
        self._memory.add(
            [as_mem0(message) for message in batch.messages], user_id=batch.user_id, infer=False
        )

    def close(self) -> None:
        close_mem0(self._memory)

    def _search(self, user_id: str, question: Question) -> Sequence[str]:
        answer = self._memory.search(
            question.text, filters={"user_id": user_id}, top_k=LIMIT, threshold=0.0
        )
        return [memory["actor_id"] for memory in answer["results"]]


def as_mem0(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text, "name": message.message_id}


def mem0_stores(workspace: Path, table: VectorTable) -> Stores:
    return Stores(
        open=lambda name: Mem0Store(workspace / name, table),
        versions=versions("mem0ai", "qdrant-client", "numpy"),
    )
