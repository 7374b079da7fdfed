"""The journal of a memory: lines for operators that go with their user and are in no backup."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kemem import AsyncMemory, PermissionDenied
from kemem.errors import Unavailable
from kemem.records import Line
from kemem.testing import FakeClock, HashingEmbedder

NOW = 1_767_225_600_000_000  # 2026-01-01
SPICE = pytest.mark.parametrize(
    ("user", "other", "text"), [("小明", "Ann", "我不吃辣"), ("Ann", "小明", "I eat no spice")]
)


def at(directory: Path) -> AsyncMemory:
    return AsyncMemory(data_dir=directory, embedder=HashingEmbedder(), clock=FakeClock(NOW))


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with at(tmp_path) as opened:
        yield opened


def told(*users: str) -> list[Line]:
    """A line of each user, in the order of the journal."""
    return [
        Line("trace", f"t/{user}", NOW - place, {"question": f"{user}？"}, user)
        for place, user in enumerate(users)
    ]


@SPICE
async def test_lines_outlive_the_process(tmp_path: Path, user: str, other: str, text: str) -> None:
    async with at(tmp_path) as memory:
        await memory.journal.note(told(user, other, ""))
    async with at(tmp_path) as memory:
        assert await memory.journal.lines("trace") == told(user, other, "")
        assert await memory.journal.lines("trace", user_id=user) == told(user)
        assert await memory.journal.trim("trace", keep=1) == 2
        assert await memory.journal.lines("trace") == told(user)


@SPICE
async def test_who_is_deleted_goes_from_the_journal(
    memory: AsyncMemory, user: str, other: str, text: str
) -> None:
    """With all that is theirs, and not with a part of it; nobody else's line goes."""
    await memory.journal.note(told(user, other, ""))
    for name in (user, other):
        await memory.add(text, user_id=name, session_id="s", infer=False)
    await memory.delete_all(user_id=user, kinds=["user_info"])
    await memory.delete_all(user_id=user, session_id="s")
    assert await memory.journal.lines("trace") == told(user, other, "")
    await memory.delete_all(user_id=user)
    assert [line.user_id for line in await memory.journal.lines("trace")] == [other, ""]


@SPICE
async def test_the_journal_is_for_operators(
    memory: AsyncMemory, user: str, other: str, text: str
) -> None:
    """No handle of one user reads or writes it, not even their own lines."""
    await memory.journal.note(told(user))
    handle = memory.for_user(user, sensitive=True).journal
    for call in (
        lambda: handle.lines("trace", user_id=user),
        lambda: handle.note(told(other)),
        lambda: handle.trim("trace", keep=0),
    ):
        with pytest.raises(PermissionDenied):
            await call()
    assert await memory.journal.lines("trace") == told(user)
    await memory.close()
    with pytest.raises(Unavailable):
        await memory.journal.lines("trace")


@SPICE
async def test_a_backup_leaves_the_journal_out_and_a_restore_leaves_it_alone(
    memory: AsyncMemory, user: str, other: str, text: str
) -> None:
    await memory.add(text, user_id=user, infer=False)
    await memory.journal.note(told(user))
    made = await memory.backup()
    assert text in made.path.read_text("utf-8")
    assert f"t/{user}" not in made.path.read_text("utf-8")
    await memory.journal.note(told("", other))
    await memory.restore(made.path)
    assert {line.user_id for line in await memory.journal.lines("trace")} == {user, other, ""}
