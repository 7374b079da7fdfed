"""KeMem on a PostgreSQL server that runs for the benchmark only."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, create_engine, make_url, text

from bench.systems import Stores, versions
from bench.systems.kemem import KeMemStore, TableEmbedder
from bench.vectors import VectorTable
from kemem import Memory
from kemem.testing.postgres import running_postgres


@contextmanager
def postgres_stores(table: VectorTable) -> Iterator[Stores]:
    """A server of its own, with one database for each store."""
    embedder = TableEmbedder(table)
    with running_postgres() as address:
        server = make_url(address).set(drivername="postgresql+psycopg")

        def open_store(name: str) -> KeMemStore:
            create_database(server, name)
            url = server.set(database=name).render_as_string(hide_password=False)
            return KeMemStore(Memory(database_url=url, embedder=embedder))

        facts = server_facts(server)
        if facts["fsync"] != "on":
            raise RuntimeError("the server runs with fsync off, so its adds are not durable")
        yield Stores(open_store, facts | versions("psycopg", "SQLAlchemy", "numpy"))


def create_database(server: URL, name: str) -> None:
    """Creates the database unless it is there."""
    known = text("SELECT count(*) FROM pg_database WHERE datname = :name")
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if not connection.execute(known, {"name": name}).scalar_one():
            connection.execute(text(f'CREATE DATABASE "{name}"'))
    engine.dispose()


def server_facts(server: URL) -> dict[str, str]:
    """The server's version, and the settings without which an add is not durable."""
    engine = create_engine(server)
    with engine.connect() as connection:
        facts = {
            name: str(connection.execute(text(f"SHOW {setting}")).scalar_one())
            for name, setting in (
                ("PostgreSQL", "server_version"),
                ("fsync", "fsync"),
                ("synchronous_commit", "synchronous_commit"),
            )
        }
    engine.dispose()
    return facts
