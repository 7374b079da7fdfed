"""Another embedder by settings: nothing is lost, and search goes on while new vectors are made."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from kemem import AsyncMemory, Unavailable, runtime
from kemem.jobs import PAGE
from kemem.records import NOTES, Match, Matrix, Scope, Where
from kemem.search.previous import join
from kemem.search.recipe import nearest_notes
from kemem.serve.cli.doctor import examine
from kemem.serve.cli.work import _job_text
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder, openai_server_process, running_openai_server
from kemem.testing.doubles import hashed
from kemem.testing.openai_server import Fault, status

HOUR = 3600
NOW = 1_767_225_600_000_000
SAID = [
    {"role": "user", "content": "我不吃辣", "message_id": "zh"},
    {"role": "user", "content": "I love hotpot", "message_id": "en"},
]
# The same said in other words, which only meaning finds.
MEANT = [("辛い食べ物は苦手です", "zh"), ("fondue chinoise, j'adore", "en")]
BUSY = status(429, retry_after="0.01")


def at(settings: Settings, embedder: str, **more: object) -> Settings:
    return settings.model_copy(update={"embedder": embedder, **more})


def remote(url: str, model: str = "hashing-32") -> str:
    return f"openai:{model}@{url}"


async def semantic(memory: AsyncMemory, text: str) -> list[str]:
    return [hit.id for hit in await memory.semantic_search(text, "小明", top_k=1)]


async def work(memory: AsyncMemory, clock: FakeClock) -> None:
    for _ in range(3):
        clock.advance(seconds=HOUR)
        await memory.run_jobs()


async def test_a_server_that_fails_loses_nothing(either_settings: Settings) -> None:
    """Messages are stored and found by words; a job makes the vectors once the server is back."""
    clock = FakeClock(NOW)
    with openai_server_process([], faults=[BUSY] * 3) as server:
        settings = at(either_settings, remote(server.base_url))
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            ingested = await memory.ingest(SAID, "小明")
            assert ingested.inserted == ("zh", "en") and ingested.pending
            (job,) = await memory.jobs()
            assert job.error == f"{server.base_url}/embeddings answered 429"
            for text, name in (("不吃辣", "zh"), ("hotpot", "en")):
                hits = (await memory.lexical_search(text, "小明")).items
                assert [hit.id for hit in hits] == [name]
            await work(memory, clock)
            assert await memory.jobs() == []
            assert await semantic(memory, "不吃辣") == ["zh"]
            assert await semantic(memory, "hotpot") == ["en"]
            assert (await memory.health()).vectors == 2


async def test_a_width_is_asked_once_and_kept_with_the_model(either_settings: Settings) -> None:
    with running_openai_server([]) as server:
        settings = at(either_settings, remote(server.base_url, "hashing-48"))
        async with AsyncMemory(settings=settings) as memory:
            await memory.ingest(SAID, "小明")
            await memory.ingest([{"content": "第三句"}], "小明")
            assert await memory.jobs() == [], "what has vectors needs no others"
    assert len(server.requests) == 2
    # The server is away now.
    async with AsyncMemory(settings=settings) as memory:
        (vector,) = hashed(["不吃辣"], 48).tolist()
        hits = await memory.semantic_search(query_embedding=vector, user_id="小明", top_k=1)
        assert [hit.id for hit in hits] == ["zh"]


async def test_another_width_under_the_same_name_waits_for_reindex(tmp_path: Path) -> None:
    """It would not fit the stored vectors; words go on, and `reindex` takes the new width."""
    clock = FakeClock(NOW)
    wider = [Fault(_embeddings(texts, 40)) for texts in (["第三句"], ["hotpot"])]
    with running_openai_server([], faults=[None, *wider]) as server:
        settings = at(load(data_dir=tmp_path), remote(server.base_url))
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            await memory.ingest(SAID, "小明")
            assert (await memory.ingest([{"content": "第三句"}], "小明")).pending
            (job,) = await memory.jobs()
            assert "vectors of 40 numbers, where it had 32 before" in str(job.error)
            assert "kemem reindex" in str(job.error)
            with pytest.raises(Unavailable, match="40 numbers"):
                await memory.semantic_search("hotpot", "小明")
    with running_openai_server([], faults=[]) as server:
        # Under the same name, a model that is wider.
        settings = at(settings, remote(server.base_url, "hashing-32"))
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            deps = await memory.runtime.deps()
            assert deps.embedder is not None
            deps.embedder._model = "hashing-40"  # type: ignore[attr-defined]
            await memory.reindex()
            assert await memory.jobs() == []
            assert await semantic(memory, "hotpot") == ["en"]
            model = (await deps.store.info()).model
            assert model is not None and (model.name, model.width) == ("openai:hashing-32", 40)


def _embeddings(texts: list[str], width: int) -> bytes:
    rows = hashed(texts, width).tolist()
    data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
    return json.dumps({"data": data}).encode()


async def test_search_goes_on_with_old_vectors_until_the_new_ones_are_there(
    either_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the local model to a server's: by meaning at every moment, whether the server is up."""
    monkeypatch.setattr(runtime, "_LEARN_PAUSE", 0.0)
    clock = FakeClock(NOW)
    async with AsyncMemory(settings=at(either_settings, "local"), clock=clock) as memory:
        await memory.ingest(SAID, "小明")
    with openai_server_process([], faults=[status(500, retry_after="0.01")] * 9) as server:
        settings = at(either_settings, remote(server.base_url))
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            for text, name in MEANT:  # nothing is written yet, and the server fails
                hits = await memory.hybrid_search(text, "小明")
                assert hits[0].id == name and "semantic: unavailable" in hits[0].why
            faults = 9 - len(MEANT)
            while faults > 0:  # the width cannot be asked for
                await memory.run_jobs()
                faults -= 1
            await memory.run_jobs()
            await work(memory, clock)
            assert await memory.jobs() == []
            assert await semantic(memory, "不吃辣") == ["zh"]
            (hit, *_) = await memory.hybrid_search("不吃辣", "小明")
            assert hit.id == "zh" and "semantic: unavailable" not in hit.why
            model = (await (await memory.runtime.deps()).store.info()).model
            assert model is not None and model.name == "openai:hashing-32"


async def test_progress_is_told_while_vectors_of_both_models_are_searched(tmp_path: Path) -> None:
    """The newest page has new vectors, the rest old ones: meaning finds rows of both."""
    clock = FakeClock(NOW)
    old = [
        {"role": "user", "content": text, "message_id": name, "ts": "2025-12-01T00:00:00Z"}
        for text, name in (("我不吃辣", "zh"), ("I love hotpot", "en"))
    ]
    filler = [
        {"role": "user", "content": f"记录 {number} log", "ts": "2025-12-02T00:00:00Z"}
        for number in range(PAGE)
    ]
    settings = load(data_dir=tmp_path, llm="none")
    async with AsyncMemory(settings=at(settings, "none"), clock=clock) as memory:
        await memory.ingest([*old, *filler], "小明")
    async with AsyncMemory(settings=at(settings, "local"), clock=clock) as memory:
        await memory.run_jobs()
        assert (await memory.health()).vectors == PAGE + 2
    pages = -(-PAGE // 10)
    with running_openai_server([], faults=[None] * (1 + pages) + [BUSY] * 3) as server:
        settings = at(settings, remote(server.base_url, "hashing-512"))
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            await memory.run_jobs()
            (job,) = await memory.jobs()
            assert job.kind == "reembed" and job.progress == {"done": PAGE, "total": PAGE + 2}
            assert job.to_dict()["progress"] == job.progress and job.error
            assert f"{PAGE} / {PAGE + 2}" in _job_text(job.to_dict()).plain  # kemem jobs
            checks = await asyncio.to_thread(examine, at(settings, "none"))  # kemem doctor
            assert f"new vectors: {PAGE} of {PAGE + 2} rows" in str(checks)
            for text, name in MEANT:
                assert name in [hit.id for hit in await memory.hybrid_search(text, "小明", 5)]
            assert (await memory.search("hotpot", "小明")).missing == ()  # old vectors stand in
            new = await memory.semantic_search("记录 7 log", "小明", top_k=1)
            assert new[0].message.content == "记录 7 log"
            await work(memory, clock)
            assert await memory.jobs() == []
            assert await semantic(memory, "I love hotpot") == ["en"]


async def test_an_old_model_that_cannot_be_asked_leaves_words_and_new_vectors(
    tmp_path: Path,
) -> None:
    """From one server to another."""
    clock = FakeClock(NOW)
    settings = load(data_dir=tmp_path, llm="none")
    with running_openai_server([]) as server:
        before = at(settings, remote(server.base_url, "hashing-48"))
        async with AsyncMemory(settings=before, clock=clock) as memory:
            await memory.ingest(SAID, "小明")
    with running_openai_server([]) as server:
        after = at(settings, remote(server.base_url, "hashing-64"))
        async with AsyncMemory(settings=after, clock=clock) as memory:
            assert (await memory.hybrid_search("hotpot", "小明"))[0].id == "en"
            assert await memory.semantic_search("hotpot", "小明") == []
            for text in ("hotpot", "我吃什么？"):
                for mode in ("hybrid", "semantic"):
                    assert (await memory.search(text, "小明", mode=mode)).missing == ("vectors",)
                assert (await memory.search(text, "小明", mode="lexical")).missing == ()
            await memory.run_jobs()
            assert (await memory.search("hotpot", "小明")).missing == ()
            assert await semantic(memory, "hotpot") == ["en"]
            assert await semantic(memory, "我不吃辣") == ["zh"]


WORKER = """
import sys
from kemem import Memory
from kemem.settings import load
with Memory(settings=load(data_dir=sys.argv[1], embedder=sys.argv[2], llm="none")) as memory:
    memory.run_jobs()
"""


async def test_a_worker_that_is_killed_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    """SIGKILL in the second page: the first is not made again, and nothing is left out."""
    rows = 2 * PAGE + 5
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.ingest([{"content": f"第{number}句 line"} for number in range(rows)], "小明")
    pages = -(-PAGE // 10)
    with openai_server_process([], faults=[None] * (1 + pages) + [Fault(delay=60)] * 4) as server:
        command = [sys.executable, "-c", WORKER, str(tmp_path), remote(server.base_url)]
        with subprocess.Popen(command) as worker:
            until = time.monotonic() + 60
            while len(server.requests()) < 2 + pages and time.monotonic() < until:
                await asyncio.sleep(0.05)
            os.kill(worker.pid, signal.SIGKILL)
        clock = FakeClock(time.time_ns() // 1000)
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            (job,) = await memory.jobs()
            assert job.progress == {"done": PAGE, "total": rows}
            assert (await memory.health()).vectors == PAGE
    with openai_server_process([]) as server:
        clock.advance(seconds=HOUR)
        again = at(settings, remote(server.base_url))
        async with AsyncMemory(settings=again, clock=clock) as memory:
            assert await memory.run_jobs() == 2
            assert await memory.jobs() == [] and (await memory.health()).vectors == rows
        assert sum(len(it["input"]) for it in server.requests()) == rows - PAGE


class Narrow(HashingEmbedder):
    """A model that finds all texts much alike, as some do: no similarity is below 0.8."""

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        level = np.full((len(texts), 1), 2, np.float32)
        return np.hstack([hashed(texts, self.width - 1), level])


async def test_similarities_of_two_models_are_brought_together(tmp_path: Path) -> None:
    """What only has an old vector, and answers, comes before new vectors that all are alike."""
    settings, clock = load(data_dir=tmp_path, llm="none", embedder="none"), FakeClock(NOW)
    async with AsyncMemory(settings=at(settings, "local"), clock=clock) as memory:
        await memory.ingest(SAID, "小明")
        note = (await memory.add("我不吃辣", user_id="李雷", infer=False)).results[0]
    narrow = Narrow(65, "narrow")
    async with AsyncMemory(settings=settings, embedder=narrow, clock=clock) as memory:
        noise = [f"今天第{number}次开会 meeting {number}" for number in range(40)]
        await memory.ingest([{"content": text} for text in noise], "小明")
        for text, name in MEANT:
            assert await semantic(memory, text) == [name]
        where, deps = Where(Scope(user_id="李雷"), kinds=NOTES), await memory.runtime.deps()
        (nearest,) = await nearest_notes(MEANT[0][0], where, 5, deps)  # what an LLM is shown
        assert nearest.id == note.id


@pytest.mark.parametrize(
    "texts, query", [(["我喜欢茶", "猫睡着了"], "茶"), (["I like tea", "The cat sleeps"], "tea")]
)
async def test_scores_spread_whatever_the_similarities_of_a_model_are(
    tmp_path: Path, texts: list[str], query: str
) -> None:
    """A text that has nothing to do with the query scores as it does by another model."""
    settings, scores = load(data_dir=tmp_path, llm="none", embedder="none"), []
    for embedder in (HashingEmbedder(256, "wide"), Narrow(257, "narrow")):
        async with AsyncMemory(settings=settings, embedder=embedder) as memory:
            await memory.ingest([{"content": text} for text in texts], embedder.name)
            hits = await memory.search(query, embedder.name, mode="semantic")
            scores.append({hit.memory: hit.score for hit in hits})
    for found in scores:
        assert found[texts[0]] > 0.5 > 0.2 > found.get(texts[1], 0.0)


def test_a_row_that_changed_meanwhile_is_listed_once() -> None:
    new = tuple(Match("a", "u", f"new{place}", 0, score) for place, score in enumerate((0.9, 0.7)))
    old = (Match("a", "u", "old", 0, 0.8), new[1]._replace(score=0.2))
    (joined,) = join((new,), (old,))
    assert [it.id for it in joined] == ["new0", "old", "new1"] and joined[-1].score == 0.7
    assert join((new,), ()) == (new,) and join((), (old,)) == (old,)


TALK = [
    ("我家的猫叫年糕", "我的猫叫什么名字？"),
    ("I work as a nurse in Lyon", "Where do I work?"),
    ("我对花生过敏", "我对什么过敏？"),
    ("My sister plays the cello", "Which instrument does my sister play?"),
]


async def test_another_model_than_the_judges_ranks_sensibly(tmp_path: Path) -> None:
    """Questions are judged by words and the ranking before: the answer is still first."""
    with running_openai_server([]) as server:
        settings = load(data_dir=tmp_path, embedder=remote(server.base_url, "hashing-256"))
        async with AsyncMemory(settings=settings) as memory:
            noise = [f"今天第{number}次开会 meeting {number}" for number in range(40)]
            said = [answer for answer, _ in TALK] + noise
            await memory.ingest([{"role": "user", "content": text} for text in said], "小明")
            for answer, question in TALK:
                hits = await memory.hybrid_search(question, "小明", 5)
                assert hits[0].memory == answer
                assert all(np.isfinite(hit.score) and 0 <= hit.score <= 1 for hit in hits)
