"""Reads from a real standby: never behind what a process has written, and never needed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from kemem import AsyncMemory, InvalidArgument, Memory, Unavailable
from kemem.serve.cli.doctor import Check, examine
from kemem.serve.cli.language import in_language, translated_error
from kemem.settings import load
from kemem.store.replica import measure_delay
from kemem.testing.postgres import PostgresServer, postgres_server, standby_of
from tests.command import kemem

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
    place = make_url(servers[1].url)
    reason = f"PostgreSQL at {place.host}:{place.port} cannot be reached"
    warning = f"the replica at {place.host}:{place.port} is not read from: {reason}"
    assert [it.getMessage() for it in caplog.records if "replica at" in it.message] == [warning]
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


def examined(primary: str, replica: str) -> Check:
    """What the doctor says of a replica."""
    urls = {"database_url": primary, "database_replica_url": replica}
    checks = examine(load(**urls, embedder="none", llm="none"))
    return next(it for it in checks if it.name == "replica")


def test_the_doctor_looks_at_the_replica(
    servers: tuple[PostgresServer, PostgresServer], fresh_database: Callable[[], str]
) -> None:
    """Whether it can be reached and is a copy of this store, and how far behind it is."""
    primary, standby = servers[0].url, servers[1].url
    with Memory(database_url=primary, embedder=None, llm=None) as memory:
        memory.ingest("火锅 hotpot", "u")
    check = examined(primary, standby)
    assert check.healthy and check.found.endswith(" s behind") and "***" in check.found
    for chinese, wrong in {
        "不是备库": primary,
        "另一个存储": fresh_database(),  # an empty one
        "无法连接": standby.replace(str(make_url(standby).port), "1"),
        "不是 URL": "standby",
    }.items():
        check = examined(primary, wrong)
        assert not check.healthy and "is not read from: " in check.found
        assert chinese in in_language("zh", check.found)
        assert "从主库读取" in in_language("zh", check.advice)


def test_a_standby_that_stands_still_is_behind(
    servers: tuple[PostgresServer, PostgresServer],
) -> None:
    """And says for how long."""
    primary, replica = (make_url(it.url) for it in servers)
    with Memory(database_url=servers[0].url, embedder=None, llm=None) as memory:
        memory.ingest("hotpot", "u")
        assert measure_delay(primary, replica) < 5
        with psycopg.connect(servers[1].url, autocommit=True) as standby:
            standby.execute("SELECT pg_wal_replay_pause()")
            memory.ingest("火锅", "u")
            with pytest.raises(Unavailable, match=r"0\.2 seconds ago; its last commit is \d+ s"):
                measure_delay(primary, replica, patience=0.2)
            standby.execute("SELECT pg_wal_replay_resume()")
    assert measure_delay(primary, replica) < 5


def test_a_replica_needs_a_primary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be ignored without a word; no password is shown."""
    monkeypatch.chdir(tmp_path)
    url = "postgresql://kemem:s3cret@standby/kemem"
    monkeypatch.setenv("KEMEM_DATABASE_REPLICA_URL", url)
    needs = "needs a database_url, whose standby postgresql://kemem:***@standby/kemem is"
    with pytest.raises(InvalidArgument) as refused:
        load()
    place = "setting database_replica_url (KEMEM_DATABASE_REPLICA_URL) "
    assert refused.value.message == place + needs
    chinese = translated_error(refused.value.message, "zh")
    assert chinese.endswith("需要 database_url：postgresql://kemem:***@standby/kemem 应是它的备库")
    ran = kemem(tmp_path, "doctor", KEMEM_DATABASE_REPLICA_URL=url, LC_ALL="zh_CN.UTF-8")
    assert ran.returncode == 2 and chinese in ran.stderr
    assert (
        load(data_dir=tmp_path).database_replica_url is None
    )  # a directory that is named is meant
    monkeypatch.delenv("KEMEM_DATABASE_REPLICA_URL")
    own = {"acme": {"data_dir": "d", "database_replica_url": url}}
    with pytest.raises(
        InvalidArgument, match=r"projects\.acme\.database_replica_url .* needs a data"
    ):
        load(database_url="postgresql://127.0.0.1/x", projects=own)


def test_a_replica_needs_a_url() -> None:
    settings = load(database_url="postgresql://127.0.0.1/x", database_replica_url="standby")
    with pytest.raises(InvalidArgument, match="database_replica_url is not a URL"):
        asyncio.run(AsyncMemory(settings=settings).health())
