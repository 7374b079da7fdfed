"""On PostgreSQL calls are counted by how often they wait for the network, not by statements."""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from kemem.memory import AsyncMemory
from kemem.ports import Deps
from kemem.search.recipe import search
from kemem.settings import load
from kemem.store.postgres import Postgres
from kemem.store.store import SqlStore
from kemem.testing import FakeClock, HashingEmbedder
from kemem_conformance.world import NOW
from tests.backends.test_one_read import QUESTION, SEEN, fill
from tests.balancer import Balancer, balanced


@pytest.fixture
async def memory(store_database: str) -> AsyncIterator[tuple[AsyncMemory, Balancer]]:
    """A memory that reaches its database through something that counts."""
    url = make_url(store_database)
    with balanced([(url.host or "", url.port or 0)]) as counter:
        via = url.set(port=counter.port).render_as_string(hide_password=False)
        settings = load(database_url=via, llm="none")
        async with AsyncMemory(settings=settings, embedder=HashingEmbedder()) as opened:
            yield opened, counter


async def test_a_single_add_waits_four_times(memory: tuple[AsyncMemory, Balancer]) -> None:
    """BEGIN and COMMIT included; messages, words, vectors and counters are written."""
    opened, counter = memory
    await opened.ingest("我不吃辣", "小明")
    counter.round_trips = 0
    assert (await opened.ingest("I don't eat spicy food", "小明")).inserted
    assert counter.round_trips <= 4
    counter.round_trips = 0
    assert (await opened.add("喜欢火锅 hotpot", "小明", infer=False)).results
    assert counter.round_trips <= 4


@pytest.mark.parametrize("keywords", [None, ["hotpot", "火锅"]])
async def test_a_search_waits_five_times(store_database: str, keywords: list[str] | None) -> None:
    """By words, meaning and two hops of the graph, with what cites the hits; COMMIT included."""
    url = make_url(store_database)
    with balanced([(url.host or "", url.port or 0)]) as counter:
        store = SqlStore(Postgres(url.set(port=counter.port)), cache_bytes=1 << 24)
        await fill(store)
        deps = Deps(store, HashingEmbedder(), FakeClock(NOW))
        for _ in range(2):  # the first one fills the cache
            counter.round_trips = 0
            hits = await search(QUESTION, SEEN, 10, deps, keywords=keywords, explain=False)
        waits = counter.round_trips
        await store.close()
    assert len(hits) == 10
    assert waits <= 5


def test_writes_keep_their_plans_and_searches_do_not(store_database: str) -> None:
    """A kept plan knows nothing of a phrase; one of a small table must not read a large one."""
    database = Postgres(make_url(store_database), timeout=7)
    database.open()
    names = ("plan_cache_mode", "enable_seqscan", "synchronous_commit", "statement_timeout")

    def options(connection: sa.Connection) -> tuple[str, ...]:
        shown = [sa.func.current_setting(name) for name in names]
        return tuple(connection.execute(sa.select(*shown)).one())

    assert database.write(options).result() == ("auto", "off", "on", "7s")
    assert database.write(options, durable=False).result() == ("auto", "off", "off", "7s")
    assert database.write(options, alone=True).result() == ("auto", "on", "on", "0")
    with database.reading() as connection:
        assert options(connection) == ("force_custom_plan", "on", "on", "7s")
    database.close()
