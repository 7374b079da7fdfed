"""The two databases that a store can be on."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from kemem.store.database import Database
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database without any data, not opened yet."""
    if request.param == "sqlite":
        return Sqlite(tmp_path)
    return Postgres(make_url(request.getfixturevalue("store_database")))
