"""The two databases that a store can be on."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from kemem.store.database import Database
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite
from tests.empty_store import open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database without any data, not opened yet."""
    if request.param == "sqlite":
        return Sqlite(tmp_path)
    return Postgres(make_url(request.getfixturevalue("store_database")))


@pytest.fixture
def no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores make their tables themselves."""
    monkeypatch.setattr(Sqlite, "open", open_store)
