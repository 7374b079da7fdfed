"""Vector databases beside KeMem in `bench.scale`: one collection that one process writes and asks.

They keep texts and vectors and find the nearest vectors; they have no index of words here.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.corpus import questions
from bench.measure import measure, percentile
from bench.scale_rows import (
    LIMIT,
    QUESTIONS,
    WIDTH,
    ClusteredEmbedder,
    cpu,
    messages,
    recall,
    resident_mb,
    texts,
    vectors,
)
from kemem.records import Matrix, Message, Vector

PEERS = ("chroma", "qdrant")


class Collection(Protocol):
    def add(self, put: Sequence[Message], matrix: Matrix) -> None: ...
    def nearest(self, vector: Vector) -> list[str]: ...
    def close(self) -> None: ...


class Chroma:
    def __init__(self, folder: Path) -> None:
        import chromadb  # type: ignore[import-not-found]

        quiet = chromadb.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(path=str(folder), settings=quiet)
        self._rows = self._client.get_or_create_collection(
            "rows", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def add(self, put: Sequence[Message], matrix: Matrix) -> None:
        said, names = [it.content for it in put], [it.message_id for it in put]
        users: Any = [{"user_id": it.user_id} for it in put]
        self._rows.add(ids=names, documents=said, embeddings=matrix, metadatas=users)

    def nearest(self, vector: Vector) -> list[str]:
        own = {"user_id": "u0"}
        answer = self._rows.query(query_embeddings=[vector], n_results=LIMIT, where=own)
        return list(answer["ids"][0])

    def close(self) -> None:
        self._client.close()


class Qdrant:
    """In the local mode of its client, which compares every vector."""

    def __init__(self, folder: Path) -> None:
        from qdrant_client import QdrantClient, models

        self._models, self._client = models, QdrantClient(path=str(folder))
        if not self._client.collection_exists("rows"):
            shape = models.VectorParams(size=WIDTH, distance=models.Distance.COSINE)
            self._client.create_collection("rows", vectors_config=shape)

    def add(self, put: Sequence[Message], matrix: Matrix) -> None:
        points = [
            self._models.PointStruct(
                id=int(it.message_id.removeprefix("m")),
                vector=vector.tolist(),
                payload={"user_id": it.user_id, "id": it.message_id, "content": it.content},
            )
            for it, vector in zip(put, matrix, strict=True)
        ]
        self._client.upsert("rows", points)

    def nearest(self, vector: Vector) -> list[str]:
        user = self._models.MatchValue(value="u0")
        own = self._models.Filter(must=[self._models.FieldCondition(key="user_id", match=user)])
        found = self._client.query_points(
            "rows", query=vector.tolist(), limit=LIMIT, query_filter=own
        )
        return [str((it.payload or {})["id"]) for it in found.points]

    def close(self) -> None:
        self._client.close()


def open_peer(system: str, folder: Path) -> Collection:
    return Chroma(folder) if system == "chroma" else Qdrant(folder)


def build(system: str, folder: Path, rows: int) -> float:
    """A collection of so many rows; returns the rows written in a second."""
    written = folder / "built.json"
    if written.exists():
        return float(json.loads(written.read_text()))
    folder.mkdir(parents=True)
    collection, spent = open_peer(system, folder), 0.0
    said = messages("u0", rows, texts())
    for matrix in vectors(rows):
        put = [next(said) for _ in matrix]
        before = time.perf_counter()
        collection.add(put, matrix)
        spent += time.perf_counter() - before
    collection.close()
    written.write_text(json.dumps(rows / spent))
    return rows / spent


def search(system: str, folder: Path, rows: int) -> dict[str, float]:
    """The same questions by their vectors as KeMem is asked, then single adds."""
    embed = ClusteredEmbedder().vector
    asked = np.stack([embed(text) for text in questions(QUESTIONS + 1)])
    more = [*messages("u0", rows + QUESTIONS, texts())][rows:]
    collection = open_peer(system, folder)
    first = measure(lambda _: collection.nearest(asked[-1]), 1)
    answers: list[list[str]] = []
    semantic = measure(lambda n: answers.append(collection.nearest(asked[n])), QUESTIONS)
    resident = resident_mb()
    add = measure(lambda n: collection.add([more[n]], asked[n : n + 1]), QUESTIONS)
    collection.close()
    return {
        "first_ms": first.wall_ms[0],
        **cpu("semantic", semantic),
        "resident_mb": resident,
        "recall": recall(rows, asked[:-1], answers),
        "add_cpu_ms": percentile(add.cpu_ms, 50),
    }
