"""Vectors are derived: whatever a model does, messages stay, words find them, jobs repair."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from kemem import AsyncMemory, NotConfigured, Unavailable
from kemem.add.embed import MAX_ATTEMPTS
from kemem.ports import Embedder
from kemem.records import Matrix
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder

SAID = [
    {"role": "user", "content": "我不吃辣", "message_id": "zh"},
    {"role": "user", "content": "I love hotpot", "message_id": "en"},
]
HOUR = 3600


class Broken:
    """An embedder whose answers can be spoilt."""

    def __init__(self, spoil: Callable[[Matrix], Matrix] | None) -> None:
        self.honest = HashingEmbedder(width=32)
        self.name, self.width = self.honest.name, self.honest.width
        self.spoil = spoil

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        matrix = await self.honest.embed(texts, purpose=purpose)
        return self.spoil(matrix) if self.spoil else matrix


def refuse(_: Matrix) -> Matrix:
    raise ConnectionError("the model is away")


SPOILT: dict[str, Callable[[Matrix], Any]] = {
    "raises": refuse,
    "NaN": lambda matrix: matrix * np.float32("nan"),
    "infinite": lambda matrix: matrix * np.float32("inf"),
    "zero": np.zeros_like,
    "too narrow": lambda matrix: matrix[:, :-1],
    "one is missing": lambda matrix: matrix[:-1],
    "empty": lambda matrix: matrix[:0],
    "not an array": lambda matrix: None,
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_767_225_600_000_000)


@pytest.fixture
async def open_memory(
    tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Callable[[Embedder | None], AsyncMemory]]:
    """Opens memories on one directory, with any embedder."""
    opened: list[AsyncMemory] = []

    def open_with(embedder: Embedder | None) -> AsyncMemory:
        settings = load(data_dir=tmp_path, embedder="none")
        memory = AsyncMemory(settings=settings, embedder=embedder, clock=clock)
        opened.append(memory)
        return memory

    yield open_with
    for memory in opened:
        await memory.close()


Open = Callable[[Embedder | None], AsyncMemory]


async def semantic(memory: AsyncMemory, text: str) -> list[str]:
    return [hit.id for hit in await memory.semantic_search(text, "小明", top_k=1)]


async def lexical(memory: AsyncMemory, text: str) -> list[str]:
    return [hit.id for hit in (await memory.lexical_search(text, "小明")).items]


@pytest.mark.parametrize("fault", SPOILT)
async def test_a_failing_model_loses_nothing(
    open_memory: Open, clock: FakeClock, fault: str
) -> None:
    """The messages are kept and found by words, the answer says so, and a job repairs it."""
    embedder = Broken(SPOILT[fault])
    memory = open_memory(embedder)
    ingested = await memory.ingest(SAID, "小明")
    assert ingested.inserted == ("zh", "en") and ingested.pending
    assert len(ingested.problems) == 1  # which says why
    assert await lexical(memory, "不吃辣") == ["zh"]
    assert await lexical(memory, "hotpot") == ["en"]
    hits = await memory.hybrid_search("hotpot", "小明")
    assert hits[0].id == "en" and "semantic#" not in " ".join(hits[0].why)
    (job,) = await memory.jobs()
    assert job.error and set(job.ids) == {"zh", "en"}
    embedder.spoil = None
    assert await memory.run_jobs() == 0, "it waits before it tries again"
    clock.advance(seconds=HOUR)
    assert await memory.run_jobs() == 1
    assert await memory.jobs() == []
    assert await semantic(memory, "我不吃辣") == ["zh"]
    assert await semantic(memory, "I love hotpot") == ["en"]


async def test_a_job_is_given_up_visibly(open_memory: Open, clock: FakeClock) -> None:
    """After some attempts it stays as failed, with its error; reindexing makes up for it."""
    embedder = Broken(refuse)
    memory = open_memory(embedder)
    await memory.ingest(SAID, "小明")
    for _ in range(MAX_ATTEMPTS):
        clock.advance(seconds=2 * HOUR)
        await memory.run_jobs()
    (job,) = await memory.jobs()
    assert (job.state, job.attempts) == ("failed", MAX_ATTEMPTS)
    assert "ConnectionError" in str(job.error)
    assert (await memory.health()).failed_jobs == 1
    embedder.spoil = None
    clock.advance(seconds=2 * HOUR)
    assert await memory.run_jobs() == 0
    await memory.reindex()
    assert await memory.jobs() == []
    assert await semantic(memory, "我不吃辣") == ["zh"]


async def test_a_writer_that_dies_while_embedding_leaves_a_job(
    open_memory: Open, clock: FakeClock
) -> None:
    """Messages are durable before the model is asked."""
    asked = asyncio.Event()

    class Endless(Broken):
        async def embed(
            self, texts: Sequence[str], *, purpose: Literal["query", "passage"]
        ) -> Matrix:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("never reached")

    memory = open_memory(Endless(None))
    writing = asyncio.create_task(memory.ingest(SAID, "小明"))
    await asked.wait()
    assert await lexical(memory, "不吃辣") == ["zh"]
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    other = open_memory(Broken(None))
    clock.advance(seconds=HOUR)
    assert await other.run_jobs() == 1
    assert await semantic(other, "I love hotpot") == ["en"]


@pytest.mark.parametrize(
    "after", [HashingEmbedder(width=64), HashingEmbedder(width=32, name="another")]
)
async def test_a_changed_model_is_a_recoverable_state(
    open_memory: Open, after: HashingEmbedder
) -> None:
    """Old vectors are not compared with new ones; words work; new vectors come by jobs."""
    first = open_memory(HashingEmbedder(width=32))
    await first.ingest(SAID, "小明")
    await first.ingest(SAID, "李雷", agent_id="another agent")
    await first.close()
    memory = open_memory(after)
    assert await memory.semantic_search("我不吃辣", "小明") == []
    assert await lexical(memory, "不吃辣") == ["zh"]
    assert (await memory.hybrid_search("hotpot", "小明"))[0].id == "en"
    assert await memory.run_jobs() >= 2
    assert await semantic(memory, "我不吃辣") == ["zh"]
    assert (await memory.health()).vectors == 4


async def test_reading_with_another_model_changes_nothing(open_memory: Open) -> None:
    """Only work that makes vectors decides which model is in use."""
    first = open_memory(HashingEmbedder(width=32))
    await first.ingest(SAID, "小明")
    other = open_memory(HashingEmbedder(width=64))
    await other.hybrid_search("火锅 hotpot", "小明")
    assert await other.jobs() == []
    assert await semantic(first, "我不吃辣") == ["zh"]


async def test_an_embedder_that_comes_later_embeds_what_is_there(open_memory: Open) -> None:
    first = open_memory(None)
    assert not (await first.ingest(SAID, "小明")).pending
    with pytest.raises(NotConfigured, match="KEMEM_EMBEDDER"):
        await first.semantic_search("我不吃辣", "小明")
    hits = await first.hybrid_search("吃辣", "小明")
    assert hits[0].id == "zh" and "semantic: unavailable" in hits[0].why
    later = open_memory(HashingEmbedder(width=32))
    await later.run_jobs()
    assert await semantic(later, "我不吃辣") == ["zh"]


async def test_many_messages_are_embedded_page_by_page(open_memory: Open) -> None:
    """More than a page: every message gets its vector."""
    first = open_memory(None)
    await first.ingest([{"role": "user", "content": f"第{n}句 line"} for n in range(600)], "小明")
    memory = open_memory(HashingEmbedder(width=32))
    assert await memory.run_jobs() == 3
    assert (await memory.health()).vectors == 600


async def test_reindexing_derives_everything_again(open_memory: Open) -> None:
    """Words and vectors come from the messages alone."""
    memory = open_memory(HashingEmbedder(width=32))
    await memory.ingest(SAID, "小明")
    before = await memory.hybrid_search("hotpot 不吃辣", "小明")
    await memory.reindex()
    assert await memory.hybrid_search("hotpot 不吃辣", "小明") == before


async def test_a_question_survives_a_failing_model(open_memory: Open) -> None:
    """Semantic search says that it cannot; hybrid search answers by words and says so."""
    embedder = Broken(None)
    memory = open_memory(embedder)
    await memory.ingest(SAID, "小明")
    embedder.spoil = refuse
    hits = await memory.hybrid_search("hotpot", "小明")
    assert [hit.id for hit in hits] == ["en"]
    assert "semantic: unavailable" in hits[0].why
    with pytest.raises(Unavailable, match="embedder"):
        await memory.semantic_search("hotpot", "小明")
