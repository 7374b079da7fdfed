"""Reads from a real standby: never behind what a process has written, and never needed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest

from kemem import AsyncMemory, InvalidArgument
from kemem.settings import load
from kemem.testing.postgres import PostgresServer, postgres_server, standby_of

READS = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT'"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server and its standby."""
    with postgres_server() as primary, standby_of(primary) as standby:
        yield primary, standby


@pytest.fixture
async def memory(servers: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[AsyncMemory]:
    urls = {"database_url": servers[0].url, "database_replica_url": servers[1].url}
    async with AsyncMemory(settings=load(**urls, embedder="none", llm="none")) as opened:
        await opened.health()
        yield opened


async def contents(memory: AsyncMemory, user_id: str) -> set[str]:
    page = await memory.messages(user_id, page_size=100)
    hits = await memory.lexical_search("hotpot 火锅", user_id=user_id, page_size=100)
    assert {it.message_id for it in page.items} == {it.id for it in hits.items}
    return {it.content for it in page.items}


async def test_what_was_written_is_read_at_once(
    servers: tuple[PostgresServer, PostgresServer], memory: AsyncMemory
) -> None:
    """Also while the standby stands still; others' writes are seen a second later at the latest."""
    said = {f"火锅 hotpot {number}" for number in range(20)}
    for number, text in enumerate(sorted(said)):
        await memory.ingest(text, "小明")
        assert len(await contents(memory, "小明")) == number + 1
    with psycopg.connect(servers[1].url, autocommit=True) as standby:
        async with asyncio.timeout(30):
            while not standby.execute(READS).fetchall()[0][0]:  # it is read from, once it has all
                assert await contents(memory, "小明") == said
        standby.execute("SELECT pg_wal_replay_pause()")
        await memory.ingest("hotpot, own", "小明")
        assert await contents(memory, "小明") == said | {"hotpot, own"}
        async with AsyncMemory(database_url=servers[0].url, embedder=None, llm=None) as other:
            await other.ingest("hotpot of another process", "小红")
        await asyncio.sleep(1)
        assert await contents(memory, "小红") == {"hotpot of another process"}
        standby.execute("SELECT pg_wal_replay_resume()")


async def test_reads_go_on_where_the_standby_is_stopped(
    servers: tuple[PostgresServer, PostgresServer],
    memory: AsyncMemory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await memory.ingest("hotpot", "u")
    with psycopg.connect(servers[1].url, autocommit=True) as standby:
        async with asyncio.timeout(30):
            while not standby.execute(READS).fetchall()[0][0]:
                await contents(memory, "u")
    servers[1].stop()
    assert await contents(memory, "u") == {"hotpot"}
    await memory.ingest("火锅", "u")
    assert await contents(memory, "u") == {"hotpot", "火锅"}
    async with asyncio.timeout(10):
        while "is not read from" not in caplog.text:  # a read says so, or the next comparison
            await asyncio.sleep(0.05)
    servers[1].start()


async def test_another_store_is_no_replica(
    servers: tuple[PostgresServer, PostgresServer],
    fresh_database: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A wrong name of a database: what it has is nobody's answer."""
    stranger = fresh_database()
    async with AsyncMemory(database_url=stranger, embedder=None, llm=None) as other:
        await other.ingest("hotpot of another store", "u2")
    urls = {"database_url": servers[0].url, "database_replica_url": stranger}
    async with AsyncMemory(settings=load(**urls, embedder="none", llm="none")) as memory:
        await memory.ingest("火锅", "u2")
        async with asyncio.timeout(10):
            while "it has another store" not in caplog.text:
                assert await contents(memory, "u2") == {"火锅"}
        await asyncio.sleep(1.2)  # longer than a comparison takes to count
        assert await contents(memory, "u2") == {"火锅"}
    assert caplog.text.count("it has another store") == 1


def test_a_replica_needs_a_url() -> None:
    settings = load(database_url="postgresql://127.0.0.1/x", database_replica_url="standby")
    with pytest.raises(InvalidArgument, match="database_replica_url is not a URL"):
        asyncio.run(AsyncMemory(settings=settings).health())
