"""Corrections: "no, I meant …" right after something was said replaces it."""

from pathlib import Path

import pytest

from kemem import AsyncMemory
from kemem.settings import Settings

CASES = [
    ("I live in Hamburg", "Sorry, I meant Homburg.", "User lives in Homburg"),
    ("I was born in Leeds", "No, I meant Leicester", "User was born in Leicester"),
    ("My sister's name is Anna", "no, I meant Emma, not Anna", "User's sister's name is Emma"),
    ("I take 50 mg of sertraline", "oops, make that 75 mg", "User takes 75 mg of sertraline"),
    ("我住在杭州", "不对，是湖州", "用户住在湖州"),
    ("我妹妹叫小雨", "说错了，是小雪", "用户的妹妹叫小雪"),
    ("我住在杭州", "不是杭州，是湖州", "用户住在湖州"),
]


async def notes_after(directory: Path, *told: str, sessions: tuple[str, ...] = ()) -> list[str]:
    """What holds after some messages, each added by itself with the assistant's answer."""
    settings = Settings(data_dir=directory, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for at, text in enumerate(told):
            turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}]
            await memory.add(turn, user_id="u", session_id=sessions[at] if sessions else "s")
        return [it.memory for it in await memory.get_all(user_id="u")]


@pytest.mark.parametrize(("first", "then", "right"), CASES)
async def test_a_correction_replaces_what_was_said(
    tmp_path: Path, first: str, then: str, right: str
) -> None:
    assert await notes_after(tmp_path, first, then) == [right]


@pytest.mark.parametrize(("first", "then", "right"), CASES[::4])
async def test_a_job_reads_what_was_said_before_too(
    tmp_path: Path, first: str, then: str, right: str
) -> None:
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for text in (first, then):
            await memory.add(text, user_id="u", session_id="s", wait=False)
        await memory.run_jobs()
        assert [it.memory for it in await memory.get_all(user_id="u")] == [right]


@pytest.mark.parametrize(("first", "then", "right"), CASES[::4])
async def test_both_may_come_at_once(tmp_path: Path, first: str, then: str, right: str) -> None:
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add([{"role": "user", "content": it} for it in (first, then)], user_id="u")
        assert [it.memory for it in await memory.get_all(user_id="u")] == [right]
        (message,) = [it for it in (await memory.messages("u")).items if it.content == then]
        assert not message.withdrawn


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("I live in Hamburg", "No, thanks"),
        ("I live in Hamburg", "Wait, what?"),
        ("I live in Hamburg", "I meant that as a joke"),
        ("我住在杭州", "不对吗？"),
        ("我住在杭州", "不是吧"),
    ],
)
async def test_what_names_no_other_value_corrects_nothing(
    tmp_path: Path, first: str, then: str
) -> None:
    assert await notes_after(tmp_path / "one", first) == (
        await notes_after(tmp_path / "both", first, then)
    )


@pytest.mark.parametrize(("first", "then", "right"), CASES[:1] + CASES[4:5])
async def test_another_session_is_not_corrected(
    tmp_path: Path, first: str, then: str, right: str
) -> None:
    notes = await notes_after(tmp_path, first, then, sessions=("one", "two"))
    assert right not in notes and await notes_after(tmp_path / "one", first) == notes
