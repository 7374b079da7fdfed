"""What tests share: a real PostgreSQL and a real server, started on first use."""

import gc
import uuid
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest

from kemem.testing.postgres import running_postgres
from tests.server import Server, running_server
from tests.warm import share_certificates

share_certificates()
NOT_RUN = "browser tests were NOT RUN"


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


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: what looks for garbage need not look through them."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly, after everything else, that browser tests were left out."""
    left_out = [
        report
        for report in terminalreporter.getreports("skipped")
        if NOT_RUN in report.longreprtext
    ]
    if left_out:
        reason = left_out[0].longreprtext.partition(NOT_RUN)[2].removesuffix("')")
        terminalreporter.section("browser tests", sep="!", red=True)
        terminalreporter.line(f"{len(left_out)} {NOT_RUN}{reason}", red=True)
