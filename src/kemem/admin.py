"""What operators do with a whole database: move it, spread it over several, index its vectors."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.settings import shown_url
from kemem.store import hnsw
from kemem.store.database import Database, driver_errors
from kemem.store.distribute import LOCAL, REFERENCES, SHARDED, check_citus
from kemem.store.distribute import distribute as distribute_tables
from kemem.store.hnsw import IndexState as IndexState
from kemem.store.hnsw import VectorIndex as VectorIndex
from kemem.store.move import Move
from kemem.store.move import Pass as Pass
from kemem.store.move import Progress as Progress
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite


@dataclass(frozen=True, slots=True)
class Moved:
    """A store that is somewhere else now."""

    place: str  # without a password
    rows: dict[str, int]  # by table
    seconds: float  # for which writers waited


def move(
    source: str,
    destination: str,
    report: Callable[[Pass | Progress], None],
    confirm: Callable[[], None],
) -> Moved:
    """Copy a store, catch up with its writers, verify, and close it to them.

    Each is a directory or a URL of PostgreSQL. `report` gets every pass over the store, and during
    a long one every few seconds how far it is. `confirm` is called before the store is closed; if
    it raises, all stays as it is, and another call goes on from there.
    """
    place = _shown(destination)
    command = shlex.join(["kemem", "move", "--from", _shown(source), "--to", place])
    with (
        _opened(source, "from") as old,
        _opened(destination, "to") as new,
        driver_errors(new),
        new.filling() as check,
    ):
        work = Move(old, new, command, check)
        if work.is_done:
            return Moved(place, work.sizes(), 0.0)
        with _goes_on():
            work.catch_up(report)
            confirm()
            work.catch_up(report)  # with what was written while somebody decided
            seconds = work.switch(place)
            return Moved(place, work.sizes(), seconds)


@contextmanager
def _goes_on() -> Iterator[None]:
    """Say of what ends a move, as a restart of PostgreSQL does, that another one goes on."""
    try:
        yield
    except Unavailable as error:
        if "table" in error.details:  # of a copy that another move would find as it is
            raise
        reason = error.message.removesuffix("; nothing was written")
        raise Unavailable(f"{reason}; run kemem move again, it goes on from there") from None


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where the tables of a distributed store are."""

    sharded: tuple[str, ...]  # by the number of a space
    references: tuple[str, ...]  # on every server
    local: tuple[str, ...]  # on the coordinator
    is_new: bool


def distribute(url: str, shards: int) -> Distribution:
    """Spread an empty store over the servers of Citus; once more changes nothing."""
    with driver_errors(_postgres(url)):
        check_citus(make_url(url))
    with _opened_postgres(url) as database:
        is_new = database.write(lambda it: distribute_tables(it, shards), alone=True).result()
    sharded, references, local = (
        tuple(it.name for it in group) for group in (SHARDED, REFERENCES, LOCAL)
    )
    return Distribution(sharded, references, local, is_new)


def index_vectors(url: str, memory_mb: int) -> list[VectorIndex]:
    """Build HNSW indexes of pgvector for large spaces; once more, only where many rows came."""
    with _opened_postgres(url) as database:
        return database.index_vectors(memory_mb)


def index_state(url: str) -> IndexState:
    """Which large spaces have such an index."""
    with _opened_postgres(url) as database, database.reading() as connection:
        return hnsw.state(connection)


def _postgres(url: str) -> Postgres:
    database = _database(url, "database-url")
    if not isinstance(database, Postgres):
        raise InvalidArgument("--database-url must begin with postgresql://", field="database_url")
    return database


@contextmanager
def _opened_postgres(url: str) -> Iterator[Postgres]:
    database = _postgres(url)
    database.open()
    with closing(database), driver_errors(database):
        yield database


@contextmanager
def _opened(place: str, field: str) -> Iterator[Database]:
    database = _database(place, field)
    if isinstance(database, Sqlite) and field == "from" and not database.path.exists():
        raise NotFound(f"there is no store in {place!r:.200}")
    database.open(moving=True)
    try:
        yield database
    finally:
        database.close()


def _database(place: str, field: str) -> Database:
    if "://" not in place:
        return Sqlite(Path(place).expanduser())
    try:
        url = make_url(place)
    except ArgumentError:
        raise InvalidArgument(f"--{field} is not a URL", field=field) from None
    if url.get_backend_name() != "postgresql":
        form = "a directory or begin with postgresql://"
        raise InvalidArgument(f"--{field} must be {form}, not {url.drivername}://", field=field)
    return Postgres(url)


def _shown(place: str) -> str:
    """A place without what is secret in it."""
    if "://" not in place:
        return str(Path(place).expanduser().absolute())
    return shown_url(place)
