"""The store on PostgreSQL keeps every promise of the suite."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from kemem.ports import Store
from kemem.store.postgres import Postgres
from kemem.store.store import SqlStore
from kemem_conformance import StoreConformance
from tests.fixtures import EXAMPLES_ON_POSTGRES, new_database

# Not TRUNCATE, which makes new files for each table and index; in any order of the tables.
TO_EMPTY = sa.text("""
    SELECT 'SET LOCAL session_replication_role = replica; '
        || (SELECT string_agg(format('DELETE FROM %I;', tablename), ' ') FROM pg_tables
            WHERE schemaname = 'public' AND tablename <> 'meta')
        || coalesce((SELECT string_agg(format('SELECT setval(%L, 1, false);', sequencename), ' ')
            FROM pg_sequences WHERE schemaname = 'public'), '')
""")


class Reused(Postgres):
    """One that is opened once: connections and compiled statements outlive the stores on it."""

    def __init__(self, url: sa.URL) -> None:
        super().__init__(url)
        super().open()
        with self._plain.begin() as connection:
            self._to_empty = connection.execute(TO_EMPTY).scalar_one()

    def open(self, *, moving: bool = False) -> None:
        """Remove what an earlier test left."""
        with self._plain.begin() as connection:
            connection.exec_driver_sql(self._to_empty)

    def close(self) -> None:
        """Nothing: the next test goes on."""

    def end(self) -> None:
        super().close()


@pytest.fixture(scope="module")
def reused(postgres: str) -> Iterator[Reused]:
    """A database for all tests of this module."""
    database = Reused(make_url(new_database(postgres)))
    yield database
    database.end()


class TestPostgres(StoreConformance):
    examples = EXAMPLES_ON_POSTGRES

    @pytest.fixture(autouse=True)
    def database(self, reused: Reused) -> None:
        self.reused = reused

    async def open_store(self) -> Store:
        return SqlStore(self.reused, cache_bytes=1 << 20)
