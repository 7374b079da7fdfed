"""Chroma, embedded: one persistent collection, cosine, users told apart by a `where` filter."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import chromadb  # type: ignore[import-not-found]

from bench.corpus import Batch
from bench.material import Question
from bench.systems import LIMIT, Search, Stores, versions
from bench.vectors import VectorTable


class ChromaStore:
    def __init__(self, folder: Path, table: VectorTable) -> None:
        quiet = chromadb.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(path=str(folder), settings=quiet)
        # Without embedding_function=None Chroma would download a model.
        self._messages = self._client.get_or_create_collection(
            "messages", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        self._table = table

    @property
    def searches(self) -> Mapping[str, Search]:
        return {"semantic": self._query}

    def add(self, batch: Batch) -> None:
        said = [message.text for message in batch.messages]
        self._messages.add(
            ids=[message.message_id for message in batch.messages],
            documents=said,
            embeddings=self._table.look_up(said),
            metadatas=[
                {
                    "user_id": batch.user_id,
                    "session_id": message.session_id,
                    "role": message.role,
                    "ts": message.ts,
                }
                for message in batch.messages
            ],
        )

    def close(self) -> None:
        self._client.close()

    def _query(self, user_id: str, question: Question) -> Sequence[str]:
        answer = self._messages.query(
            query_embeddings=[question.vector], n_results=LIMIT, where={"user_id": user_id}
        )
        return list(answer["ids"][0])


def chroma_stores(workspace: Path, table: VectorTable) -> Stores:
    return Stores(
        open=lambda name: ChromaStore(workspace / name, table),
        versions=versions("chromadb", "numpy"),
    )
