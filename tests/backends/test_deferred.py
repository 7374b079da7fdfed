"""Changes that PostgreSQL is sent as one statement, and statements that it plans each time."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from kemem.store import tally
from kemem.store.database import insert, planned_for
from kemem.store.pipeline import DISTRIBUTED, defer
from kemem.store.postgres import Postgres
from kemem.store.schema import journal, meta
from tests.fixtures import drop_databases, new_database

VALUES = sa.select(meta.c.value).where(meta.c.key == "deferred")
put = sa.insert(meta).values(key="deferred", value=sa.bindparam("value"))
change = sa.update(meta).where(meta.c.key == "deferred").values(value=sa.bindparam("value"))


@pytest.fixture(scope="module")
def postgres_store(postgres: str, store_template: str) -> Iterator[Postgres]:
    """A database for all tests of this module."""
    url = new_database(postgres, store_template)
    database = Postgres(make_url(url))
    database.open()
    yield database
    database.close()
    drop_databases(postgres, [url])


@pytest.fixture(autouse=True)
def without_rows(postgres_store: Postgres) -> None:
    """What an earlier test left is gone."""

    def remove(connection: sa.Connection) -> None:
        connection.execute(sa.delete(meta).where(meta.c.key == "deferred"))
        connection.execute(sa.delete(journal))
        connection.execute(sa.delete(tally.table))

    postgres_store.write(remove).result()


def statements(connection: sa.Connection) -> list[str]:
    """The statements that a connection is sent from now on."""
    sent: list[str] = []

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    sa.event.listen(connection, "before_cursor_execute", note)
    return sent


def test_changes_of_several_tables_are_one_statement(postgres_store: Postgres) -> None:
    def write(connection: sa.Connection) -> tuple[list[str], str]:
        sent = statements(connection)
        defer(connection, meta, put, {"value": "1"})
        tally.add(connection, {"message": 3, "vector": 2})
        assert sent == []  # nothing yet
        read = connection.execute(VALUES).scalar_one()  # what reads sees what was changed before
        return sent, read

    (together, read, _commit), value = postgres_store.write(write).result()
    assert value == "1"
    assert "INTO meta" in together and "INTO tally" in together and "SELECT" in read
    with postgres_store.reading() as connection:
        assert tally.totals(connection) == {"message": 3, "vector": 2}


def test_a_table_that_changes_twice_changes_in_that_order(postgres_store: Postgres) -> None:
    def write(connection: sa.Connection) -> int:
        sent = statements(connection)
        defer(connection, meta, put, {"value": "1"})
        defer(connection, meta, change, {"value": "2"})
        defer(connection, meta, change, {"value": "3"})
        return len(sent)

    assert postgres_store.write(write).result() == 2  # the last one comes with the COMMIT
    with postgres_store.reading() as connection:
        assert connection.execute(VALUES).scalar_one() == "3"


def test_distributed_tables_are_changed_one_by_one(postgres_store: Postgres) -> None:
    """A statement leads to one server."""

    def write(connection: sa.Connection) -> list[str]:
        connection.execution_options(**{DISTRIBUTED: True})
        sent = statements(connection)
        defer(connection, meta, put, {"value": "1"})
        tally.add(connection, {"message": 3})
        connection.execute(VALUES)
        return sent

    first, second, *_ = postgres_store.write(write).result()
    assert first.startswith("INSERT INTO meta") and second.startswith("INSERT INTO tally")


def test_what_was_deferred_is_taken_back_with_its_transaction(postgres_store: Postgres) -> None:
    def fail(connection: sa.Connection) -> None:
        defer(connection, meta, put, {"value": "1"})
        raise LookupError

    for _ in range(20):  # whichever connection is taken next
        with pytest.raises(LookupError):
            postgres_store.write(fail).result()
        postgres_store.write(lambda connection: None).result()
    with postgres_store.reading() as connection:
        assert connection.execute(VALUES).first() is None


def test_a_deferred_change_that_fails_fails_the_write(postgres_store: Postgres) -> None:
    postgres_store.write(lambda it: defer(it, meta, put, {"value": "1"})).result()
    with pytest.raises(sa.exc.IntegrityError):
        postgres_store.write(lambda it: defer(it, meta, put, {"value": "2"})).result()
    with postgres_store.reading() as connection:
        assert connection.execute(VALUES).scalar_one() == "1"


TEXTS = st.text(st.sampled_from('a"\\{},NUL \n%(é火')).filter(lambda it: "\0" not in it)


@settings(max_examples=30, deadline=None)
@given(
    bodies=st.lists(TEXTS, min_size=1, max_size=5),
    times=st.lists(st.integers(-(2**62), 2**62), min_size=5, max_size=5),
)
def test_rows_come_back_as_they_were_sent(
    postgres_store: Postgres, bodies: list[str], times: list[int]
) -> None:
    """One or many, with columns of one value or several."""
    rows = [
        {"kind": "k", "line_id": str(at), "create_time": times[at], "user_id": "", "body": body}
        for at, body in enumerate(bodies)
    ]

    def write(connection: sa.Connection) -> list[dict[str, Any]]:
        connection.execute(sa.delete(journal))
        insert(connection, journal, {name: [it[name] for it in rows] for name in rows[0]})
        stored = connection.execute(sa.select(journal).order_by(journal.c.line_id))
        return [dict(it._mapping) for it in stored]

    assert postgres_store.write(write).result() == rows


@pytest.mark.parametrize(("count", "kept"), [(10, True), (100, False)])
def test_a_long_list_gets_a_plan_of_its_own(
    postgres_store: Postgres, count: int, kept: bool
) -> None:
    """A plan for any list compares each row with each value."""
    listed: Any = sa.select(sa.literal_column(f"{count} AS listed"))
    listed = listed.where(meta.c.value == sa.any_(sa.bindparam("values")))
    values = [str(it) for it in range(count)]

    def ask(connection: sa.Connection) -> bool:
        for _ in range(12):
            options = planned_for(values)
            connection.execute(listed, {"values": values}, execution_options=options).all()
        plans = sa.text("SELECT statement FROM pg_prepared_statements")
        return any(f"{count} AS listed" in it for it in connection.execute(plans).scalars())

    assert postgres_store.write(ask).result() is kept
