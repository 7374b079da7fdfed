"""The lock of whoever fills a store from another one; it goes with the process that has it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa

from kemem.errors import Conflict

_FILLED = "another kemem move is filling the destination; wait until it is done"
_HELD = sa.select(sa.true())


@contextmanager
def lock_file(path: Path) -> Iterator[Callable[[], None]]:
    """A lock as SQLite has it, in a file of its own; the file stays where the block fails."""
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    with closing(lock):
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            raise Conflict(_FILLED) from None
        yield lambda: None
    # Whoever opened it before it went finds the store filled.
    path.unlink(missing_ok=True)


@contextmanager
def lock_session(engine: sa.Engine, key: int) -> Iterator[Callable[[], None]]:
    """An advisory lock of PostgreSQL; what is yielded raises once a restart has taken it."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(key))):
            raise Conflict(_FILLED)
        yield lambda: connection.execute(_HELD).close()
