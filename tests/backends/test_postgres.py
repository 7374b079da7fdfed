"""The store on PostgreSQL keeps every promise of the suite."""

from collections.abc import Callable

import pytest
from sqlalchemy.engine import make_url

from kemem.backends.sql.postgres import Postgres
from kemem.backends.sql.store import SqlStore
from kemem.ports import Store
from kemem.testing.conformance import StoreConformance


class TestPostgres(StoreConformance):
    examples = 10  # each empties a real server; the same laws run longer on the other stores

    @pytest.fixture(autouse=True)
    def database(self, fresh_database: Callable[[], str]) -> None:
        self.create = fresh_database

    async def open_store(self) -> Store:
        return SqlStore(Postgres(make_url(self.create())), cache_bytes=1 << 20)
