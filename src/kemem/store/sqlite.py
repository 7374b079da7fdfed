"""SQLite: the embedded default. One file, one writer thread that groups commits."""

import logging
import queue
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    Integer,
    LargeBinary,
    Text,
    bindparam,
    cast,
    column,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    literal,
    select,
    table,
    text,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from kemem.errors import KeMemError, Unavailable
from kemem.records import Matrix
from kemem.store.database import IndexedText, Lookup, Values
from kemem.store.migrate import bring_up_to_date, read_meta, write_meta
from kemem.store.read import rebuild_words
from kemem.store.schema import SEQ_BITS, dump_json, metadata

FILE = "kemem.db"
APPLICATION_ID = 0x6B656D65  # "keme": tells our files from those of other programs
_GROUP = 128  # writes that may share a commit
_READERS = 4
_SEQ = (1 << SEQ_BITS) - 1  # the bits of a row's number that count within its space

T = TypeVar("T")

_words = table("row_words", *map(column, ("rowid", "body", "row_words", "rank")))
# Rows of an index, then how many share its first column, its first two, and so on. Without them
# SQLite takes a space for ten rows and reads all of it instead of looking up ids.
_statistics = table("sqlite_stat1", column("tbl"), column("idx"), column("stat"))
_EXPECTED = [
    {"tbl": table_name, "idx": index, "stat": stat}
    for table_name, index, stat in (
        ("message", "message", "1000000 10000 1"),
        ("message", "uk_message_id", "1000000 10000 1"),
        ("message", "uk_agent_user_session_time", "1000000 10000 100 2 1"),
        ("message", "uk_session_sequence", "1000000 10000 100 1"),
        ("message", "idx_message_user_create_time", "1000000 10000 2 1"),
        ("message", "idx_message_create_time", "1000000 2"),
        ("message", "idx_message_sensitive", "1000 10 1"),
        ("row_vector", "row_vector", "1000000 10000 1"),
        ("note", "note", "1000000 10000 1"),
        ("note", "uk_note_id", "1000000 10000 1"),
        ("note", "idx_note_id", "1000000 1"),
        ("note", "idx_note_time", "1000000 10000 2 1"),
        ("note", "idx_note_digest", "1000000 10000 1"),
        ("note", "idx_note_topic", "1000000 10000 10"),
        ("note", "idx_note_valid_until", "1000000 10000 10"),
        ("note", "idx_note_expire_time", "1000000 10000 10"),
        ("note", "idx_note_sensitive", "1000 10 1"),
        ("note_source", "note_source", "1000000 10000 2 1"),
        ("note_source", "idx_note_source_message", "1000000 10000 2 1"),
        ("entity", "entity", "1000000 10000 1"),
        ("entity", "idx_entity_name", "1000000 10000 1"),
        ("relation", "relation", "1000000 10000 1"),
        ("relation", "idx_relation_source", "1000000 10000 10 2 1"),
        ("relation", "idx_relation_destination", "1000000 10000 10"),
        ("relation_source", "relation_source", "1000000 10000 2 1"),
        ("relation_source", "idx_relation_source_note", "1000000 10000 2"),
    )
]
_json = func.json_each(bindparam("lookups", type_=Text)).table_valued("key", "value")
# Materialized: SQLite would else parse the JSON again for every row that a phrase finds.
_lookups = (
    select(
        _json.c.key.label("key"),
        func.json_extract(_json.c.value, "$[0]").label("phrase"),
        func.json_extract(_json.c.value, "$[1]").label("after"),
    )
    .cte("lookups")
    .prefix_with("MATERIALIZED")
)
_holding = (
    select(func.aggregate_strings(_words.c.rowid.op("&")(_SEQ), ","))
    .where(
        _words.c.row_words.op("MATCH")(_lookups.c.phrase),
        _words.c.rowid > _lookups.c.after,
        _words.c.rowid <= _lookups.c.after.op("|")(_SEQ),
    )
    .correlate(_lookups)
)
_phrase_query = select(_lookups.c.key, _holding.scalar_subquery())
# Tokens come from kemem.text.segment; "ascii" leaves every non-ASCII character as it is.
_CREATE_WORDS = text(
    "CREATE VIRTUAL TABLE row_words USING fts5("
    "body, content='', columnsize=0, tokenize=\"ascii tokenchars '+#'\")"
)


# FTS5 can erase removed words at once since SQLite 3.42.
_SECURE_DELETE = sqlite3.sqlite_version_info >= (3, 42)
_secure_delete = insert(_words).values(row_words=literal("secure-delete"), rank=literal(1))
_merge = insert(_words).values(row_words=literal("merge"), rank=bindparam("pages", type_=Integer))
_config = table("row_words_config", column("k"), column("v"))
_FORMAT = 4  # of the index, which every FTS5 reads; once secure-delete was used it is 5
_ERASING = "erasing_words"  # key of meta: removed words may still be in the file
_MERGED = 16  # pages in one step: two milliseconds
_IDLE = 0.05  # seconds without a write after which removed words are erased

log = logging.getLogger("kemem")


@dataclass(slots=True)
class _Write:
    work: Callable[[Connection], Any]
    durable: bool
    future: "Future[Any]"


class Sqlite:
    """A store in a directory."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waits_for_disk = True
        self._erasure: Literal["asked", "begun"] | None = None  # of removed words
        self._erased: str | None = None  # what it covers

    def open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Unavailable(f"cannot create {self.path.parent}: {error.strerror}") from None
        self._reader = self._engine(_READERS, "BEGIN")
        self._writer = self._engine(1, "BEGIN IMMEDIATE")
        try:
            with self._writer.begin() as connection:
                is_too_new = _is_index_too_new(connection)
                bring_up_to_date(connection, self)
                if is_too_new:
                    rebuild_words(connection, self)
                self._prepare_erasure(connection)
        except DBAPIError as error:
            self.close()
            raise self.to_error(error) from None
        except KeMemError:
            self.close()
            raise
        self._thread = threading.Thread(target=self._run, name="kemem-writer", daemon=True)
        self._thread.start()

    def _prepare_erasure(self, connection: Connection) -> None:
        """Let the index erase what is removed; go on where another process did not finish."""
        if _SECURE_DELETE:
            connection.execute(_secure_delete)
        if read_meta(connection).get(_ERASING):
            self._erasure = "asked"

    def _engine(self, size: int, begin: str) -> Engine:
        engine = create_engine(
            URL.create("sqlite", database=str(self.path)),
            pool_size=size,
            max_overflow=0,
            json_serializer=dump_json,
            connect_args={"isolation_level": None, "check_same_thread": False, "timeout": 10},
        )

        @event.listens_for(engine, "connect")
        def configure(connection: Any, record: Any) -> None:
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",  # NORMAL loses acknowledged writes when the power fails
                "foreign_keys=ON",
                "secure_delete=ON",
                "cache_size=-16384",
            ):
                connection.execute(f"PRAGMA {pragma}")

        @event.listens_for(engine, "begin")
        def start(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._reader.begin() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        engine = self._engine(1, "BEGIN")
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def write(
        self, work: Callable[[Connection], T], durable: bool = True, alone: bool = False
    ) -> "Future[T]":
        future: Future[T] = Future()
        self._queue.put(_Write(work, durable, future))
        return future

    def close(self) -> None:
        if self._thread:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
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
                if self._erasure == "asked":
                    self._erased = read_meta(connection).get(_ERASING)
                begins = -1 if self._erasure == "asked" else 1
                connection.execute(_merge, {"pages": begins * _MERGED})
                if self._erasure == "asked":
                    self._erasure = "begun"
                elif driver.total_changes - before < 2:  # nothing is left to merge
                    self._erasure = None
                    if read_meta(connection).get(_ERASING) == self._erased:
                        write_meta(connection, _ERASING, "")
        except DBAPIError as error:
            self._erasure = None  # the next process to open the store goes on
            log.warning("%s; removed words are erased later", self.to_error(error).message)

    def _commit(self, waiting: list[_Write]) -> None:
        group = [write for write in waiting if write.future.set_running_or_notify_cancel()]
        try:
            self._sync(any(write.durable for write in group))
            with self._writer.begin() as connection:
                # Alone, the transaction itself takes back what fails.
                attempt = _attempt if len(group) > 1 else _do
                outcomes = [attempt(write, connection) for write in group]
        except BaseException as error:  # nobody's work is stored
            outcomes = [(write, None, error) for write in group]
        for write, result, failure in outcomes:
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

    def to_error(self, error: DBAPIError) -> KeMemError:
        name = getattr(error.orig, "sqlite_errorname", "")
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return Unavailable(
                f"the store {self.path} is damaged or not a KeMem store; restore a backup"
            )
        reasons = {
            "SQLITE_FULL": "the disk is full",
            "SQLITE_READONLY": "the store is read-only",
            "SQLITE_CANTOPEN": "the store cannot be opened",
            "SQLITE_BUSY": "another process holds the store",
            "SQLITE_IOERR": "reading or writing the disk failed",
        }
        for prefix, reason in reasons.items():
            if name.startswith(prefix):
                return Unavailable(f"{reason}: {self.path}; nothing was written")
        return Unavailable(f"the store did not answer ({name or type(error.orig).__name__})")

    def create(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        metadata.create_all(connection, checkfirst=False)
        connection.execute(_CREATE_WORDS)
        connection.exec_driver_sql("ANALYZE")  # makes the table of statistics
        self.seed_statistics(connection)

    def seed_statistics(self, connection: Connection) -> None:
        connection.execute(delete(_statistics))
        connection.execute(insert(_statistics), _EXPECTED)
        connection.exec_driver_sql("ANALYZE sqlite_master")  # makes this connection read it

    def after_restore(self, connection: Connection) -> None:
        pass  # numbers follow the largest, and every read is of one moment

    def add_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(
            insert(_words).values(rowid=bindparam("id"), body=bindparam("text")),
            [{"id": row.id, "text": row.text} for row in texts],
        )

    def remove_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(
            insert(_words).values(
                row_words=literal("delete"), rowid=bindparam("id"), body=bindparam("text")
            ),
            [{"id": row.id, "text": row.text} for row in texts],
        )
        if not _SECURE_DELETE:
            self._erasure = "asked"
            write_meta(connection, _ERASING, secrets.token_hex(8))

    def clear_words(self, connection: Connection) -> None:
        connection.execute(insert(_words).values(row_words=literal("delete-all")))

    def phrase_query(self, lookups: Sequence[Lookup]) -> tuple[Executable, Values]:
        values = [
            (f'"{" ".join(phrase.tokens)}"{" *" * phrase.prefix}', space.first_id + after)
            for space, phrase, after in lookups
        ]
        return _phrase_query, {"lookups": dump_json(values)}

    def vector_column(self, vector: Any) -> Any:
        return vector

    def joined_vectors(self, vector: Any) -> Any:
        # Bytes are put together as they are: what was a blob is one again.
        return cast(func.group_concat(vector, ""), LargeBinary)

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        return [row.tobytes() for row in matrix.astype("<f2")]

    def load_halves(self, joined: bytes, count: int) -> NDArray[np.uint16]:
        return np.frombuffer(joined, dtype="<u2").reshape(count, -1)


def _is_index_too_new(connection: Connection) -> bool:
    """Whether a newer SQLite has written the word index; this one must then write it anew."""
    if _SECURE_DELETE or not inspect(connection).has_table(_config.name):
        return False
    changed = update(_config).where(_config.c.k == "version", _config.c.v > _FORMAT)
    return connection.execute(changed.values(v=_FORMAT)).rowcount > 0


_Outcome = tuple[_Write, Any, BaseException | None]


def _do(write: _Write, connection: Connection) -> _Outcome:
    return write, write.work(connection), None


def _attempt(write: _Write, connection: Connection) -> _Outcome:
    """One work of a group; its failure takes back only its own changes."""
    savepoint = connection.begin_nested()
    try:
        result = write.work(connection)
        savepoint.commit()
        return write, result, None
    except Exception as error:
        savepoint.rollback()
        return write, None, error
