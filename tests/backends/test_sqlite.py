"""The store on SQLite keeps every promise of the suite."""

from pathlib import Path

import pytest

from kemem.ports import Store
from kemem.store.sqlite import Sqlite
from kemem.store.store import SqlStore
from kemem_conformance import StoreConformance
from tests.fixtures import EXAMPLES


class TestSqlite(StoreConformance):
    examples = EXAMPLES

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path

    async def open_store(self) -> Store:
        return SqlStore(Sqlite(self.path), cache_bytes=1 << 20)
