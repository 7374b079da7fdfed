"""A search is one read: one hop to a thread of the store, one transaction, few statements."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from kemem.memory import AsyncMemory
from kemem.ports import Deps
from kemem.records import MESSAGES, NOTES, Embedded, Link, Matrix, Row, Scope, Where
from kemem.records.batch import Batch
from kemem.search.recipe import search
from kemem.store import postings
from kemem.store.database import Database
from kemem.store.sqlite import Sqlite
from kemem.store.store import SqlStore
from kemem.testing import FakeClock, HashingEmbedder
from kemem_conformance.suite import noted, said
from kemem_conformance.world import NOW

MOST = 14
SEEN = Where(
    Scope("agent", "u_"), kinds=MESSAGES | NOTES, shared="agent", valid_at=NOW, sensitive=False
)
QUESTION = "We talked about food. What does Ann like to eat in Rome? 小明喜欢吃什么？"


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SqlStore]:
    opened = SqlStore(database, cache_bytes=1 << 24)
    yield opened
    await opened.close()


async def fill(store: SqlStore) -> None:
    """Messages, notes with links over two hops, and what all users share, all with vectors."""
    messages = tuple(
        said(f"m{n}", f"Ann 小明 said {n}: hotpot 火锅 in Rome?", role=("user", "assistant")[n % 2])
        for n in range(40)
    )
    notes = (noted("n1", "Ann likes hotpot"), noted("n2", "Hotpot is eaten in Rome 火锅"))
    shared = noted("k", "Rome has hotpot 火锅", user_id="", kind="knowledge")
    links = (Link("n1", "Ann", "likes", "hotpot"), Link("n2", "hotpot", "eaten in", "Rome"))
    await store.apply(Batch(put=messages, notes=(*notes, shared), links=links))
    embedder = HashingEmbedder()
    model = Deps(store, embedder, FakeClock(NOW)).model
    assert model is not None
    owned: dict[Scope, list[Row]] = {
        Scope("agent", "u_"): [*messages, *notes],
        Scope("agent", ""): [shared],
    }
    for scope, rows in owned.items():
        matrix: Matrix = await embedder.embed([row.content for row in rows], purpose="passage")
        ids = tuple(row.id for row in rows)
        await store.apply(Batch(vectors=(Embedded(scope, model, ids, matrix),)))


@pytest.mark.parametrize("keywords", [None, ["hotpot", "火锅"]])
async def test_a_hybrid_search_is_one_read(
    store: SqlStore, keywords: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With words, vectors, notes, what users share and the graph; BEGIN and COMMIT count."""
    await fill(store)
    deps = Deps(store, HashingEmbedder(), FakeClock(NOW))
    hops: list[Any] = []
    statements: list[str] = []
    submit = ThreadPoolExecutor.submit

    def counted(pool: ThreadPoolExecutor, *given: Any, **named: Any) -> Any:
        if pool is store._readers:
            hops.append(given)
        return submit(pool, *given, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    listeners = {
        "before_cursor_execute": lambda *given: statements.append(given[2]),
        "rollback": lambda connection: statements.append("ROLLBACK"),
    }
    for name, listener in listeners.items():
        event.listen(Engine, name, listener)
    try:
        for _ in range(2):  # the first one fills the cache
            hops.clear()
            statements.clear()
            hits = await search(QUESTION, SEEN, 60, deps, keywords=keywords, explain=False)
    finally:
        for name, listener in listeners.items():
            event.remove(Engine, name, listener)
    assert {"n1", "k"} <= {hit.id for hit in hits} and any(hit.id[0] == "m" for hit in hits)
    assert len(hops) == 1
    assert len(statements) <= MOST, "\n".join(statements)


async def test_a_search_through_the_memory_reads_once(tmp_path: Path) -> None:
    """From the public method on, nothing else is read."""
    calls: list[str] = []
    store = SqlStore(Sqlite(tmp_path), cache_bytes=1 << 20)
    async with AsyncMemory(store=store, embedder=HashingEmbedder(), llm=None) as memory:
        await memory.add("我不吃辣 I can't eat spicy food", user_id="小明")
        await memory.search("辣 spicy", "小明")
        read = store._read_of

        async def counted(wheres: Any, work: Any, *given: Any, **named: Any) -> Any:
            calls.append(work.__name__)
            return await read(wheres, work, *given, **named)

        store._read_of = counted  # type: ignore[method-assign]
        assert await memory.search("辣 spicy", "小明")
    assert calls == ["search"]


async def test_remembered_words_follow_what_is_added_and_deleted(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of rows by phrase is never behind the store, however few phrases it holds."""
    monkeypatch.setattr(postings, "_COMMON", 1)
    monkeypatch.setattr(postings, "_REMEMBERED", 2)

    async def hits() -> set[str]:
        deps = Deps(store, None, FakeClock(NOW))
        return {hit.id for hit in await search("tea 火锅", Where(Scope(user_id="u_")), 60, deps)}

    await store.apply(Batch(put=(said("m1", "tea in Rome 火锅"), said("m2", "tea"))))
    assert await hits() == {"m1", "m2"}
    await store.apply(Batch(put=(said("m3", "Rome 火锅"), said("m4", "bread"))))
    assert await hits() == {"m1", "m2", "m3"}
    await store.apply(Batch(drop=(Where(Scope(user_id="u_"), ids=frozenset({"m1"})),)))
    await store.apply(Batch(put=(said("m5", "tea and 火锅"),)))
    assert await hits() == {"m2", "m3", "m5"}
