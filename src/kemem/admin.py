"""What operators do with a whole database: move it to another one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from kemem.errors import InvalidArgument, NotFound
from kemem.store.database import Database
from kemem.store.move import Move
from kemem.store.move import Pass as Pass
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite


@dataclass(frozen=True, slots=True)
class Moved:
    """A store that is somewhere else now."""

    place: str  # without a password
    rows: dict[str, int]  # by table
    seconds: float  # for which writers waited


def move(
    source: str, destination: str, report: Callable[[Pass], None], confirm: Callable[[], None]
) -> Moved:
    """Copy a store, catch up with its writers, verify, and close it to them.

    Each is a directory or a URL of PostgreSQL. `confirm` is called before the store is closed; if
    it raises, all stays as it is, and another call goes on from there.
    """
    with _opened(source, "from") as old, _opened(destination, "to") as new:
        place, work = _shown(destination), Move(old, new)
        if work.is_done:
            return Moved(place, work.sizes(), 0.0)
        work.catch_up(report)
        confirm()
        work.catch_up(report)  # with what was written while somebody decided
        done, sizes = work.switch(place)
        return Moved(place, sizes, done.seconds)


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
    return make_url(place).set(query={}).render_as_string(hide_password=True)
