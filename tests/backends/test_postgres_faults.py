"""What only a database server brings: it can be away, and many processes share it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from kemem import AsyncMemory, Memory, Unavailable
from kemem.records import Message, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.settings import load
from kemem.store.postgres import Postgres
from kemem.store.store import SqlStore
from kemem.text.query import parse
from kemem_conformance.suite import ranking
from tests.command import kemem

ME = Where(Scope(user_id="小明"))
NOW = 1_767_225_600_000_000


def message(name: str, content: str = "我不吃辣 no spice") -> Message:
    return Message(name, "agent", "小明", "s", "user", content, ts=NOW, ingest_time=NOW)


@pytest.fixture
async def stores(fresh_database: Callable[[], str]) -> AsyncIterator[list[SqlStore]]:
    """Two stores on one database, as two server processes have them."""
    url = make_url(fresh_database())
    opened = [SqlStore(Postgres(url), cache_bytes=1 << 20) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close()


async def test_another_process_sees_what_one_dropped(stores: list[SqlStore]) -> None:
    """Warm columns never serve a row that another process removed."""
    ours, theirs = stores
    await ours.apply(Batch(put=(message("a"), message("乙", "喜欢火锅"))))
    query = parse("火锅")
    assert (await ranking(theirs, ME, query, limit=9)).total == 1
    await ours.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"乙"})),)))
    assert (await ranking(theirs, ME, query, limit=9)).total == 0
    await theirs.apply(Batch(put=(message("丙", "火锅店"),)))
    assert (await ranking(ours, ME, query, limit=9)).matches[0].id == "丙"
    before = await theirs.generation(ME)
    assert await ours.generation(ME) == before
    await ours.apply(Batch(drop=(ME,)))
    assert await theirs.generation(ME) == await ours.generation(ME) != before


async def test_two_processes_can_tell_the_same_message_at_once(stores: list[SqlStore]) -> None:
    """One of them stores it; the new user, agent and session are made once."""
    same = Batch(put=(message("a"), message("乙")))
    applied = await asyncio.gather(*(store.apply(same) for store in stores * 8))
    assert sum(len(each.inserted) for each in applied) == 2
    assert sum(len(each.ignored) for each in applied) == 30


async def test_no_job_is_given_to_two_workers(stores: list[SqlStore]) -> None:
    """Claims skip what another transaction holds."""
    jobs = tuple(Job(f"j{n:02}", "embed", ME.scope, NOW) for n in range(20))
    await stores[0].apply(Batch(jobs=jobs))
    claims = await asyncio.gather(*(store.claim(NOW, 60_000_000) for store in stores * 15))
    names = [job.job_id for job in claims if job]
    assert len(names) == len(set(names))
    rest = [await stores[0].claim(NOW, 60_000_000) for _ in range(21 - len(names))]
    assert {job.job_id for job in rest if job} | set(names) == {job.job_id for job in jobs}
    assert rest[-1] is None


async def test_a_long_text_is_found_by_its_end(stores: list[SqlStore]) -> None:
    """Beyond what one tsvector can hold, and across the borders of its parts."""
    long = "的 the " * 9000 + "哈" * 300 + "锅底 closing words"
    await stores[0].apply(Batch(put=(message("long", long),)))
    for phrase in ('"哈锅底"', '"closing words"', '"底 closing"'):
        assert (await ranking(stores[0], ME, parse(phrase), limit=1)).total == 1


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://postgres@127.0.0.1:1/none", "127.0.0.1:1"),
        ("postgresql://postgres@127.0.0.1/none", "127.0.0.1:2"),
        ("postgresql://nobody.invalid/none", "nobody.invalid"),
    ],
)
def test_a_server_that_is_away_is_a_clear_error(
    url: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is named that was tried."""
    monkeypatch.setenv("PGPORT", "2")
    with (
        Memory(settings=load(database_url=url, embedder="none")) as memory,
        pytest.raises(Unavailable) as caught,
    ):
        memory.health()
    assert caught.value.message == f"PostgreSQL at {place} cannot be reached"


@pytest.mark.parametrize("columns", ["id INT, note TEXT", "key TEXT, value TEXT"])
def test_a_table_of_the_same_name_is_not_ours(
    fresh_database: Callable[[], str], columns: str
) -> None:
    """Whatever columns it has, and whatever is in them."""
    url = fresh_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE meta ({columns})")
        if columns.startswith("key"):
            connection.execute("INSERT INTO meta VALUES ('schema_version', '3')")
    with (
        Memory(settings=load(database_url=url, embedder="none")) as memory,
        pytest.raises(Unavailable, match="tables of another program; KeMem needs one of its own"),
    ):
        memory.health()


def test_a_wrong_password_is_not_repeated(postgres: str) -> None:
    url = postgres.replace("postgres:postgres@", "postgres:swordfish@")
    with (
        Memory(settings=load(database_url=url, embedder="none")) as memory,
        pytest.raises(Unavailable) as refused,
    ):
        memory.health()
    assert "swordfish" not in str(refused.value)
    assert "refuses: password authentication failed" in str(refused.value)


def test_a_database_that_is_not_there_is_told_by_its_name(postgres: str) -> None:
    url = f"{postgres.rpartition('/')[0]}/nowhere"
    with (
        Memory(settings=load(database_url=url, embedder="none")) as memory,
        pytest.raises(Unavailable, match='refuses: database "nowhere" does not exist'),
    ):
        memory.health()


async def test_a_connection_that_breaks_is_replaced(fresh_database: Callable[[], str]) -> None:
    """The server was restarted, or a proxy closed the line: the next call works."""
    url = fresh_database()
    async with AsyncMemory(settings=load(database_url=url, embedder="none")) as memory:
        await memory.ingest("我不吃辣", "小明")
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert (await memory.ingest("still here", "小明")).inserted
        assert len((await memory.messages("小明")).items) == 2


def test_a_database_of_another_program_is_not_touched(fresh_database: Callable[[], str]) -> None:
    url = fresh_database()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("CREATE TABLE recipe (name TEXT)")
    with (
        Memory(settings=load(database_url=url, embedder="none")) as memory,
        pytest.raises(Unavailable, match="another program"),
    ):
        memory.health()
    with psycopg.connect(url) as other:
        tables = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert [row[0] for row in tables] == ["recipe"]


def test_a_newer_store_is_refused_untouched(fresh_database: Callable[[], str]) -> None:
    url = fresh_database()
    with Memory(settings=load(database_url=url, embedder="none")) as memory:
        memory.ingest("我不吃辣", "小明")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with (
        Memory(settings=load(database_url=url, embedder="none")) as memory,
        pytest.raises(Unavailable, match="newer KeMem"),
    ):
        memory.health()


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """One that may do nothing but sign in."""
    name = f"guest_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
    yield name
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"DROP ROLE {name}")


def doctor(home: Path, url: str, language: str) -> str:
    """What is wrong with a store, as an operator reads it."""
    ran = kemem(home, "doctor", KEMEM_DATABASE_URL=url, KEMEM_LANGUAGE=language)
    assert ran.returncode and "SQLSTATE" not in ran.stdout
    return " ".join(ran.stdout.split())


@pytest.mark.parametrize(("language", "missing"), [("en", "may not create"), ("zh", "无权")])
def test_what_a_role_lacks_is_said_with_what_to_do(
    fresh_database: Callable[[], str], role: str, tmp_path: Path, language: str, missing: str
) -> None:
    """The extension, then the right to make tables or a schema; then it opens."""
    url = fresh_database()
    own = url.replace("postgres:postgres@", f"{role}:guest@")
    said = doctor(tmp_path, own, language)
    assert missing in said and "CREATE EXTENSION vector" in said
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION vector")
    grant = f"GRANT USAGE, CREATE ON SCHEMA public TO {role}"
    said = doctor(tmp_path, own, language)
    assert missing in said and grant in said
    said = doctor(tmp_path, f"{own}?schema=acme", language)
    create = f"CREATE SCHEMA acme AUTHORIZATION {role}"
    assert missing in said and create in said
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(grant)
        admin.execute(create)
    for address in (own, f"{own}?schema=acme"):
        with Memory(settings=load(database_url=address, embedder="none")) as memory:
            memory.ingest("我不吃辣", "小明")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"DROP OWNED BY {role} CASCADE")


def test_the_database_of_another_program_gets_no_extension(
    fresh_database: Callable[[], str],
) -> None:
    """It is recognised first, also in a schema that is named."""
    url = fresh_database()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("CREATE TABLE recipe (name TEXT)")
        other.execute("CREATE SCHEMA acme CREATE TABLE recipe (name TEXT)")
    for address in (url, f"{url}?schema=acme"):
        with (
            Memory(settings=load(database_url=address, embedder="none")) as memory,
            pytest.raises(Unavailable, match="another program"),
        ):
            memory.health()
    with psycopg.connect(url) as other:
        found = other.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
        assert found.fetchone() is None
