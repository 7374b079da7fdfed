"""A standby of a PostgreSQL, which follows it: for reads that may be a second old."""

import logging
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from threading import Event, Lock, Thread

import sqlalchemy as sa

from kemem.errors import Unavailable
from kemem.store.migrate import read_meta
from kemem.store.pipeline import transaction
from kemem.store.postgres import READ, create_engine, engine_of, shown_host, unreachable
from kemem.store.schema import meta

log = logging.getLogger("kemem")

_OLDEST = 1.0  # seconds that what is read may be behind the primary
_INTERVAL = 0.2  # between two comparisons
_PAUSE = 0.02  # until a standby is looked at again that is behind
_MARKS = 10_000  # users that are remembered, at least
_PATIENCE = 5.0  # seconds that who asks how far behind a standby is waits for it

# Every transaction before the first of these numbers has ended, and none after the second has.
_snapshot = sa.func.pg_current_snapshot()
_ended = sa.select(sa.cast(sa.func.pg_snapshot_xmin(_snapshot), sa.Text))
_begun = sa.select(sa.cast(sa.func.pg_snapshot_xmax(_snapshot), sa.Text))
_is_standby = sa.select(sa.func.pg_is_in_recovery())
# The age of the last commit that a standby has; NULL where it does not say.
_age = sa.extract("epoch", sa.func.clock_timestamp() - sa.func.pg_last_xact_replay_timestamp())
_behind = sa.select(sa.cast(_age, sa.Float))
_OTHER_STORE = "it has another store; name a standby of the primary"


class Replica:
    """Reads of users from a standby, once it has what was committed when they were last written.

    A thread compares it with the primary; where it is behind or down, nobody reads from it.
    """

    def __init__(self, primary: sa.URL, url: sa.URL, connections: int, timeout: float) -> None:
        self._url = url
        self._engine = engine_of(url, connections, timeout)
        self._compared = [*map(_plain_engine, (primary, url))]
        self._current_at = float("-inf")  # it has all that was committed by then
        self._is_trusted = True
        self._written: dict[str, float] = {}  # users, and when
        self._all_written = time.monotonic()
        self._lock, self._closing = Lock(), Event()
        self._thread = Thread(target=self._follow, name="kemem-replica", daemon=True)
        self._thread.start()

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """A connection for reads."""
        return transaction(self._engine, READ)

    def has(self, users: Iterable[str]) -> bool:
        """Whether all that was committed when these users were last written can be read."""
        written = [self._written.get(it, self._all_written) for it in users]
        return self._current_at > max(time.monotonic() - _OLDEST, self._all_written, *written)

    def mark_written(self, users: Iterable[str] | None) -> None:
        """Read what users have, or all if None, only where it is as it is now."""
        now = time.monotonic()
        with self._lock:
            if users is None:
                self._all_written = now
                return
            self._written |= dict.fromkeys(users, now)
            if len(self._written) > _MARKS:
                kept = self._written.items()
                self._written = {it: at for it, at in kept if at >= self._current_at}

    def distrust(self, error: sa.exc.DBAPIError | Unavailable) -> None:
        """Read from the primary until the next comparison."""
        self._current_at = float("-inf")
        if self._is_trusted:
            self._is_trusted = False
            reason = _plain_error(self._url, error).message
            log.warning("the replica at %s is not read from: %s", shown_host(self._url), reason)

    def close(self) -> None:
        """Disconnect."""
        self._closing.set()
        self._thread.join()
        self._engine.dispose()

    def _follow(self) -> None:
        first, second = self._compared
        while not self._closing.is_set():
            try:
                with first.connect() as primary, second.connect() as standby:
                    self._compare(primary, standby)
            except sa.exc.DBAPIError as error:
                self.distrust(error)
            self._closing.wait(_INTERVAL)

    def _compare(self, primary: sa.Connection, standby: sa.Connection) -> None:
        if not _is_copy(primary, standby):
            self.distrust(Unavailable(_OTHER_STORE))
            return
        while not self._closing.wait(_INTERVAL):
            now, begun = time.monotonic(), int(primary.execute(_begun).scalar_one())
            while int(standby.execute(_ended).scalar_one()) < begun:
                if self._closing.wait(_PAUSE):
                    return
            self._current_at, self._is_trusted = now, True


def measure_delay(primary: sa.URL, url: sa.URL, patience: float = _PATIENCE) -> float:
    """Seconds until a standby has what a primary has now; Unavailable if it is not read from.

    A primary that cannot be reached is said to be so, too.
    """
    at = primary
    try:
        with _plain_engine(primary).connect() as first:
            at = url
            with _plain_engine(url).connect() as standby:
                return _measure_delay(first, standby, patience)
    except sa.exc.DBAPIError as error:
        raise _plain_error(at, error) from None


def _plain_error(url: sa.URL, error: sa.exc.DBAPIError | Unavailable) -> Unavailable:
    """Why a server is not read from, without the driver's text and its SQL."""
    if isinstance(error, Unavailable):
        return error
    state = getattr(error.orig, "sqlstate", None)
    if state is None or state.startswith("57P"):  # it is shut down, or has just come up
        return unreachable(url, error)
    return Unavailable(f"the replica refused (SQLSTATE {state})")


def _measure_delay(primary: sa.Connection, standby: sa.Connection, patience: float) -> float:
    if not _is_copy(primary, standby):
        raise Unavailable(_OTHER_STORE)
    if not standby.execute(_is_standby).scalar_one():
        raise Unavailable("it is no standby, and follows nobody; name a standby of the primary")
    started, begun = time.monotonic(), int(primary.execute(_begun).scalar_one())
    while int(standby.execute(_ended).scalar_one()) < begun:
        if time.monotonic() - started > patience:
            waited, age = f"{patience:g}", standby.execute(_behind).scalar_one()
            last = "" if age is None else f"; its last commit is {age:.0f} seconds old"
            raise Unavailable(f"it lacks what began {waited} seconds ago{last}")
        time.sleep(_PAUSE)
    return time.monotonic() - started


def _plain_engine(url: sa.URL) -> sa.Engine:
    return create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")


def _is_copy(primary: sa.Connection, standby: sa.Connection) -> bool:
    """Whether a standby has the store that a primary has."""
    if not sa.inspect(standby).has_table(meta.name):
        return False
    return read_meta(primary)["secret"] == read_meta(standby).get("secret")
