"""Spaces of many rows: an approximate search that finds what the exact one does; memory bounded."""

import resource
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kemem.ports.request import SearchRequest
from kemem.records import Embedded, Message, Model, Scope, Where
from kemem.records.batch import Batch
from kemem.store import codes, postings, search
from kemem.store.spaces import find_spaces
from kemem.store.sqlite import Sqlite
from kemem.store.store import SqlStore
from kemem.text.query import ConversationQuery, parse

MODEL = Model("m", 96)
ME = Where(Scope(user_id="小明"))
NOW = 1_767_225_600_000_000
TOPICS = ("火锅 spicy", "爬山 hike", "读书 novel", "钢琴 piano")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(Sqlite(tmp_path), cache_bytes=1 << 24)
    yield opened
    await opened.close()


def said(number: int, user_id: str = "小明") -> Message:
    """A message of a topic, every seventh of which is rare."""
    text = f"{TOPICS[number // 5 % 4]} {'稀有 seldom' if number % 149 == 7 else f'第{number}'}"
    role, time = ("assistant" if number % 2 else "user"), NOW + number
    return Message(f"m{number}", "a", user_id, f"s{number // 20}", role, text, time, time)


async def put(store: SqlStore, numbers: range) -> Any:
    """Messages with vectors around few centres; returns the vectors."""
    chance = np.random.default_rng(numbers.start)
    centres = np.random.default_rng(99).standard_normal((20, MODEL.width))
    matrix: Any = centres[chance.integers(20, size=len(numbers))]
    matrix = np.asarray(matrix + chance.standard_normal(matrix.shape), np.float32)
    names = tuple(f"m{number}" for number in numbers)
    embedded = Embedded(Scope("a", "小明"), MODEL, names, matrix)
    await store.apply(Batch(put=tuple(map(said, numbers)), vectors=(embedded,)))
    return matrix


async def nearest(store: SqlStore, vectors: Any, where: Where = ME) -> list[list[str]]:
    response = await store.search(SearchRequest(where, vectors=vectors, model=MODEL, limit=10))
    return [[match.id for match in matches] for matches in response.candidates.vectors]


async def by_words(store: SqlStore, text: str, where: Where = ME) -> list[tuple[str, float]]:
    query = replace(parse(text), conversation=ConversationQuery(0.5, ()))
    response = await store.search(SearchRequest(where, queries=(query,), limit=10))
    return [(match.id, match.score) for match in response.candidates.words[0].matches]


async def test_the_nearest_of_a_large_space_are_those_of_an_exact_search(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after it grew beyond the border, where a role is asked for, and after erasure."""
    vectors = await put(store, range(500))
    wanted = vectors[:40] + 0.5
    await nearest(store, wanted)
    monkeypatch.setattr(codes, "EXACT", 600)
    monkeypatch.setattr(search, "_NEAREST", 200)
    await put(store, range(500, 1500))
    user = replace(ME, role="user")
    rough = [await nearest(store, wanted), await nearest(store, wanted, user)]
    await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({rough[0][0][0]})),)))
    rough.append(await nearest(store, wanted))
    monkeypatch.undo()
    exact = [await nearest(store, wanted, user)]
    store._cache._entries.clear()
    exact.append(await nearest(store, wanted))
    for one, other in ((rough[1], exact[0]), (rough[2], exact[1])):
        same = [len({*a} & {*b}) / 10 for a, b in zip(one, other, strict=True)]
        assert np.mean(same) >= 0.98
    assert rough[0][0][0] not in rough[2][0]


def test_the_few_rows_that_may_be_seen_are_all_near_enough() -> None:
    """Too few of them are looked at to learn how near the others are."""
    matrix = np.random.default_rng(7).standard_normal((2_000, MODEL.width)).astype(np.float32)
    some = np.zeros(len(matrix), np.bool_)
    some[5::97], some[::17] = True, False
    some[0] = True
    nearest = codes.nearest(codes.encode(matrix), matrix[0], some, 50)
    assert nearest.tolist() == np.flatnonzero(some).tolist()


def test_a_sign_weighs_as_much_as_the_number_in_its_place() -> None:
    """Of two rows that differ in one sign each, that is nearest which differs in a small number."""
    vector = np.ones(MODEL.width, np.float32)
    vector[3] = 9
    rows = np.tile(vector, (3, 1))
    rows[0, 3], rows[1, 50], rows[2] = -9, -1, -1
    planes, everything = codes.encode(rows), np.ones(3, np.bool_)
    assert codes.nearest(planes, vector, everything, 1).tolist() == [1]


@pytest.mark.parametrize("text", ["稀有", "seldom piano", "火锅 稀有", "hike novel 第77"])
async def test_words_of_a_large_space_rank_the_rows_that_an_exact_search_ranks(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """With what their neighbors lend them; scores may differ by what a session lends."""
    await put(store, range(1200))
    exact = await by_words(store, text)
    monkeypatch.setattr(codes, "EXACT", 100)
    monkeypatch.setattr(search, "_LIKELY", 60)
    rough = await by_words(store, text)
    assert [score for _, score in rough] == pytest.approx([it for _, it in exact], abs=0.02)
    assert rough[0] == pytest.approx(exact[0])


async def test_a_question_of_more_phrases_than_are_remembered_is_answered(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those remembered before are forgotten while it is answered; again and with new rows."""
    await put(store, range(60))
    text = "火锅 爬山 novel piano hike"
    before = await by_words(store, text)
    monkeypatch.setattr(postings, "_COMMON", 1)
    monkeypatch.setattr(postings, "_REMEMBERED", 2)
    assert [await by_words(store, text) for _ in range(3)] == [before] * 3
    await put(store, range(60, 90))
    found = await by_words(store, text)
    store._cache._entries.clear()
    assert found == await by_words(store, text)


async def test_memory_is_bounded_however_many_users_are_active(tmp_path: Path) -> None:
    """What the budget counts is what the process takes: it does not grow with users."""
    database = Sqlite(tmp_path)
    store, users = SqlStore(database, cache_bytes=2 << 20), 2_500
    for start in range(0, users, 500):
        names = [f"u{number}" for number in range(start, start + 500)]
        await store.apply(Batch(put=tuple(said(7, name) for name in names)))
    cache, peaks = store._cache, []
    with database.reading() as connection:
        (agent,) = {it.agent_id for it in find_spaces(connection, Scope("a", "u0"))}
        for each in find_spaces(connection, Scope(agent)):
            assert len(cache.snapshot(connection, each).ids) == 1
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert cache._used == sum(it.bytes for it in cache._entries.values()) <= 2 << 20
    assert peaks[-1] - peaks[750] < 3 << 10  # KB: as many as there is room for came before
    await store.close()
