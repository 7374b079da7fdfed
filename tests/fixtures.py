"""What tests share: a real PostgreSQL and a real server, started on first use."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from secrets import token_hex

import httpx
import hypothesis
import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from kemem.serve.telemetry.seldom import seldom
from kemem.settings import Settings, load
from kemem.store.postgres import Postgres
from kemem.testing.postgres import running_postgres
from tests.chats import Stage, staged
from tests.empty_store import share_empty_store
from tests.server import Server, running_server
from tests.warm import share_certificates

# Examples of laws of stores, which take longer than others; on PostgreSQL only the dialect of SQL
# differs. KEMEM_TEST_EXAMPLES says another number for all laws.
_EXAMPLES = int(os.environ.get("KEMEM_TEST_EXAMPLES", "0"))
EXAMPLES = _EXAMPLES or 10
EXAMPLES_ON_POSTGRES = _EXAMPLES or 5

share_certificates()
share_empty_store()
hypothesis.settings.register_profile(
    "kemem",
    max_examples=_EXAMPLES or 30,
    deadline=None,  # a busy machine is no failure
)
hypothesis.settings.load_profile("kemem")


@pytest.fixture(autouse=True)
def warnings_of_one_test() -> None:
    """What one test has logged is not held back in another."""
    seldom._logged.clear()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server with pgvector."""
    with running_postgres() as url:
        ease_password(url)
        yield url


def ease_password(url: str) -> None:
    """Let the server check the password of a URL fast: else that is most of each connection."""
    user, password = make_url(url).username, make_url(url).password
    assert user and password
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET scram_iterations = 1")
        alter = sql.SQL("ALTER USER {} PASSWORD {}")
        connection.execute(alter.format(sql.Identifier(user), sql.Literal(password)))


@pytest.fixture
def fresh_database(postgres: str) -> Iterator[Callable[[], str]]:
    """Makes empty databases; returns their URLs."""
    made: list[str] = []

    def create() -> str:
        made.append(new_database(postgres))
        return made[-1]

    yield create
    drop_databases(postgres, made)


@pytest.fixture(scope="session")
def store_template(postgres: str) -> str:
    """The name of a database with the tables of a store, which are copied faster than made."""
    url = new_database(postgres)
    database = Postgres(make_url(url))
    database.open()
    database.close()
    return database_name(url)


@pytest.fixture
def store_database(postgres: str, store_template: str) -> Iterator[str]:
    """The URL of a database with an empty store."""
    url = new_database(postgres, store_template)
    yield url
    drop_databases(postgres, [url])


def new_database(postgres: str, template: str = "template1") -> str:
    """The URL of a new database on a server."""
    name = f"kemem_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    return postgres.rpartition("/")[0] + f"/{name}"


def drop_databases(postgres: str, urls: Iterable[str]) -> None:
    """Remove databases from a server, whoever uses them."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        for url in urls:
            connection.execute(f'DROP DATABASE "{database_name(url)}" WITH (FORCE)')


def database_name(url: str) -> str:
    """The name of a database, from its URL."""
    return url.rpartition("/")[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def either_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of an empty store by words and rules: once on each database."""
    options = {"embedder": "none", "llm": "none"}
    if request.param == "sqlite":
        return load(data_dir=tmp_path, **options)
    return load(database_url=request.getfixturevalue("store_database"), **options)


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


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A chat for all tests of a module; each has a user of its own."""
    async with staged(tmp_path_factory.mktemp("chat")) as opened:
        yield opened


@pytest.fixture
def user() -> str:
    """Somebody whom no other test knows."""
    return f"u_{token_hex(6)}"
