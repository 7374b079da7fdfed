"""The store on PostgreSQL keeps every promise of the suite."""

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy.engine import make_url

from kemem.ports import Store
from kemem.store.postgres import Postgres
from kemem.store.store import SqlStore
from kemem_conformance import StoreConformance
from tests.fixtures import new_database

TO_EMPTY = """
    SELECT 'TRUNCATE ' || string_agg(quote_ident(tablename), ', ') || ' RESTART IDENTITY'
    FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'meta'
"""


def emptied(url: str) -> str:
    """The database of an earlier test, as it was before: making one takes thrice as long."""
    with psycopg.connect(url, autocommit=True) as connection:
        for (statement,) in connection.execute(TO_EMPTY).fetchall():
            connection.execute(statement)
    return url


@pytest.fixture(scope="module")
def spare() -> list[str]:
    """Databases of earlier tests."""
    return []


class TestPostgres(StoreConformance):
    examples = 6  # each empties a real server; the same laws run longer on the other stores

    @pytest.fixture(autouse=True)
    def databases(self, postgres: str, spare: list[str]) -> Iterator[None]:
        taken: list[str] = []

        def take() -> str:
            taken.append(emptied(spare.pop()) if spare else new_database(postgres))
            return taken[-1]

        self.take = take
        yield
        spare += taken

    async def open_store(self) -> Store:
        return SqlStore(Postgres(make_url(self.take())), cache_bytes=1 << 20)
