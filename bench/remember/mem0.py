"""mem0 as `pip install mem0ai` gives it, on local Qdrant; its model is the local server."""

from collections.abc import Mapping
from pathlib import Path

from bench.corpus import Batch
from bench.remember.systems import USER, Search, System
from bench.systems import LIMIT, versions
from bench.systems.mem0 import as_mem0, close_mem0, open_mem0
from bench.vectors import VectorTable


class Mem0Memories:
    def __init__(self, folder: Path, table: VectorTable, base_url: str, model: str) -> None:
        local = {"model": model, "openai_base_url": base_url, "api_key": "none"}
        self._memory = open_mem0(folder, table, {"provider": "openai", "config": local})

    @property
    def searches(self) -> Mapping[str, Search]:
        return {"search": self._search}

    def load(self, batch: Batch) -> None:
        said = [as_mem0(message) for message in batch.messages]
        self._memory.add(said, user_id=USER, infer=False)

    def add(self, message: str, *, infer: bool) -> int:
        said = [{"role": "user", "content": message}]
        return len(self._memory.add(said, user_id=USER, infer=infer)["results"])

    def close(self) -> None:
        close_mem0(self._memory)

    def _search(self, question: str) -> int:
        filters = {"user_id": USER}
        answer = self._memory.search(question, filters=filters, top_k=LIMIT, threshold=0.0)
        return len(answer["results"])


def mem0_system(table: VectorTable, base_url: str) -> System:
    return System(
        open=lambda folder, model: Mem0Memories(folder, table, base_url, model),
        versions=versions("mem0ai", "qdrant-client", "openai", "numpy"),
    )
