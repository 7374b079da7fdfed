"""The life of a session: prompts from it, checkpoints that outlive a crash, its end, forgetting."""

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, InvalidArgument, Memory, NotFound, Policy
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM
from tests import warm

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
DAY = 86_400
LINES = {
    "zh": "第{}天：我们在杭州开会，讨论了预算和日程安排，决定下周继续",
    "en": "Day {}: we met in Oslo, talked about budget and schedule, and will go on next week",
}
EACH = pytest.mark.parametrize("language", ["zh", "en"])
LESSON = {
    "zh": (
        *("请帮我安装 torch，下载总是超时", "可以试试换一个镜像"),
        *("我试了阿里云镜像，还是失败", "那改用清华镜像", "改用清华镜像之后成功了"),
    ),
    "en": (
        *("Please help me install torch, the download times out", "You could try a mirror."),
        *("I tried the first mirror and it failed.", "Then switch to the second mirror."),
        "I switched to the second mirror and it works now.",
    ),
}


def opened(directory: Path, clock: FakeClock | None = None, **more: Any) -> Memory:
    llm = more.pop("llm", None)
    settings = load(data_dir=directory, embedder="none", llm="none", **more)
    return Memory(settings=settings, clock=clock, llm=llm)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def memory(tmp_path: Path, clock: FakeClock) -> Iterator[Memory]:
    """A memory by words and rules, with a small State."""
    with opened(tmp_path, clock, state_tokens=200) as memory:
        yield memory


def talk(texts: Any) -> list[dict[str, str]]:
    return [
        {"role": "assistant" if n % 2 else "user", "content": it, "message_id": f"m{n}"}
        for n, it in enumerate(texts)
    ]


def long_talk(memory: Memory, language: str, session: str = "s") -> None:
    texts = [LINES[language].format(n) for n in range(48)]
    for start in range(0, 48, 8):
        part = [{"role": "user", "content": it} for it in texts[start : start + 8]]
        memory.add(part, "u", session_id=session, infer=False, memory_type="long")


def noted(memory: Memory, text: str, session: str = "s", **more: Any) -> str:
    (added,) = memory.add(
        text, "u", session_id=session, infer=False, memory_type="short", **more
    ).results
    return added.id


# What to put into a prompt


@EACH
def test_a_context_fits_and_ends_with_the_newest(memory: Memory, language: str) -> None:
    """Both names of the session lead to it; notes first, then summaries, then what was said."""
    long_talk(memory, language)
    step = "正在订酒店" if language == "zh" else "Booking the hotel"
    noted(memory, step)
    seen = memory.context("s", "u", max_tokens=300)
    assert memory.context(run_id="s", user_id="u", max_tokens=300) == seen
    assert seen.tokens <= 300 < seen.full_tokens and seen.summaries
    assert [it.content for it in seen.notes] == [step]
    assert str(seen) == seen.text and seen.text.index(step) < seen.text.index(seen.summaries[0])
    assert seen.messages[-1].content == step
    json.dumps(seen.to_dict())


def test_a_session_must_be_named_and_known(memory: Memory) -> None:
    long_talk(memory, "zh")
    for name in ("context", "checkpoint", "restore_checkpoint", "summarize", "end_session"):
        with pytest.raises(InvalidArgument, match="session_id"):
            getattr(memory, name)(user_id="u")
        for ids in ({"user_id": "v"}, {"agent_id": "b"}, {"user_id": "*"}):
            with pytest.raises(NotFound):
                getattr(memory, name)("s", **ids)
    with pytest.raises(InvalidArgument, match="49"):
        memory.context("s", "u", max_tokens=49)


def test_a_name_that_several_users_have_is_not_guessed(memory: Memory) -> None:
    for user in ("u", "v"):
        memory.add("我不吃辣", user, session_id="s")
    with pytest.raises(InvalidArgument, match="several"):
        memory.context("s")
    assert memory.context("s", "u").messages[0].user_id == "u"
    assert memory.for_user("v").context("s").messages[0].user_id == "v"


# Checkpoints


@EACH
def test_a_checkpoint_is_state_and_notes_and_comes_back(memory: Memory, language: str) -> None:
    """The newest, or the one that is named; messages and what is long-term stay as they are."""
    long_talk(memory, language)
    first = noted(memory, "第一步 step one")
    saved = memory.checkpoint("s", "u")
    assert saved.layers and [it.content for it in saved.notes] == ["第一步 step one"]
    memory.update(first, "第二步 step two")
    second = noted(memory, "还要订票 tickets")
    later = memory.checkpoint("s", "u")
    memory.delete_all("u", session_id="s", filters={"kind": "short_term"})
    before = len(memory.get_all("u", kinds=["message", "user_info"], limit=1000))
    assert len(memory.get_all("u", kinds=["short_term"])) == 0
    with pytest.raises(NotFound):  # what was deleted is not kept by a checkpoint
        memory.restore_checkpoint("s", later.checkpoint_id, "u")
    with pytest.raises(NotFound):
        memory.get(second)
    assert len(memory.get_all("u", kinds=["message", "user_info"], limit=1000)) == before


@EACH
def test_restoring_undoes_what_came_after(memory: Memory, language: str) -> None:
    long_talk(memory, language)
    first = noted(memory, "第一步 step one")
    saved = memory.checkpoint("s", "u")
    memory.update(first, "第二步 step two")
    second = noted(memory, "还要订票 tickets")
    restored = memory.restore_checkpoint("s", saved.checkpoint_id, "u")
    assert (restored.layers, restored.notes) == (saved.layers, saved.notes)
    assert memory.get(first).memory == "第一步 step one"
    with pytest.raises(NotFound):
        memory.get(second)
    assert [hit.id for hit in memory.search("第一步 one", "u", kinds=["short_term"])] == [first]
    assert len(memory.search("tickets", "u", kinds=["short_term"])) == 0
    assert memory.context("s", "u").notes == saved.notes


# Saves a checkpoint, says what it holds, goes on writing until it is killed.
WORKER = """
import sys
from dataclasses import asdict
import json
from kemem import Memory
from kemem.settings import load
memory = Memory(settings=load(data_dir=sys.argv[1], embedder="none", llm="none", state_tokens=200))
ids = {"user_id": "u", "session_id": "s"}
for n in range(24):
    memory.add(sys.argv[2].format(n), **ids, infer=False)
memory.add("第一步 step one", **ids, infer=False, memory_type="short", metadata={"k": [1, None]})
saved = memory.checkpoint(**ids)
print(json.dumps(asdict(saved), ensure_ascii=True), flush=True)
number = 0
while True:
    memory.add(f"第{number}次 more", **ids, infer=False, memory_type="short")
    print(number, flush=True)
    number += 1
"""


@EACH
def test_a_new_process_goes_on_where_a_killed_one_was_saved(tmp_path: Path, language: str) -> None:
    """kill -9 in the middle of writing: the checkpoint is whole, and equal to what was saved."""
    process = subprocess.Popen(
        [*warm.python(), "-c", WORKER, str(tmp_path), LINES[language]],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        saved = json.loads(process.stdout.readline())
        for _ in range(3):
            assert process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with opened(tmp_path) as memory:
        assert len(memory.get_all("u", kinds=["short_term"])) >= 4
        restored = memory.restore_checkpoint("s", saved["checkpoint_id"], "u")
        seen = json.loads(json.dumps(asdict(restored)))
        assert seen["layers"] == saved["layers"] and saved["layers"]
        assert seen["notes"] == saved["notes"]
        (note,) = memory.get_all("u", kinds=["short_term"])
        assert (note.memory, note.metadata) == ("第一步 step one", {"k": [1, None], "role": "user"})
        assert len(memory.get_all("u", kinds=["message"], limit=1000)) >= 28
        assert memory.context("s", "u").notes[0].content == "第一步 step one"


# The end


@EACH
@pytest.mark.parametrize("model", ["rules", "llm", "llm that fails"])
def test_an_ended_session_leaves_its_experience(tmp_path: Path, language: str, model: str) -> None:
    """Short-term notes and State go, the messages stay; the lesson is found by other sessions."""
    lesson = f"torch: {LESSON[language][-1]}"
    answers: dict[str, list[Any]] = {
        "llm": [{"facts": []}, {"experience": lesson, "keywords": ["torch"]}],
        "llm that fails": [{"facts": []}, OSError()],
    }
    llm = ScriptedLLM(answers[model]) if model in answers else None
    with opened(tmp_path, FakeClock(NOW), llm=llm) as memory:
        memory.add(talk(LESSON[language]), "u", session_id="s")
        noted(memory, "torch 2.1")
        memory.checkpoint("s", "u")
        ended = memory.end_session("s", "u")
        assert [it.event for it in ended.results] == ["ADD"] and not ended.pending
        (hit,) = memory.search("torch", "u", kinds=["experience"])
        assert LESSON[language][-1].rstrip(".") in hit.memory
        assert set(hit.sources) <= {it.id for it in memory.get_all("u", kinds=["message"])}
        assert len(memory.get_all("u", kinds=["short_term"])) == 0
        assert len(memory.get_all("u", kinds=["message"])) == 6
        with pytest.raises(NotFound):
            memory.restore_checkpoint("s", user_id="u")
        (session,) = memory.sessions("u").items
        assert not session.active and session.ended == NOW


def test_a_session_that_teaches_nothing_leaves_nothing(memory: Memory) -> None:
    memory.add("你好", "u", session_id="s")
    assert memory.end_session("s", "u").results == ()
    assert len(memory.get_all("u")) == 0


@EACH
def test_to_end_twice_is_to_end_once(memory: Memory, language: str) -> None:
    memory.add(talk(LESSON[language]), "u", session_id="s")
    memory.end_session("s", "u")
    again = memory.end_session("s", "u")
    assert [it.event for it in again.results] == ["NONE"]
    assert len(memory.get_all("u", kinds=["experience"])) == 1


def test_a_session_that_is_spoken_in_again_is_open_again(memory: Memory, clock: FakeClock) -> None:
    memory.add("你好", "u", session_id="s")
    memory.end_session("s", "u")
    clock.advance(seconds=60)
    memory.add("I am back", "u", session_id="s")
    (session,) = memory.sessions("u").items
    assert session.active and session.ended is None


def test_a_very_long_session_can_end_too(memory: Memory) -> None:
    """Its experience quotes a note of its beginning, far before the last messages."""
    noted(memory, "记住，以后都改用清华镜像，问题解决了")
    filler = [{"role": "user", "content": f"第{n}个包装好没有呀"} for n in range(205)]
    memory.ingest(filler, "u", session_id="s")
    asked = {"role": "user", "content": "请帮我安装 torch，下载总是超时"}
    memory.ingest([asked, {"role": "assistant", "content": "好的"}], "u", session_id="s")
    ended = memory.end_session("s", "u")
    assert "清华镜像" in ended.results[0].memory
    assert memory.jobs() == []


def test_the_end_of_one_session_is_not_that_of_another(memory: Memory) -> None:
    for session in ("s", "t"):
        noted(memory, f"{session} 第一步", session)
        memory.checkpoint(session, "u")
    memory.end_session("s", "u")
    assert [it.memory for it in memory.get_all("u", kinds=["short_term"])] == ["t 第一步"]
    assert memory.restore_checkpoint("t", user_id="u").notes[0].content == "t 第一步"


# Forgetting


@EACH
def test_what_expires_goes_by_a_job_and_leaves_a_line(
    memory: Memory, clock: FakeClock, language: str
) -> None:
    """Without any policy; a checkpoint that quotes it is written anew without it."""
    text = "验证码 8848" if language == "zh" else "The code is 8848"
    end = datetime.fromtimestamp(NOW / 1e6, UTC) + timedelta(hours=1)
    gone = noted(memory, text, expires_at=end)
    stays = noted(memory, "第一步 step one")
    memory.checkpoint("s", "u")
    assert memory.run_jobs() == 0
    clock.advance(seconds=3600)
    assert memory.run_jobs() == 1
    assert [it.id for it in memory.get_all("u")] == [stays]
    (line,) = memory.forgotten("u")
    assert (line.note_id, line.event, line.reason) == (gone, "delete", "expired")
    assert (line.before, line.after) == (None, None)
    assert [it.id for it in memory.restore_checkpoint("s", user_id="u").notes] == [stays]


@pytest.mark.parametrize(
    "settings, left",
    [
        ({"forget_limit": 3}, {"7", "8", "9"}),
        ({"forget_below": 0.3, "forget_half_life_days": 3}, {"8", "9"}),
        ({}, {str(n) for n in range(10)}),
    ],
)
def test_the_settings_decide_what_is_forgotten(
    tmp_path: Path, clock: FakeClock, settings: dict[str, Any], left: set[str]
) -> None:
    """By jobs; the oldest and least used first. Knowledge and messages stay."""
    with opened(tmp_path, clock, **settings) as memory:
        memory.add("退货期是七天 returns", agent_id="default", infer=False)
        for n in range(10):
            memory.add(str(n), "u", infer=False)
            clock.advance(seconds=DAY)
        memory.run_jobs()
        assert {it.memory for it in memory.get_all("u")} == left
        assert len(memory.forgotten("u")) == 10 - len(left)
        assert all(it.before is it.after is None for it in memory.forgotten("u"))
        assert len(memory.get_all("u", kinds=["message"])) == 10
        assert len(memory.search("returns", "u")) == 1


def test_what_is_used_is_kept(tmp_path: Path, clock: FakeClock) -> None:
    """A search counts, also right before the process ends."""
    with opened(tmp_path, clock) as memory:
        for text in ("火锅", "hotpot"):
            memory.add(text, "u", infer=False)
        for _ in range(5):
            memory.search("火锅", "u")
    with opened(tmp_path, clock) as memory:
        gone = memory.forget("u", policy=Policy(limit=1))
        assert list(gone.values()) == ["limit"]
        assert [it.memory for it in memory.get_all("u")] == ["火锅"]


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"below": 2}, {"half_life_days": 0}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Policy(**wrong)


def test_forgetting_is_of_one_user(memory: Memory) -> None:
    for user in ("u", "v"):
        for text in ("火锅", "hotpot"):
            memory.add(text, user, infer=False)
    assert len(memory.for_user("u").forget(policy=Policy(limit=1))) == 1
    assert len(memory.get_all("v")) == 2 and memory.forgotten("v") == []
    with pytest.raises(InvalidArgument):
        memory.forget()
    with pytest.raises(InvalidArgument):
        memory.forgotten()


@pytest.mark.parametrize("line", ["我们决定把数据库端口改成 5433。", "We moved the port to 5433."])
async def test_a_model_summarises_later_and_add_asks_it_once(tmp_path: Path, line: str) -> None:
    """The State is a job's work where a model makes it; one job for a session, however long."""
    llm = ScriptedLLM([{"facts": [], "entities": [], "summary": "the port is 5433"}], repeat=True)
    settings = load(data_dir=tmp_path, embedder="none", state_tokens=200)
    async with AsyncMemory(settings=settings, llm=llm, clock=FakeClock(NOW)) as memory:
        for number in range(32):
            await memory.add(f"{number} {line} {line}", "u", session_id="s")
        assert len(llm.calls) == 32
        (job,) = await memory.jobs()
        assert (job.kind, job.scope.session_id) == ("condense", "s")
        assert await memory.run_jobs() == 1
        assert await memory.jobs() == []
        state = await memory.checkpoint("s", "u")
        assert state.layers and all("5433" in layer.text for layer in state.layers)
        assert len(llm.calls) > 32
