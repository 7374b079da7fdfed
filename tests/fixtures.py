"""What tests share: a real PostgreSQL and a real server, started on first use."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from kemem.settings import Settings, load
from kemem.testing.postgres import running_postgres
from tests.server import Server, running_server
from tests.warm import share_certificates

share_certificates()


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
        made.append(new_database(postgres))
        return made[-1]

    yield create
    with psycopg.connect(postgres, autocommit=True) as connection:
        for url in made:
            connection.execute(f'DROP DATABASE "{url.rpartition("/")[2]}" WITH (FORCE)')


def new_database(postgres: str) -> str:
    """The URL of an empty database on a server."""
    name = f"kemem_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return postgres.rpartition("/")[0] + f"/{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def either_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of an empty store by words and rules: once on each database."""
    options = {"embedder": "none", "llm": "none"}
    if request.param == "sqlite":
        return load(data_dir=tmp_path, **options)
    return load(database_url=request.getfixturevalue("fresh_database")(), **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server process of this module's own, by words only; a module may define another."""
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """A client of the server, without any credential."""
    with server.client() as connected:
        yield connected
