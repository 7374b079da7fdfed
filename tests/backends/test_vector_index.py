"""HNSW indexes on PostgreSQL: built by an operator, used by searches of large spaces."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from kemem import Conflict, admin
from kemem.ports.request import SearchRequest
from kemem.records import Embedded, Message, Model, Scope, Where
from kemem.records.batch import Batch
from kemem.store import codes, hnsw, search
from kemem.store.pipeline import DISTRIBUTED
from kemem.store.postgres import Postgres
from kemem.store.store import SqlStore

MODEL, OWNER, ROWS = Model("m", 96), Scope("a", "小明"), 3_000
ME = Where(Scope(user_id="小明"))
NOW = 1_767_225_600_000_000


@pytest.fixture
def url(request: pytest.FixtureRequest, store_database: str) -> str:
    return store_database + getattr(request, "param", "")


@pytest.fixture
async def store(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqlStore]:
    """With a space that is a large one here, and another that is not."""
    monkeypatch.setattr(codes, "EXACT", 1_000)
    monkeypatch.setattr(search, "_NEAREST", 200)
    opened = SqlStore(Postgres(sa.make_url(url)), cache_bytes=1 << 24)
    await put(opened, range(ROWS))
    await put(opened, range(10), user_id="Ann")
    yield opened
    await opened.close()


def centred(numbers: range) -> Any:
    chance = np.random.default_rng(numbers.start)
    centres = np.random.default_rng(99).standard_normal((50, MODEL.width))
    matrix: Any = centres[chance.integers(50, size=len(numbers))]
    return np.asarray(matrix + chance.standard_normal(matrix.shape), np.float32)


async def put(store: SqlStore, numbers: range, user_id: str = "小明") -> None:
    names = [f"m{number}" for number in numbers]
    roles = [("user", "assistant")[number % 2] for number in numbers]
    rows = [
        Message(name, "a", user_id, "s", role, "火锅 hotpot", NOW + at, NOW + at)
        for at, name, role in zip(numbers, names, roles, strict=True)
    ]
    vectors = Embedded(Scope("a", user_id), MODEL, tuple(names), centred(numbers))
    await store.apply(Batch(put=tuple(rows), vectors=(vectors,)))


async def nearest(store: SqlStore, wanted: Any, where: Where = ME) -> list[list[str]]:
    response = await store.search(SearchRequest(where, vectors=wanted, model=MODEL, limit=10))
    return [[match.id for match in matches] for matches in response.candidates.vectors]


def scans(url: str) -> int:
    """How often indexes were used; what a connection did is counted when it ends."""
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    counts = sa.text(
        "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE starts_with(indexrelname, 'hnsw_')"
    )
    with engine.connect() as connection:
        count = connection.scalar(counts)
    engine.dispose()
    return int(count or 0)


def recall(found: list[list[str]], exact: list[list[str]]) -> float:
    return float(np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, exact, strict=True)]))


@pytest.mark.parametrize("url", ["", "?schema=acme"], indirect=True)
async def test_an_index_finds_what_an_exact_search_does(
    store: SqlStore, url: str, store_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also rows that came after it, without those that went, and of one role."""
    wanted, user = centred(range(ROWS))[:30] + 0.3, replace(ME, role="user")
    assert hnsw_state(url) == (1, 0)
    (made,) = admin.index_vectors(url, 64)
    assert made.rows == ROWS and made.seconds > 0
    assert hnsw_state(url) == (1, 1)
    await put(store, range(ROWS, ROWS + 100))
    first = (await nearest(store, wanted))[0][0]
    await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({first})),)))
    found = await nearest(store, wanted), await nearest(store, wanted, user)
    monkeypatch.undo()
    store._cache._entries.clear()
    exact = await nearest(store, wanted), await nearest(store, wanted, user)
    assert min(recall(*pair) for pair in zip(found, exact, strict=True)) >= 0.98
    assert any(int(name[1:]) >= ROWS for names in found[0] for name in names)
    assert first not in found[0][0]
    await store.close()
    assert scans(store_database) >= 30


def hnsw_state(url: str) -> tuple[int, int]:
    state = admin.index_state(url)
    assert state.can_index
    return state.large, state.indexed


async def test_an_index_is_built_again_when_many_rows_came(
    store: SqlStore, store_database: str
) -> None:
    """Not before; the old one goes, as do those that are of no use any more."""
    (made,) = admin.index_vectors(store_database, 64)
    await put(store, range(ROWS, ROWS + 200))
    (kept,) = admin.index_vectors(store_database, 64)
    assert made.seconds > 0 and kept.seconds == 0
    await put(store, range(ROWS + 200, ROWS + 500))
    (again,) = admin.index_vectors(store_database, 64)
    assert again.seconds > 0 and again.rows == ROWS + 500
    assert await names(store) == [f"hnsw_1_1_{ROWS + 500}"]
    await store.apply(Batch(drop=(ME,)))
    assert admin.index_vectors(store_database, 64) == []
    assert await names(store) == []


async def names(store: SqlStore) -> list[str]:
    work = store._database.write(lambda it: it.execute(hnsw._indexes, {"prefix": "hnsw_"}).all())
    return [name for name, _ in work.result()]


async def test_indexes_are_refused_where_they_cannot_be(
    store: SqlStore, store_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old pgvector, a distributed store, and another process that builds."""
    with monkeypatch.context() as patch:
        patch.setattr(hnsw, "_OLDEST", (99, 0))
        with pytest.raises(Exception, match=r"need pgvector 99\.0 or newer, not 0"):
            admin.index_vectors(store_database, 64)
    engine = sa.create_engine(sa.make_url(store_database).set(drivername="postgresql+psycopg"))
    with engine.connect() as other:
        other.execute(sa.select(sa.func.pg_advisory_lock(hnsw._BUILDING)))
        with pytest.raises(Conflict, match="another process"):
            admin.index_vectors(store_database, 64)
    with engine.begin() as other:
        values = {"key": DISTRIBUTED, "value": "space_no"}
        other.execute(sa.text("INSERT INTO meta VALUES (:key, :value)"), values)
    engine.dispose()
    with pytest.raises(Conflict, match="distributed"):
        admin.index_vectors(store_database, 64)
    assert await names(store) == []
