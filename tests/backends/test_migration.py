"""Stores of earlier versions open with this one and lose nothing."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kemem import Memory
from kemem.backends.sql.sqlite import FILE
from kemem.testing import FakeClock, HashingEmbedder

LATER = 1_900_000_000_000_000
EARLIEST = Path(__file__).parent / "store_v1.sql"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory over a store that was written at version 1."""
    with sqlite3.connect(tmp_path / FILE) as database:
        database.executescript(EARLIEST.read_text("utf-8"))
    database.close()
    embedder, clock = HashingEmbedder(width=8), FakeClock(LATER)
    with Memory(data_dir=tmp_path, embedder=embedder, clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("asked, found", [("不吃辣", "zh"), ("hotpots", "en")])
def test_messages_are_there_and_found(memory: Memory, asked: str, found: str) -> None:
    assert [item.message_id for item in memory.messages("小明").items] == ["late", "en", "zh"]
    assert [hit.id for hit in memory.lexical_search(asked, "小明").items] == [found]
    assert memory.semantic_search(asked, "小明", top_k=2)
    assert memory.health().schema_version == 2


def test_work_that_waited_is_done(memory: Memory) -> None:
    """The job of a message that had no vector yet."""
    (job,) = memory.jobs()
    assert job.ids == ("late",)
    assert memory.run_jobs() == 1
    assert memory.health().vectors == 3


@pytest.mark.parametrize("text", ["用户喜欢爬山", "User likes hiking"])
def test_notes_can_be_kept_from_then_on(memory: Memory, text: str) -> None:
    (outcome,) = memory.add(text, user_id="小明", infer=False).results
    assert memory.get(outcome.id).memory == text
    assert memory.search(text, user_id="小明", limit=1)[0].id == outcome.id
