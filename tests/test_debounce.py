"""A burst of messages of a session is one question to the model, asked once the session is quiet.

Rules' facts come at once all the same, and whoever waits for the model's gets them at once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem import AsyncMemory
from kemem.chat import ChatService
from kemem.ports import Prompt
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM
from kemem.testing.openai_server import running_openai_server
from tests.server import running_server, wait_for

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
SAID = {
    "zh": ("我住在杭州。", "我养了一只猫。", "我不吃辣。", "我是医生。", "我喜欢喝绿茶。"),
    "en": ("I live in Oslo.", "I have a cat.", "I am vegan.", "I am a nurse.", "I like green tea."),
}
NOTHING: dict[str, Any] = {"facts": []}


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[AsyncMemory, FakeClock, ScriptedLLM]]:
    clock, llm = FakeClock(NOW), ScriptedLLM([NOTHING], repeat=True)
    settings = load(data_dir=directory, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        yield memory, clock, llm


def questions(llm: ScriptedLLM, *texts: str) -> list[list[str]]:
    """Which of some texts each question is about; what was said before is told apart."""
    asked = [call.messages[-1]["content"] for call in llm.calls]
    return [[it for it in texts if it in one.rpartition("<conversation>")[2]] for one in asked]


@pytest.mark.parametrize("language", SAID)
async def test_a_burst_is_one_question_when_it_is_over(tmp_path: Path, language: str) -> None:
    """Rules have noted everything by then; the question is about all of it."""
    said = SAID[language]
    async with opened(tmp_path) as (memory, clock, llm):
        for number, text in enumerate(said, 1):
            await memory.add(text, "u", session_id="s", wait=False)
            await memory.run_jobs(debounce=True)
            assert len(await memory.get_all("u")) == number
            clock.advance(seconds=2)
        await memory.run_jobs(debounce=True)
        assert llm.calls == []
        (job,) = await memory.jobs()
        assert (job.kind, job.attempts, job.error) == ("extract", 0, None)
        clock.advance(seconds=2)
        await memory.run_jobs(debounce=True)
        assert questions(llm, *said) == [list(said)]
        assert await memory.jobs() == []


async def test_sessions_are_asked_about_apart(tmp_path: Path) -> None:
    """One that goes on does not keep the other waiting."""
    async with opened(tmp_path) as (memory, clock, llm):
        for session in ("s", "t"):
            for text in SAID["en"][:2]:
                await memory.add(text, "u", session_id=session, wait=False)
        await memory.run_jobs(debounce=True)
        clock.advance(seconds=2)
        await memory.add(SAID["en"][2], "u", session_id="t", wait=False)
        await memory.run_jobs(debounce=True)
        assert llm.calls == []
        clock.advance(seconds=2)
        await memory.run_jobs(debounce=True)
        assert questions(llm, *SAID["en"]) == [list(SAID["en"][:2])]
        clock.advance(seconds=2)
        await memory.run_jobs(debounce=True)
        assert questions(llm, *SAID["en"])[1:] == [list(SAID["en"][:3])]


async def test_a_session_that_is_never_quiet_is_asked_about_in_time(tmp_path: Path) -> None:
    """Each message is in one question, at most half a minute after it came."""
    texts = [f"My ticket number {number} is paid." for number in range(100, 145)]
    late = dict[str, int]()
    async with opened(tmp_path) as (memory, clock, llm):
        for number, text in enumerate(texts):
            await memory.add(text, "u", session_id="s", wait=False)
            before = len(llm.calls)
            await memory.run_jobs(debounce=True)
            for own in questions(llm, *texts)[before:]:
                late |= {it: 2 * (number - texts.index(it)) for it in own}
            clock.advance(seconds=2)
        await memory.run_jobs()
        asked = [it for own in questions(llm, *texts) for it in own]
    assert sorted(asked) == texts
    assert max(late.values()) <= 30 and len(llm.calls) <= 4


async def test_whoever_waits_for_the_model_is_not_kept_waiting(tmp_path: Path) -> None:
    """Neither an add that waits nor a run of jobs that is asked for; the burst is one question."""
    said = SAID["en"]
    async with opened(tmp_path) as (memory, _, llm):
        for text in said[:3]:
            await memory.add(text, "u", session_id="s", wait=False)
            await memory.run_jobs(debounce=True)
        assert llm.calls == []
        assert not (await memory.add(said[3], "u", session_id="s")).pending
        assert questions(llm, *said) == [[said[3]]]
        await memory.run_jobs()
        assert questions(llm, *said)[1:] == [list(said[:3])]
        assert await memory.jobs() == []


async def test_workers_that_join_jobs_at_once_note_nothing_twice(tmp_path: Path) -> None:
    """Each has claimed one job and sees the others, which only one of them may take."""
    llm, answers, numbers = ScriptedLLM([], repeat=True), count(), range(100, 120)

    def reply(messages: Prompt) -> dict[str, Any]:
        said = re.findall(r"number \d+", messages[-1]["content"].rpartition("<conversation>")[2])
        manner = ("fully", "wholly", "entirely", "all")[next(answers) % 4]
        return {"facts": [{"text": f"User's ticket {it} is paid {manner}"} for it in said]}

    llm.replies, settings = [reply], load(data_dir=tmp_path, embedder="none")
    workers = [AsyncMemory(settings=settings, llm=llm) for _ in range(4)]
    for number in numbers:
        said = f"My ticket number {number} is paid."
        await workers[0].add(said, "u", session_id="s", wait=False, prompt="Tickets only.")
    await asyncio.gather(*(worker.run_jobs() for worker in workers))
    notes = " ".join(item.memory for item in await workers[0].get_all("u"))
    assert sorted(re.findall(r"number (\d+)", notes)) == [str(number) for number in numbers]
    for worker in workers:
        await worker.close()


async def test_a_job_that_has_failed_waits_for_no_quiet(tmp_path: Path) -> None:
    """Its time comes with its next attempt, whatever is said meanwhile."""
    async with opened(tmp_path) as (memory, clock, llm):
        llm.replies = [OSError("down"), NOTHING, NOTHING]
        await memory.add(SAID["en"][0], "u", session_id="s", wait=False)
        await memory.run_jobs()
        clock.advance(seconds=60)
        await memory.add(SAID["en"][1], "u", session_id="s", wait=False)
        await memory.run_jobs(debounce=True)
        assert len(llm.calls) == 2 and SAID["en"][0] in llm.calls[1].messages[-1]["content"]


async def test_a_chat_without_a_worker_asks_once_for_its_turns(tmp_path: Path) -> None:
    """At its end at the latest."""
    with running_openai_server(["One.", "Two.", "Three."], formatted=NOTHING) as server:
        settings = load(
            data_dir=tmp_path, embedder="none", llm_base_url=server.base_url, chat_recall="note"
        )
        async with AsyncMemory(settings=settings) as memory, asyncio.timeout(30):
            chat = ChatService(memory)
            for text in SAID["en"][:3]:
                await chat.reply(text, user_id="u", session_id="s")
            await chat.close()
            assert not [job for job in await memory.jobs() if job.kind == "extract"]
    (asked,) = extractions(server.requests)
    assert all(text in asked for text in (*SAID["en"][:3], "One.", "Two.", "Three."))


def extractions(requests: Sequence[dict[str, Any]]) -> list[str]:
    """What the model was asked to draw facts from."""
    return [
        it["messages"][-1]["content"]
        for it in requests
        if "<conversation>" in it["messages"][-1]["content"]
    ]


def test_a_server_asks_once_for_a_burst_of_each_session(tmp_path: Path) -> None:
    """As processes, over HTTP: five turns each of two chats in quick succession, two questions."""
    drawn = {"facts": [{"text": "User owns a boat", "type": "general"}]}
    with running_openai_server(["OK"], repeat_last=True, formatted=drawn) as model:
        given = {"llm_base_url": model.base_url, "llm_api_key": "any", "llm_model": "m"}
        running = running_server(tmp_path / "data", chat_recall="note", **given)
        with running as server, server.client() as client:
            for text in SAID["en"]:
                for session in ("s", "t"):
                    body = {"user_id": "u", "session_id": session, "message": text}
                    client.post("/v1/chat", json=body).raise_for_status()
            wait_for(lambda: len(extractions(model.requests)) >= 2)
            wait_for(lambda: "extract" not in _kinds(client))
            items = client.get("/v1/memories", params={"user_id": "u"}).json()["results"]
    assert len(items) >= len(SAID["en"])
    asked = extractions(model.requests)
    assert len(asked) == 2
    assert all(text in one for one in asked for text in SAID["en"])


def _kinds(client: httpx.Client) -> list[str]:
    jobs = client.get("/v1/jobs").raise_for_status().json()["items"]
    return [it["kind"] for it in jobs]
