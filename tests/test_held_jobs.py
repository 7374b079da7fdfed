"""Jobs that a worker holds while its store goes away: it takes them up as soon as that is back."""

from pathlib import Path

import pytest

from kemem import AsyncMemory, Unavailable
from kemem.ports import Store
from kemem.records import Micros
from kemem.records.batch import Applied, Batch, Job
from kemem.runtime import open_store
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
TALK = [("我不吃辣。", "用户不吃辣"), ("I am vegan.", "User is vegan")]


class Leaving:
    """A store that is away when it is told so, or right after the next claim."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = self.leaves_with_claim = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def apply(self, batch: Batch) -> Applied:
        self._check()
        return await self._store.apply(batch)

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        self._check()
        job = await self._store.claim(now, lease)
        self.is_away = self.is_away or self.leaves_with_claim
        self._check()
        return job

    def _check(self) -> None:
        if self.is_away:
            raise Unavailable("the store is away")


@pytest.mark.parametrize(("said", "fact"), TALK)
async def test_a_claim_whose_answer_is_lost_is_taken_up_again(
    tmp_path: Path, said: str, fact: str
) -> None:
    """The store has claimed the job, and the worker does not know which."""
    settings, clock = load(data_dir=tmp_path, embedder="none"), FakeClock(NOW)
    inner = open_store(settings)
    store, llm = Leaving(inner), ScriptedLLM([{"facts": [{"text": fact}]}], repeat=True)
    async with AsyncMemory(settings=settings, store=store, llm=llm, clock=clock) as memory:  # type: ignore[arg-type]
        await memory.add(said, "u", wait=False)
        store.leaves_with_claim = True
        with pytest.raises(Unavailable):
            await memory.run_jobs()
        assert [(it.attempts, it.due > NOW) for it in await memory.jobs()] == [(1, True)]
        store.leaves_with_claim = store.is_away = False
        await memory.run_jobs()
        assert await memory.jobs() == []
        assert [it.memory for it in await memory.get_all("u")].count(fact) == 1
    await inner.close()


@pytest.mark.parametrize(("said", "fact"), TALK)
async def test_a_job_that_the_store_goes_away_from_again_and_again_gets_pauses(
    tmp_path: Path, said: str, fact: str
) -> None:
    """It may be the cause."""
    settings, clock = load(data_dir=tmp_path, embedder="none"), FakeClock(NOW)
    inner = open_store(settings)
    store = Leaving(inner)

    def answer(_: object) -> object:
        store.is_away = len(llm.calls) < 3
        return {"facts": [{"text": fact}]}

    llm = ScriptedLLM([answer], repeat=True)
    async with AsyncMemory(settings=settings, store=store, llm=llm, clock=clock) as memory:  # type: ignore[arg-type]
        await memory.add(said, "u", wait=False)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await memory.run_jobs()
            store.is_away = False
        assert await memory.run_jobs() == 0
        (job,) = await memory.jobs()
        assert (job.attempts, job.error) == (2, "the store went away meanwhile")
        clock.advance(seconds=60)
        assert await memory.run_jobs() == 1 and len(llm.calls) == 3
        assert await memory.jobs() == []
    await inner.close()
