"""A store over several servers: every key can be sharded by space, and hot statements name one.

What Citus does with it is tested where KEMEM_TEST_CITUS_URL names a coordinator with an empty
database; here PostgreSQL alone runs the statements of a distributed store.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from kemem import AsyncMemory, Conflict, InvalidArgument, admin
from kemem.ports import Store
from kemem.store.distribute import LOCAL, REFERENCES, SHARDED
from kemem.store.pipeline import DISTRIBUTED
from kemem.store.postgres import Postgres
from kemem.store.schema import metadata
from kemem.store.store import SqlStore
from kemem.testing import FakeClock, HashingEmbedder
from kemem_conformance import StoreConformance
from kemem_conformance.world import NOW
from tests.cases import each
from tests.conftest import NOT_RUN
from tests.fixtures import EXAMPLES_ON_POSTGRES

CITUS = os.environ.get("KEMEM_TEST_CITUS_URL")
NAMES = [it.name for it in SHARDED]
# What asks all servers, and when: by operators, or by jobs in the background.
OF_OPERATORS = {
    "UPDATE note SET use_count": "hit counts, written after a search by later work",
    "SELECT space.user_id, space.agent_id, space.user_id AS": "who has rows, for daily forgetting",
}
# A double of Citus: functions of these names that write down what they are given.
DOUBLE = """
CREATE TABLE asked (number serial, what text, shards int, beside text);
CREATE FUNCTION citus_version() RETURNS text LANGUAGE sql AS $$ SELECT 'double' $$;
CREATE FUNCTION create_reference_table(name regclass) RETURNS void LANGUAGE sql AS
  $$ INSERT INTO asked (what) VALUES (name::text) $$;
CREATE FUNCTION create_distributed_table(name regclass, by text, shard_count int DEFAULT NULL,
  colocate_with text DEFAULT 'default') RETURNS void LANGUAGE sql AS
  $$ INSERT INTO asked (what, shards, beside)
     VALUES (name || '.' || by, shard_count, colocate_with) $$;
"""


def test_every_table_has_its_place() -> None:
    """And what is on every server or on the coordinator refers to nothing that is on some."""
    groups = [*SHARDED, *REFERENCES, *LOCAL]
    assert {*metadata.sorted_tables} <= {*groups} and len(groups) == len({*groups})
    for table in (*REFERENCES, *LOCAL):
        assert all(it.column.table in REFERENCES for it in table.foreign_keys)


@each("table", SHARDED)
def test_every_key_and_constraint_can_be_sharded(table: sa.Table) -> None:
    """A unique key holds the space; a foreign key stays within it, or leads to every server."""
    uniques = [it.columns for it in table.constraints if isinstance(it, sa.UniqueConstraint)]
    for key in (table.primary_key.columns, *(it.columns for it in table.indexes if it.unique)):
        uniques.append(key)
    assert all("space_no" in key for key in uniques)
    for constraint in table.foreign_key_constraints:
        if constraint.referred_table not in REFERENCES:
            assert constraint.referred_table in SHARDED
            pairs = {(it.parent.name, it.column.name) for it in constraint.elements}
            assert ("space_no", "space_no") in pairs


def fans_out(statement: str) -> bool:
    """Whether a statement reads or changes a sharded table without saying of which spaces."""
    if statement.startswith("INSERT"):
        return False
    used = re.findall(r"(?:FROM|JOIN|UPDATE|,) (\w+)(?: AS (\w+))?\b(?!\.)", statement)
    tables = [alias or name for name, alias in used if name in NAMES]
    given = re.findall(r"(\w+)\.space_no (?:= (?:ANY\()?|IN \()%\(", statement)
    same = re.findall(r"(\w+)\.space_no = (\w+)\.space_no", statement)
    known = {*given}
    for _ in same:
        known |= {it for pair in same if known & {*pair} for it in pair}
    return any(table not in known for table in tables)


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is sent to any database within the block."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(" ".join(statement.split()))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@pytest.fixture
def marked(store_database: str) -> str:
    """A database whose store believes to be distributed."""
    with psycopg.connect(store_database, autocommit=True) as connection:
        connection.execute("INSERT INTO meta VALUES (%s, 'space_no')", [DISTRIBUTED])
    return store_database


async def test_hot_statements_name_their_spaces(marked: str) -> None:
    """Adding, finding, reading, changing and deleting, the work of jobs: all go to few servers."""
    clock, talk = FakeClock(NOW), "u1"
    async with AsyncMemory(
        database_url=marked, embedder=HashingEmbedder(), llm=None, clock=clock
    ) as memory:
        await memory.health()
        with statements() as sent:
            said = await memory.add("I moved to Rome. 我不吃辣。", talk, session_id="s1")
            await memory.add("I moved to Oslo.", talk, session_id="s1")
            await memory.ingest([{"role": "user", "content": "hotpot 火锅"}], talk, session_id="s1")
            await memory.run_jobs()
            hits = await memory.search("辣 Rome", user_id=talk)
            in_session = await memory.search("hotpot", user_id=talk, session_id="s1")
            notes = await memory.get_all(talk)
            note_id = notes.items[0].row.id
            await memory.get(note_id, user_id=talk)
            await memory.messages(talk)
            await memory.context(user_id=talk, session_id="s1")
            await memory.update(note_id, "User lives in Oslo now", user_id=talk)
            await memory.delete(note_id, user_id=talk)
            await memory.end_session("s1", user_id=talk)
            await memory.delete_all(talk)
            await memory.run_jobs()
    assert said.message_ids and hits.items and in_session.items
    spread = {it for it in sent if fans_out(it)}
    assert {it for it in spread if not it.startswith(tuple(OF_OPERATORS))} == set()


def test_a_statement_without_a_space_is_noticed() -> None:
    """The test above would see one."""
    assert fans_out("SELECT note.id FROM note WHERE note.note_id = %(a)s::VARCHAR")
    assert fans_out("SELECT 1 FROM space JOIN note ON note.space_no = space.space_no")
    assert not fans_out("DELETE FROM note WHERE note.space_no = %(a)s::BIGINT AND note.id = 1")
    assert not fans_out("SELECT agent.agent_id FROM agent")


def test_without_citus_nothing_is_created(fresh_database: Callable[[], str]) -> None:
    """Neither tables nor an extension."""
    url = fresh_database()
    held = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    installed = "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"
    with psycopg.connect(url, autocommit=True) as connection:
        before = [connection.execute(it).fetchone() for it in (held, installed)]
        with pytest.raises(InvalidArgument, match="no Citus: install it on every server"):
            admin.distribute(url, 32)
        assert [connection.execute(it).fetchone() for it in (held, installed)] == before


def test_tables_are_distributed_once(store_database: str) -> None:
    """References first, then all tables of spaces beside each other."""
    with pytest.raises(InvalidArgument, match="no Citus: install it on every server"):
        admin.distribute(store_database, 32)
    with psycopg.connect(store_database, autocommit=True) as connection:
        connection.execute(DOUBLE)
        done = admin.distribute(store_database, 8)
        assert done.is_new and not admin.distribute(store_database, 8).is_new
        asked = connection.execute("SELECT what, shards, beside FROM asked ORDER BY number")
        references, first, *others = [
            *([name for name, *_ in asked.fetchmany(len(REFERENCES))],),
            *asked.fetchall(),
        ]
    assert references == [it.name for it in REFERENCES]
    assert first == (f"{NAMES[0]}.space_no", 8, "none")
    assert others == [(f"{name}.space_no", None, NAMES[0]) for name in NAMES[1:]]


def test_a_store_with_rows_is_not_distributed(store_database: str) -> None:
    """It is moved into one that is."""
    with psycopg.connect(store_database, autocommit=True) as connection:
        connection.execute(DOUBLE)
        connection.execute("INSERT INTO journal VALUES ('k', 'l', 1, '', '{}')")
        with pytest.raises(Conflict, match="rows of journal; distribute an empty one"):
            admin.distribute(store_database, 8)
        assert connection.execute("SELECT count(*) FROM asked").fetchone() == (0,)


if CITUS:

    class TestCitus(StoreConformance):
        examples = EXAMPLES_ON_POSTGRES

        async def open_store(self) -> Store:
            admin.distribute(str(CITUS), 8)
            store = SqlStore(Postgres(make_url(str(CITUS))), cache_bytes=1 << 20)
            await store.replace((), "empty")
            return store

else:

    @pytest.mark.skip(reason=f"{NOT_RUN}: KEMEM_TEST_CITUS_URL names no coordinator of Citus")
    def test_a_store_on_citus() -> None:
        """The conformance suite, were there one."""
