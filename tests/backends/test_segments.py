"""Segments: what a large space keeps beside its rows tells a new process what the rows do."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from kemem.ports.request import SearchRequest
from kemem.records import Embedded, Message, Model, Scope, Where
from kemem.records.batch import Batch
from kemem.runtime import open_store
from kemem.settings import Settings
from kemem.store import codes, index, segments
from kemem.store.schema import space_segment
from kemem.store.spaces import find_spaces
from kemem.store.store import SqlStore
from kemem.text.query import ConversationQuery, parse

MODEL, OWNER = Model("m", 96), Scope("a", "小明")
ME = Where(Scope(user_id="小明"))
NOW = 1_767_225_600_000_000


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 numbers, in spaces of more than 64 rows; of more than 100 the signs are kept."""
    for module, name, value in (
        *((segments, "SIZE", 32), (segments, "LEAST", 64)),
        *((codes, "EXACT", 100), (index, "_STORED", 2)),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def store(either_settings: Settings) -> Iterator[SqlStore]:
    opened = open_store(either_settings)
    assert isinstance(opened, SqlStore)
    yield opened


def said(number: int) -> Message:
    role, time = ("assistant" if number % 2 else "user"), NOW + number
    text = f"火锅 hotpot 第{number // 7}{'?' if number % 3 else ''}"
    return Message(f"消{number}", "a", "小明", f"s{number // 20}", role, text, time, time)


async def put(store: SqlStore, numbers: range, *, again: bool = False) -> None:
    matrix = np.random.default_rng(numbers.start + again).standard_normal((len(numbers), 96))
    names = tuple(f"消{number}" for number in numbers)
    embedded = Embedded(OWNER, MODEL, names, matrix.astype(np.float32))
    rows = () if again else tuple(map(said, numbers))
    await store.apply(Batch(put=rows, vectors=(embedded,)))


async def answers(store: SqlStore) -> Any:
    """What words and vectors find."""
    query = replace(parse("火锅 第9 hotpot"), conversation=ConversationQuery(0.5, ()))
    vectors = np.random.default_rng(0).standard_normal((2, 96)).astype(np.float32)
    request = SearchRequest(ME, queries=(query,), vectors=vectors, model=MODEL, limit=30)
    found = (await store.search(request)).candidates
    return found.words[0].matches, found.vectors


async def stored(store: SqlStore) -> set[tuple[int, int]]:
    """The segments that there are, by kind and number, when all writes are done."""
    keys = sa.select(space_segment.c.model_no, space_segment.c.number)
    # The writes of a search come before this one.
    work = store._database.write(lambda it: {(kind > 0, no) for kind, no in it.execute(keys)})
    return work.result()


async def test_a_new_process_has_columns_from_segments(
    store: SqlStore, either_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers as from the rows, of which it reads only those that have no segment yet."""
    await put(store, range(300))
    before = await answers(store)
    while len(await stored(store)) < 18:
        pass
    other: Any = open_store(either_settings)
    read = list[tuple[int, int]]()
    own = other._cache._read_rows

    def noticed(connection: Any, space: Any, entry: Any, after: int, until: int) -> None:
        read.append((after - space.first_id, until - space.first_id))
        own(connection, space, entry, after, until)

    monkeypatch.setattr(other._cache, "_read_rows", noticed)
    assert await answers(other) == before
    assert [it for it in read if it[1] - it[0] > 1] == [(287, 1 << 32)]
    await put(store, range(300, 340))
    assert await answers(other) == await answers(store)
    await other.close()
    await store.close()


async def test_a_segment_goes_with_a_row_of_it(store: SqlStore, either_settings: Settings) -> None:
    """That is erased, or gets another vector; the others stay, and what is missing comes again."""
    await put(store, range(300))
    await answers(store)
    while len(await stored(store)) < 18:
        pass
    await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"消40"})),)))
    await put(store, range(100, 101), again=True)
    gone = {(kind, number) for kind in (False, True) for number in (1, 3)}
    every = {(kind, number) for kind in (False, True) for number in range(9)}
    assert await stored(store) == every - gone
    other: Any = open_store(either_settings)
    store._cache._entries.clear()
    monkeys = await answers(store)
    assert await answers(other) == monkeys
    while await stored(store) != every:
        pass
    await other.close()
    await store.close()


async def test_segments_of_an_older_state_are_not_stored(store: SqlStore) -> None:
    """Rows went after they were read."""
    await put(store, range(10))
    with store._database.reading() as connection:
        (space,) = find_spaces(connection, ME.scope)
    await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"消4"})),)))
    store._database.write(lambda it: segments.put(it, space, 0, {0: b"old"})).result()
    assert not await stored(store)
    await store.close()


class Waiting(deque[Any]):
    """Work that is not done until a test does it."""

    def popleft(self) -> Any:
        raise IndexError


async def test_signs_answer_until_all_vectors_are_read(
    store: SqlStore, either_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process compares the signs of a space that is not too large; from the second search on
    it reads every vector, and then compares these.
    """
    monkeypatch.setattr(codes, "EXACT", 400)
    await put(store, range(300))
    exact = await answers(store)
    while len(await stored(store)) < 18:
        pass
    other: Any = open_store(either_settings)
    waiting = other._cache.later = Waiting()
    assert await answers(other) == exact
    (made,) = next(iter(other._cache._entries.values())).models.values()
    assert made.coded and not len(made.vectors.rows)
    assert not waiting
    assert await answers(other) == exact
    await put(store, range(300, 320))
    for load in waiting:
        load()
    await put(store, range(320, 340))
    assert await answers(other) == await answers(store)
    (made,) = next(iter(other._cache._entries.values())).models.values()
    assert not made.coded and len(made.vectors.rows) == 340
    await other.close()
    await store.close()


async def test_signs_are_stored_when_every_row_has_a_vector(store: SqlStore) -> None:
    """Else each new process would have to read the vectors that came later."""
    await store.apply(Batch(put=tuple(map(said, range(300)))))
    await put(store, range(40), again=True)
    await answers(store)
    columns = {(False, number) for number in range(9)}
    while not columns | {(True, 0)} <= await stored(store):
        pass
    assert await stored(store) == columns | {(True, 0)}
    await put(store, range(40, 300), again=True)
    await answers(store)
    while len(await stored(store)) < 18:
        pass
    await store.close()
