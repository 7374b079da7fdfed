"""What tests share: one real PostgreSQL, started on first use."""

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest

from kemem.testing.postgres import running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server with pgvector."""
    with running_postgres() as url:
        yield url


@pytest.fixture
def fresh_database(postgres: str) -> Iterator[Callable[[], str]]:
    """Makes empty databases; returns their URLs."""
    made: list[str] = []

    def create() -> str:
        name = f"kemem_{uuid.uuid4().hex}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        made.append(name)
        return postgres.rsplit("/", 1)[0] + f"/{name}"

    yield create
    with psycopg.connect(postgres, autocommit=True) as connection:
        for name in made:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
