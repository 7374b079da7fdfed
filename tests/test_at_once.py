"""What rules read is noted at once: whatever a model adds to it comes later, and nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, Item
from kemem.ports import Prompt, Reply, Schema
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
HOUR = 3600
DOWN = OSError("down")
SAID = {
    "zh": ("我住在杭州。羽毛球嘛，每周日老样子。", "用户住在杭州", "用户每周日打羽毛球"),
    "en": (
        "I live in Oslo. Badminton, Sundays, as ever.",
        "User lives in Oslo",
        "User plays badminton on Sundays",
    ),
}


def facts(*texts: str, **more: Any) -> dict[str, Any]:
    return {"facts": [{"text": text, "type": "general", "date": "", **more} for text in texts]}


@asynccontextmanager
async def opened(directory: Path, llm: Any) -> AsyncIterator[tuple[AsyncMemory, FakeClock]]:
    clock = FakeClock(NOW)
    settings = load(data_dir=directory, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        yield memory, clock


async def known(memory: AsyncMemory) -> list[str]:
    return sorted(it.memory for it in await memory.get_all("u"))


async def note(memory: AsyncMemory, text: str) -> Item:
    return next(it for it in await memory.get_all("u") if it.memory == text)


@pytest.mark.parametrize("language", SAID)
async def test_a_model_that_is_down_holds_back_only_its_own_facts(
    tmp_path: Path, language: str
) -> None:
    """Found and in the profile at once; when the model is back, it adds what it alone read."""
    said, home, more = SAID[language]
    llm = ScriptedLLM([DOWN, facts(home, more)])
    async with opened(tmp_path, llm) as (memory, clock):
        added = await memory.add(said, "u")
        assert home in [it.memory for it in added.results if it.event == "ADD"]
        assert added.pending and added.relations
        first = await known(memory)
        assert home in [it.memory for it in await memory.search(home, "u")]
        assert home in (await memory.profile("u")).text
        clock.advance(seconds=HOUR)
        await memory.run_jobs()
        assert await known(memory) == sorted([*first, more])
        assert [it.event for it in await memory.history((await note(memory, home)).id)] == ["add"]
        assert await memory.jobs() == []


@pytest.mark.parametrize("language", SAID)
async def test_what_the_owner_has_done_meanwhile_stays_done(tmp_path: Path, language: str) -> None:
    """A note that was deleted, or corrected, is not made again by the same words."""
    said, home, more = SAID[language]
    for number, corrected in enumerate([None, "User lives in Rome"]):
        llm = ScriptedLLM([DOWN, facts(home, more)])
        async with opened(tmp_path / f"{number}", llm) as (memory, clock):
            await memory.add(said, "u")
            old = await note(memory, home)
            clock.advance(seconds=60)
            await (memory.update(old.id, corrected) if corrected else memory.delete(old.id))
            clock.advance(seconds=HOUR)
            await memory.run_jobs()
            texts = await known(memory)
            assert home not in texts
            assert corrected is None or (corrected in texts and more in texts)


@pytest.mark.parametrize(
    ("first", "old", "said", "new"),
    [
        ("我每天坐公交上班。", "用户每天坐公交上班", "从周一起我改骑车上班", "用户骑车上班"),
        ("我在准备考研。", "用户在准备考研", "我想通了，不考研了，改考公", "用户在准备考公"),
    ],
)
async def test_a_model_ends_later_what_rules_left_open(
    tmp_path: Path, first: str, old: str, said: str, new: str
) -> None:
    """By a fact that rules had noted, or by one of its own; it is listed and can be undone."""
    llm = ScriptedLLM([facts(), DOWN, facts(new, replaces=[1])])
    async with opened(tmp_path, llm) as (memory, clock):
        await memory.add(first, "u")
        ended = await note(memory, old)
        clock.advance(seconds=HOUR)
        await memory.add(said, "u")
        assert old in await known(memory), "rules see no end"
        count = len(await known(memory))
        clock.advance(seconds=HOUR)
        await memory.run_jobs()
        assert old not in await known(memory) and len(await known(memory)) <= count
        (line,) = await memory.ended("u")
        assert (line.note_id, line.reason) == (ended.id, "ended by the model scripted")
        await memory.reopen(line.note_id, user_id="u")
        assert old in await known(memory)


async def test_add_tells_each_note_once(tmp_path: Path) -> None:
    """What rules add and a model repeats is one result; what the model has ended, an update."""
    texts = ["我每天坐公交上班。", "从周一起我改骑车上班"]
    llm = ScriptedLLM([facts("用户每天坐公交上班"), facts("用户骑车上班", replaces=[1])])
    async with opened(tmp_path, llm) as (memory, clock):
        (first,) = (await memory.add(texts[0], "u")).results
        clock.advance(seconds=HOUR)
        (second,) = (await memory.add(texts[1], "u")).results
    assert (first.event, first.memory) == ("ADD", "用户每天坐公交上班")
    assert (second.event, second.previous) == ("UPDATE", "用户每天坐公交上班")


async def test_jobs_note_what_rules_read_while_a_reply_is_waited_for(tmp_path: Path) -> None:
    said, home, more = SAID["en"]
    llm = ScriptedLLM([facts(more)])
    async with opened(tmp_path, llm) as (memory, _):
        await memory.add(said, "u", wait=False)
        assert await known(memory) == []
        with memory.runtime.turns.reply():
            await memory.run_jobs()
            assert home in await known(memory) and llm.calls == []
        await memory.run_jobs()
        assert more in await known(memory) and len(llm.calls) == 1


class Slow:
    """A model that answers when it is told to, and counts how often it is asked."""

    name = "slow"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        """No facts."""
        self.asked.append(messages[-1]["content"])
        await self.may_answer.wait()
        return Reply('{"facts": []}')


async def test_what_is_said_during_a_call_is_one_more_call(tmp_path: Path) -> None:
    """However many messages come: those that wait are asked about together, by their session."""
    llm = Slow()
    async with opened(tmp_path, llm) as (memory, clock):
        await memory.add("I live in Oslo.", "u", session_id="s", wait=False)
        working = asyncio.create_task(memory.run_jobs())
        while not llm.asked:
            await asyncio.sleep(0.01)
        for number in range(5):
            clock.advance(seconds=1)
            await memory.add(f"I have {number + 2} cats.", "u", session_id="s", wait=False)
        llm.may_answer.set()
        await working
        await memory.run_jobs()
        assert len(llm.asked) == 2
        assert all(f"I have {number + 2} cats." in llm.asked[1] for number in range(5))
        assert "User has 6 cats" in await known(memory)
