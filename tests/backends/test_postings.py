"""Blocks of common phrases: what a large space stores of them is what its word index tells."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from kemem.ports.request import SearchRequest
from kemem.records import Message, Scope, Where
from kemem.records.batch import Batch
from kemem.runtime import open_store
from kemem.settings import Settings
from kemem.store import postings
from kemem.store.schema import space_posting
from kemem.store.spaces import find_spaces
from kemem.store.store import SqlStore
from kemem.text.query import parse

ME = Where(Scope(user_id="小明"))
NOW = 1_767_225_600_000_000


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 numbers; a phrase is common that every eighth row has."""
    sizes = {"BLOCK": 64, "_SAMPLE": 2, "_SHARE": 8, "_AT_ONCE": 2, "_FEW": 4, "_COMMON": 10}
    for name, value in sizes.items():
        monkeypatch.setattr(postings, name, value)


@pytest.fixture
def store(either_settings: Settings) -> Iterator[SqlStore]:
    opened = open_store(either_settings)
    assert isinstance(opened, SqlStore)
    yield opened


def said(number: int) -> Message:
    """Every second of them names a hotpot, every third 火锅, every fiftieth 豆花."""
    words = {2: "hotpot", 3: "火锅", 50: "豆花"}
    text = " ".join(["today", *(word for each, word in words.items() if number % each == 0)])
    time = NOW + number
    return Message(f"消{number}", "a", "小明", "s", "user", text, time, time)


async def put(store: SqlStore, numbers: range) -> None:
    await store.apply(Batch(put=tuple(map(said, numbers))))


async def drop(store: SqlStore, *numbers: int) -> None:
    names = frozenset(f"消{number}" for number in numbers)
    await store.apply(Batch(drop=(Where(ME.scope, ids=names),)))


async def found(store: SqlStore, text: str) -> set[int]:
    request = SearchRequest(ME, queries=(parse(text),), limit=1000)
    (ranking,) = (await store.search(request)).candidates.words
    return {int(match.id[1:]) for match in ranking.matches}


async def blocks(store: SqlStore, count: int) -> dict[tuple[int, str], bytes]:
    """The stored phrases by their blocks, when there are so many blocks."""
    keys = sa.select(space_posting.c.number, space_posting.c.phrase, space_posting.c.body)
    while True:
        await found(store, "hotpot")
        with store._database.reading() as connection:
            stored = {(number, text): body for number, text, body in connection.execute(keys)}
        if sum(not text for _, text in stored) == count:
            return stored


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What the word index is asked for: phrases, from which number to which."""
    asked, own = list[tuple[str, int, int]](), postings.lookup

    def noticed(connection: Any, database: Any, lookups: Any) -> Any:
        for space, phrase, *span in lookups:
            asked.append((" ".join(phrase.tokens), *(it - space.first_id for it in span)))
        return own(connection, database, lookups)

    monkeypatch.setattr(postings, "lookup", noticed)
    return asked


async def test_a_new_process_finds_common_phrases_in_blocks(
    store: SqlStore, either_settings: Settings, looked_up: list[tuple[str, int, int]]
) -> None:
    """The word index tells of the rows after them, and of phrases that are not common."""
    await put(store, range(200))
    stored = await blocks(store, 3)
    assert {text for _, text in stored} == {"", "today", "hotpot", "火", "锅", "火 锅"}
    other: Any = open_store(either_settings)
    looked_up.clear()
    assert await found(other, "hotpot") == {*range(0, 200, 2)}
    assert await found(other, "火锅 豆花") == {*range(0, 200, 3), *range(0, 200, 50)}
    common, rare = ("hotpot", "火", "锅", "火 锅"), ("豆", "花", "豆 花")
    assert {*looked_up} == {
        *((text, 192, 200) for text in common),
        *((text, 0, 200) for text in rare),
    }
    await put(store, range(200, 210))
    assert await found(other, "hotpot") == {*range(0, 210, 2)}
    assert await found(other, "hotp*") == {*range(0, 210, 2)}
    await other.close()
    await store.close()


async def test_a_phrase_that_one_block_lacks_is_looked_up_there(
    store: SqlStore, either_settings: Settings, looked_up: list[tuple[str, int, int]]
) -> None:
    """It was not common in it."""
    await put(store, range(200))
    await blocks(store, 3)
    gone = sa.delete(space_posting).where(space_posting.c.number == 1, space_posting.c.phrase != "")
    store._database.write(lambda it: it.execute(gone)).result()
    other: Any = open_store(either_settings)
    looked_up.clear()
    assert await found(other, "hotpot") == {*range(0, 200, 2)}
    assert looked_up == [("hotpot", 64, 127), ("hotpot", 192, 200)]
    await other.close()
    await store.close()


async def test_a_row_that_goes_leaves_no_trace_in_its_block(
    store: SqlStore, either_settings: Settings
) -> None:
    """Nor does a phrase that no row has any more; with many rows the block goes and comes again."""
    await put(store, range(200))
    before = await blocks(store, 3)
    await drop(store, 66)
    after = await blocks(store, 3)
    changed = {key for key, body in before.items() if after[key] != body}
    assert changed == {(1, text) for text in ("today", "hotpot", "火", "锅", "火 锅")}
    other: Any = open_store(either_settings)
    assert await found(other, "hotpot") == await found(store, "hotpot")
    assert await found(other, "hotpot") == {*range(0, 200, 2)} - {66}
    for number in {*range(63, 127)} - {66}:
        await drop(store, number)
    left = await blocks(store, 3)
    assert {text for number, text in left if number == 1} == {""}
    await drop(store, *range(130, 140))
    assert await found(other, "hotpot") == {
        *range(0, 64, 2),
        *range(128, 130),
        *range(140, 200, 2),
    } - {129, 63}
    assert {number for number, _ in await blocks(store, 3)} == {0, 1, 2}
    await other.close()
    await store.close()


async def test_blocks_of_an_older_state_are_not_stored(store: SqlStore) -> None:
    """Rows went after the epoch was read."""
    await put(store, range(100))
    with store._database.reading() as connection:
        (space,) = find_spaces(connection, ME.scope)
    await drop(store, 4)
    postings.build(store._database, space, 0)
    store._database.write(lambda it: None).result()  # after those of the build
    with store._database.reading() as connection:
        assert not postings.numbers(connection, space.space_no)
    await store.close()


@given(st.sets(st.integers(0, 63)))
def test_places_come_back_as_they_were_packed(places: set[int]) -> None:
    """In at most a bit for each place of a block."""
    body = postings._pack(np.array(sorted(places), np.int64))
    assert {*np.flatnonzero(postings._unpack(body)).tolist()} == places
    assert len(body) <= postings.BLOCK // 8
