"""SQLite: the embedded default. One file, one writer thread that groups commits."""

import logging
import os
import queue
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.util import LRUCache

from kemem.errors import KeMemError, Unavailable
from kemem.records import Matrix
from kemem.store.database import IndexedText, Joined, Lookup, Values, load_json
from kemem.store.filling import lock_file
from kemem.store.index import rebuild_words
from kemem.store.migrate import bring_up_to_date, read_meta, write_meta
from kemem.store.schema import SEQ_BITS, dump_json, metadata
from kemem.store.sqlite_errors import explain
from kemem.store.wal import truncate_log

FILE = "kemem.db"
_FILLING = "kemem.move"  # is locked while a move fills the store
APPLICATION_ID = 0x6B656D65  # "keme": tells our files from those of other programs
_GROUP = 128  # writes that may share a commit
_READERS = 4
_COMPILED = 1000  # statements that stay compiled; the tests come to some 300
_SEQ = (1 << SEQ_BITS) - 1  # the bits of a row's number that count within its space

T = TypeVar("T")

_words = sa.table("row_words", *map(sa.column, ("rowid", "body", "row_words", "rank")))
# Rows of an index, then how many share its first column, its first two, and so on. Without them
# SQLite takes a space for ten rows and reads all of it instead of looking up ids. What we expect is
# in statistics.tsv; the index of a primary key has the name of its table.
_statistics = sa.table("sqlite_stat1", *map(sa.column, ("tbl", "idx", "stat")))
_json = sa.func.json_each(sa.bindparam("lookups", type_=sa.Text)).table_valued("key", "value")
# Materialized: SQLite would else parse the JSON again for every row that a phrase finds.
_lookups = (
    sa.select(
        _json.c.key.label("key"),
        sa.func.json_extract(_json.c.value, "$[0]").label("phrase"),
        sa.func.json_extract(_json.c.value, "$[1]").label("first"),
        sa.func.json_extract(_json.c.value, "$[2]").label("last"),
    )
    .cte("lookups")
    .prefix_with("MATERIALIZED")
)
_holding = (
    sa.select(Joined(_words.c.rowid.op("&")(_SEQ)))
    .where(
        _words.c.row_words.op("MATCH")(_lookups.c.phrase),
        _words.c.rowid.between(_lookups.c.first, _lookups.c.last),
    )
    .correlate(_lookups)
)
_phrase_query = sa.select(_lookups.c.key, _holding.scalar_subquery())
# Tokens come from kemem.text.segment; "ascii" leaves every non-ASCII character as it is.
_CREATE_WORDS = sa.text(
    "CREATE VIRTUAL TABLE row_words USING fts5("
    "body, content='', columnsize=0, tokenize=\"ascii tokenchars '+#'\")"
)


def _command(name: str, **values: Any) -> sa.Insert:
    """What FTS5 takes as a row: a command in the column that has the table's name."""
    return sa.insert(_words).values(row_words=sa.literal(name), **values)


_text: dict[str, Any] = {"rowid": sa.bindparam("id"), "body": sa.bindparam("text")}
_add, _remove = sa.insert(_words).values(_text), _command("delete", **_text)
# FTS5 can erase removed words at once since SQLite 3.42.
_SEAL = "CREATE TRIGGER %(name)s BEFORE %(event)s ON %(on)s BEGIN %(refuse)s; END"
_SECURE_DELETE = sqlite3.sqlite_version_info >= (3, 42)
_secure_delete = _command("secure-delete", rank=sa.literal(1))
_merge = _command("merge", rank=sa.bindparam("pages", type_=sa.Integer))
_config = sa.table("row_words_config", sa.column("k"), sa.column("v"))
_FORMAT = 4  # of the index, which every FTS5 reads; once secure-delete was used it is 5
_ERASING = "erasing_words"  # key of meta: removed words may still be in the file
_MERGED = 16  # pages in one step: two milliseconds
_IDLE = 0.05  # seconds without a write after which removed words are erased

log = logging.getLogger("kemem")


class _Write(NamedTuple):
    work: Callable[[sa.Connection], Any]
    durable: bool
    future: "Future[Any]"


class Sqlite:
    """A store in a directory."""

    name = "sqlite"
    readers, finds_in_ranges = _READERS, True

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waits_for_disk = True
        self._erasure: Literal["requested", "begun"] | None = None  # of removed words
        self._erased: str | None = None  # what it covers
        self._suspended: list[sa.PoolProxiedConnection] = []  # while the process forks

    def open(self, *, moving: bool = False) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except FileExistsError:
            raise Unavailable(f"{self.path.parent} must be a directory, not a file") from None
        except OSError as error:
            raise Unavailable(f"cannot create {self.path.parent}: {error.strerror}") from None
        self._reader = self._engine(_READERS, "BEGIN")
        self._writer = self._engine(1, "BEGIN IMMEDIATE")
        _open_stores.add(self)
        try:
            with self._writer.begin() as connection:
                is_too_new = _is_index_too_new(connection)
                bring_up_to_date(connection, self, moving=moving)
                if is_too_new:
                    rebuild_words(connection, self)
                if _SECURE_DELETE:
                    connection.execute(_secure_delete)
                if read_meta(connection).get(_ERASING):  # another process did not finish
                    self._erasure = "requested"
        except (sa.exc.DBAPIError, KeMemError) as error:
            self.close()
            raise (error if isinstance(error, KeMemError) else self.to_error(error)) from None
        self._thread = threading.Thread(target=self._run, name="kemem-writer", daemon=True)
        self._thread.start()

    def _engine(self, size: int, begin: str) -> sa.Engine:
        dialect, options = _dialect(begin)
        path = self.path.absolute()  # a pool connects later, perhaps after a change of directory

        def connect() -> Any:
            return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)

        pool = sa.QueuePool(connect, pool_size=size, max_overflow=0, dialect=dialect)
        engine = sa.Engine(pool, dialect, sa.make_url("sqlite://"), execution_options=options)

        @sa.event.listens_for(engine, "connect")
        def configure(connection: Any, record: Any) -> None:
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",  # NORMAL loses acknowledged writes when the power fails
                "foreign_keys=ON",
                "secure_delete=ON",
                "cache_size=-16384",
            ):
                connection.execute(f"PRAGMA {pragma}")

        return engine

    def reading(self) -> AbstractContextManager[sa.Connection]:
        return self._reader.begin()

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        engine = self._engine(1, "BEGIN")
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def write(
        self, work: Callable[[sa.Connection], T], durable: bool = True, alone: bool = False
    ) -> "Future[T]":
        future: Future[T] = Future()
        self._queue.put(_Write(work, durable, future))
        return future

    def close(self) -> None:
        if self._thread:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        _open_stores.discard(self)
        self._reader.dispose()
        self._writer.dispose()

    def _run(self) -> None:
        """Writer thread: whatever waits shares one commit, each work in a savepoint of its own."""
        while (first := self._next()) is not None:
            group = [first]
            closing = False
            while len(group) < _GROUP and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    closing = True
                    break
                group.append(following)
            self._commit(group)
            if closing:
                break
        while self._erasure:
            self._erase_words()

    def _next(self) -> _Write | None:
        """What is to be written next; while nothing is, removed words are erased."""
        while self._erasure:
            try:
                return self._queue.get(timeout=_IDLE)
            except queue.Empty:
                while self._erasure and self._queue.empty():
                    self._erase_words()
        return self._queue.get()

    def _erase_words(self) -> None:
        """One short step of merging the word index, which lets removed words go from the file.

        FTS5 before SQLite 3.42 only marks removed rows; the words go when the segments that hold
        them are merged. All at once that would take as long as the index is large.
        """
        try:
            self._sync(False)
            with self._writer.begin() as connection:
                driver: Any = connection.connection.driver_connection
                before = driver.total_changes
                if self._erasure == "requested":
                    self._erased = read_meta(connection).get(_ERASING)
                begins = -1 if self._erasure == "requested" else 1
                connection.execute(_merge, {"pages": begins * _MERGED})
                if self._erasure == "requested":
                    self._erasure = "begun"
                elif driver.total_changes - before < 2:  # nothing is left to merge
                    self._erasure = None
                    if read_meta(connection).get(_ERASING) == self._erased:
                        write_meta(connection, _ERASING, "")
        except sa.exc.DBAPIError as error:
            self._erasure = None  # the next process to open the store goes on
            log.warning("%s; removed words are erased later", self.to_error(error).message)

    def _commit(self, waiting: list[_Write]) -> None:
        group = [write for write in waiting if write.future.set_running_or_notify_cancel()]
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            self._sync(any(write.durable for write in group))
            with self._writer.begin() as connection:
                for write in group:
                    try:
                        with connection.begin_nested() if len(group) > 1 else nullcontext():
                            result = write.work(connection)
                        outcomes.append((result, None))
                    except Exception as error:  # the savepoint has taken back its changes
                        if len(group) == 1:
                            raise  # alone, the transaction itself does so
                        outcomes.append((None, error))
        except BaseException as error:  # nobody's work is stored
            outcomes = [(None, error)] * len(group)
        for write, (result, failure) in zip(group, outcomes, strict=True):
            if failure is None:
                write.future.set_result(result)
            else:
                write.future.set_exception(failure)

    def _sync(self, durable: bool) -> None:
        """Whether the next commit waits for the disk; the one after it that does covers both."""
        if durable != self._waits_for_disk:
            with self._writer.connect() as connection:
                driver: Any = connection.connection.driver_connection  # outside a transaction
                driver.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._waits_for_disk = durable

    def to_error(self, error: sa.exc.DBAPIError) -> KeMemError:
        return explain(error, self.path)

    def create(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        for statement in _definitions():
            connection.execute(statement)
        connection.execute(_CREATE_WORDS)
        connection.exec_driver_sql("ANALYZE")  # makes the table of statistics
        self.seed_statistics(connection)

    def seed_statistics(self, connection: sa.Connection) -> None:
        lines = Path(__file__).with_name("statistics.tsv").read_text().splitlines()
        rows = [dict(zip(("tbl", "idx", "stat"), line.split("\t"), strict=True)) for line in lines]
        connection.execute(sa.delete(_statistics))
        connection.execute(sa.insert(_statistics), rows)
        connection.exec_driver_sql("ANALYZE sqlite_master")  # makes this connection read it

    def after_restore(self, connection: sa.Connection) -> None:
        pass  # numbers follow the largest, and every read is of one moment

    def purge(self) -> None:
        truncate_log(self.path, lambda: self._erasure is None)

    def filling(self) -> AbstractContextManager[Callable[[], None]]:
        return lock_file(self.path.with_name(_FILLING))

    def seal(self, connection: sa.Connection, place: str) -> None:
        quoted = place.replace("'", "''")
        refuse = f"SELECT RAISE(ABORT, 'moved to {quoted}')"
        for table in metadata.sorted_tables:
            for event in ("INSERT", "UPDATE", "DELETE"):
                names = {"name": f"sealed_{table.name}_{event}", "event": event, "on": table.name}
                names["refuse"] = refuse
                connection.execute(sa.DDL(_SEAL, context=names))  # type: ignore[no-untyped-call]

    def add_words(self, connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(_add, [{"id": row.id, "text": row.text} for row in texts])

    def remove_words(self, connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(_remove, [{"id": row.id, "text": row.text} for row in texts])
        if not _SECURE_DELETE:
            self._erasure = "requested"
            write_meta(connection, _ERASING, secrets.token_hex(8))

    def clear_words(self, connection: sa.Connection) -> None:
        connection.execute(_command("delete-all"))

    def phrase_query(self, lookups: Sequence[Lookup]) -> tuple[sa.Executable, Values]:
        values = [
            (f'"{" ".join(phrase.tokens)}"{" *" * phrase.prefix}', first, last)
            for _, phrase, first, last in lookups
        ]
        return _phrase_query, {"lookups": dump_json(values)}

    def joined_vectors(self, vector: Any) -> Any:
        # Bytes are put together as they are: what was a blob is one again.
        return sa.cast(sa.func.group_concat(vector, ""), sa.LargeBinary)

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        return [row.tobytes() for row in matrix.astype("<f2")]

    def load_halves(self, joined: bytes, count: int) -> NDArray[np.uint16]:
        return np.frombuffer(joined, dtype="<u2").reshape(count, -1)


@cache
def _dialect(begin: str) -> tuple[sa.Dialect, dict[str, Any]]:
    # Shared, as a compiled statement belongs to its dialect, and compiling one takes longer than
    # running it.
    engine = sa.create_engine("sqlite://", json_serializer=dump_json, json_deserializer=load_json)
    engine.connect().close()  # sets what the dialect learns from a connection
    engine.dispose()
    # Not a listener: where there is one, every statement calls it.
    engine.dialect.do_begin = lambda dbapi_connection: dbapi_connection.execute(begin)  # type: ignore[method-assign]
    return engine.dialect, {"compiled_cache": LRUCache(_COMPILED)}


@cache
def _definitions() -> tuple[sa.TextClause, ...]:
    statements: list[sa.DDLElement] = []
    mock = sa.create_mock_engine("sqlite://", lambda it, *_: statements.append(it))
    metadata.create_all(mock, checkfirst=False)
    return tuple(sa.text(str(it.compile(dialect=_dialect("BEGIN")[0]))) for it in statements)


def _is_index_too_new(connection: sa.Connection) -> bool:
    """Whether a newer SQLite has written the word index; this one must then write it anew."""
    if _SECURE_DELETE or not sa.inspect(connection).has_table(_config.name):
        return False
    changed = sa.update(_config).where(_config.c.k == "version", _config.c.v > _FORMAT)
    return connection.execute(changed.values(v=_FORMAT)).rowcount > 0


# SQLite counts the locks of a file by process: a child of a process that has the file open would
# take its parent's locks for its own, and lose what it writes when the parent closes the file.
_open_stores: "weakref.WeakSet[Sqlite]" = weakref.WeakSet()


def _suspend() -> None:
    """Wait for the work of all connections, close them, and let nobody open one."""
    for store in [*_open_stores]:
        for engine in (store._writer, *[store._reader] * _READERS):
            store._suspended.append(engine.raw_connection())
        for connection in store._suspended:
            driver: Any = connection.driver_connection
            driver.close()


def _resume() -> None:
    for connections in [store._suspended for store in _open_stores]:
        while connections:
            connections.pop().invalidate()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_suspend, after_in_parent=_resume, after_in_child=_open_stores.clear)
