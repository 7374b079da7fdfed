"""PostgreSQL 15 or newer with pgvector: one database for many server processes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from operator import add
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TSQUERY, TSVECTOR

from kemem.errors import InvalidArgument, KeMemError, Unavailable
from kemem.records import Matrix
from kemem.store import hnsw
from kemem.store.database import IndexedText, Lookup, Values, columns_of, in_list, insert
from kemem.store.filling import lock_session
from kemem.store.halfvec import HalfvecSend, dump_vectors, learn_vectors
from kemem.store.migrate import (
    MOVED_TO,
    bring_up_to_date,
    check_open,
    read_meta,
    read_own_meta,
    was_moved,
)
from kemem.store.pipeline import DISTRIBUTED, pipeline, retried, transaction
from kemem.store.postgres_setup import DENIED, add_schema, add_vectors, check_rights, denied
from kemem.store.schema import SEQ_BITS, dump_json, embedding_model, metadata, space
from kemem.text.query import MAX_PHRASE

_DRIVER = "postgresql+psycopg"
_TOO_LONG = "57014"  # SQLSTATE of a statement that was given up
_SOON = "3"  # seconds to connect in
_OLDEST = 150_000  # server_version_num of PostgreSQL 15
# A tsvector keeps at most 256 places of a lexeme: parts of that size lose none. They overlap so
# that a phrase across a border stands whole in one of them.
_PART = 256
_PLACES = [f"':{at}" for at in range(1, _PART + 1)]
_BEGIN = "BEGIN"
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"  # of one moment
# A prepared statement must not get a generic plan, which knows nothing of the phrases.
READER = {"plan_cache_mode": "force_custom_plan"}
# Writes keep their plans: making each of them again, also for every check of a foreign key, takes a
# third of the server's time. One that was made while a table was small must not read all of it.
_WRITER = {"plan_cache_mode": "auto", "enable_seqscan": "off", "jit": "off"}
_DO_NOT_WAIT = "SET LOCAL synchronous_commit = off"
_ALL_ROWS = "SET LOCAL enable_seqscan = on"
_NO_LIMIT = "SET LOCAL statement_timeout = 0"
_MIGRATING = 0x6B656D65  # key of the advisory lock that lets one process migrate at a time
_FILLING = 1 << 40  # added to the key of a store: the lock of a move that fills it
_SCHEMA = re.compile(r"[A-Za-z0-9_-]{1,63}")
_PGVECTOR = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"

_FATAL = re.compile(r"FATAL:\s+(.+)")  # why a server lets nobody in
_PORT = re.compile(r", port (\d+) failed")
_SEALED = "KM001"  # SQLSTATE of a write to a store that was moved
_REFUSE = (
    "CREATE FUNCTION kemem_sealed() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION USING ERRCODE = '{_SEALED}', MESSAGE = 'moved to ' || "
    f"(SELECT value FROM meta WHERE key = '{MOVED_TO}'); END $$"
)

_SEQ = (1 << SEQ_BITS) - 1  # the bits of a row's number that count within its space

T = TypeVar("T")

_own = sa.MetaData()
row_words = _words = sa.Table(
    "row_words",
    _own,
    *(sa.Column(name, sa.BigInteger, primary_key=True) for name in ("space_no", "id")),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("words", TSVECTOR, nullable=False),
    sa.Index("idx_row_words", "words", postgresql_using="gin"),
)
_remove = sa.delete(_words).where(
    _words.c.space_no == sa.bindparam("of_space"), _words.c.id == sa.bindparam("of_row")
)

_values = (("phrase", sa.Text()), ("first", sa.BigInteger()), ("last", sa.BigInteger()))
_lookups = (
    sa.func.unnest(*(sa.bindparam(f"{name}s", type_=ARRAY(kind)) for name, kind in _values))
    .table_valued(*(sa.column(*value) for value in _values), with_ordinality="number")
    .render_derived(name="lookups")
)
_seq = _words.c.id.op("&")(_SEQ)
_phrase_query = (
    sa.select(_lookups.c.number - 1, sa.func.aggregate_strings(sa.cast(_seq, sa.Text), ","))
    .join_from(_lookups, _words, _words.c.words.op("@@")(sa.cast(_lookups.c.phrase, TSQUERY)))
    .where(_words.c.id.between(_lookups.c.first, _lookups.c.last))
    .group_by(_lookups.c.number)
)
_routed_phrase_query = _phrase_query.where(in_list(_words.c.space_no, "numbers"))


def _schema_of(url: sa.URL) -> str | None:
    """The schema that a URL names, as in postgresql://host/database?schema=kemem_acme"""
    schema = url.query.get("schema")
    if schema is not None and not (isinstance(schema, str) and _SCHEMA.fullmatch(schema)):
        reason = f"schema in database_url must be 1-63 letters, digits, - and _, not {schema!r:.80}"
        raise InvalidArgument(reason, field="database_url")
    return schema


def create_engine(url: sa.URL, options: Mapping[str, str] = READER, **given: Any) -> sa.Engine:
    """Connections to the schema that a URL names, or to that of the server."""
    schema = _schema_of(url)
    if schema is not None:
        # Nothing else is on the path: a table that is missing is not found in another schema.
        options = {**options, "search_path": f'"{schema}"'}
    chosen = " ".join(f"-c {name}={value}" for name, value in options.items())
    given |= {"connect_args": {"options": chosen}, "json_serializer": dump_json}
    engine = sa.create_engine(without_schema(url).set(drivername=_DRIVER), **given)

    def find_pgvector(driver: Any, _: object) -> None:
        with driver.transaction():
            found = driver.execute(_PGVECTOR).fetchone()
        engine.dialect.pgvector_schema = found and found[0]  # type: ignore[attr-defined]

    if schema is not None:
        sa.event.listen(engine, "connect", find_pgvector)
    return engine


def without_schema(url: sa.URL) -> sa.URL:
    """The database in which a URL names a schema."""
    return url.difference_update_query(["schema"])


def engine_of(
    url: sa.URL, connections: int, timeout: float, options: Mapping[str, str] = READER
) -> sa.Engine:
    """Connections to a PostgreSQL that know vectors and do not wait for each answer.

    They give up a statement after `timeout` seconds; 0: none.
    """
    _check_packages()
    own = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None, "max_overflow": 0}
    options = {**options, "statement_timeout": str(round(timeout * 1000))}
    engine = create_engine(url, options, pool_size=connections, **own)
    learn = partial(learn_vectors, engine.dialect)
    sa.event.listen(engine, "connect", lambda driver, _: learn(driver))
    pipeline(engine, keeps_plans=options["plan_cache_mode"] == "auto")
    return engine


def _check_packages() -> None:
    if not all(map(find_spec, ("psycopg", "pgvector"))):
        raise InvalidArgument(
            "PostgreSQL needs psycopg and pgvector: install KeMem with the extra 'postgres'"
        )


def check_moved(url: sa.URL) -> None:
    """StoreMoved where a database says so; one that does not answer soon says nothing."""
    _check_packages()
    soon = url
    if "connect_timeout" not in url.query:
        soon = url.update_query_dict({"connect_timeout": _SOON})
    try:
        with create_engine(soon, poolclass=sa.NullPool).connect() as connection:
            values = read_meta(connection)
    except sa.exc.DBAPIError:  # also where there is no store yet
        return
    check_open(values)


class Postgres:
    """A store in a PostgreSQL database."""

    name = "postgresql"
    finds_in_ranges = False

    def __init__(self, url: sa.URL, connections: int = 12, timeout: float = 60) -> None:
        self._url, self._schema = url, _schema_of(url)
        # Of the lock that writers share, and who replaces all rows has alone.
        self._replacing = _MIGRATING + 1 + (crc32(self._schema.encode()) if self._schema else 0)
        self._connections, self._timeout = connections, timeout
        self._lock = f"SELECT pg_advisory_xact_lock_shared({self._replacing})"
        self._lock_alone = f"SELECT pg_advisory_xact_lock({self._replacing})"
        self.readers = connections // 2  # the others write

    def open(self, *, moving: bool = False) -> None:
        writers = self._connections - self.readers
        self._read_engine = engine_of(self._url, self.readers, self._timeout)
        self._write_engine = engine_of(self._url, writers, self._timeout, _WRITER)
        self._plain = create_engine(self._url, poolclass=sa.NullPool)
        lock = f"SELECT pg_advisory_xact_lock({_MIGRATING})"
        try:
            self._prepare(lock)
            begin = (_BEGIN, _NO_LIMIT, _ALL_ROWS, lock)
            with transaction(self._write_engine, *begin) as connection:
                bring_up_to_date(connection, self, moving=moving)
                self._is_distributed = DISTRIBUTED in read_meta(connection)
            if self._is_distributed:
                for engine in (self._read_engine, self._write_engine):
                    engine.update_execution_options(**{DISTRIBUTED: True})
        except (sa.exc.DBAPIError, KeMemError) as error:
            self._write_engine.dispose()
            raise (error if isinstance(error, KeMemError) else self.to_error(error)) from None
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix="kemem-writer")

    def _prepare(self, lock: str) -> None:
        """Vector types must exist before a connection can learn them, and the schema of a store.

        The types belong to no store, and are where the server puts them by itself.
        """
        bare = create_engine(without_schema(self._url), poolclass=sa.NullPool)
        with bare.begin() as first:
            version = first.connection.dbapi_connection.info.server_version  # type: ignore[union-attr]
            if version < _OLDEST:
                raise Unavailable(f"PostgreSQL 15 or newer is needed, not {version // 10_000}")
            first.execute(sa.text(lock))
            # One that is there needs no right to create any.
            is_new = self._schema is not None and not sa.inspect(first).has_schema(self._schema)
            if not is_new:
                with self._plain.connect() as own:
                    read_own_meta(own)  # nothing is added to the database of another program
            add_vectors(first)
            if self._schema and is_new:
                add_schema(first, self._schema)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        return transaction(self._read_engine, READ)

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        with self._plain.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    def write(
        self, work: Callable[[sa.Connection], T], durable: bool = True, alone: bool = False
    ) -> "Future[T]":
        begin = [_NO_LIMIT, _ALL_ROWS, self._lock_alone] if alone else [self._lock]
        begin += [] if durable else [_DO_NOT_WAIT]

        def transact() -> T:
            with transaction(self._write_engine, _BEGIN, *begin) as connection:
                return work(connection)

        # What is alone may consume what it is given, and cannot be done again.
        return self._writers.submit(transact if alone else partial(retried, transact))

    def close(self) -> None:
        self._writers.shutdown()
        self._read_engine.dispose()
        self._write_engine.dispose()

    def to_error(self, error: sa.exc.DBAPIError) -> KeMemError:
        state = getattr(error.orig, "sqlstate", None)
        if state is None or state.startswith("57P"):  # it is shut down, or has just come up
            return unreachable(self._url, error)
        if state == _SEALED:
            return was_moved(str(error.orig))
        if state == _TOO_LONG:
            reason = f"took longer than {self._timeout:g} seconds (KEMEM_DATABASE_TIMEOUT_SECONDS)"
            return Unavailable(f"PostgreSQL {reason}; nothing was written")
        if state == DENIED:
            return denied(error)
        return Unavailable(f"PostgreSQL refused (SQLSTATE {state}); nothing was written")

    def create(self, connection: sa.Connection) -> None:
        check_rights(connection)
        metadata.create_all(connection, checkfirst=False)
        _own.create_all(connection, checkfirst=False)
        # Short vectors would be moved out of line and cost a second look-up each.
        connection.execute(sa.text("ALTER TABLE row_vector ALTER vector SET STORAGE PLAIN"))

    def seed_statistics(self, connection: sa.Connection) -> None:
        pass  # PostgreSQL counts by itself

    def after_restore(self, connection: sa.Connection) -> None:
        for numbered in (space.c.space_no, embedding_model.c.model_no):
            sequence = sa.func.pg_get_serial_sequence(numbered.table.name, numbered.name)
            largest = sa.select(sa.func.coalesce(sa.func.max(numbered), 0) + 1).scalar_subquery()
            # Never lower: no rollback takes this back.
            number = sa.func.greatest(largest, sa.func.nextval(sequence))
            connection.execute(sa.select(sa.func.setval(sequence, number, False)))
        # A read consists of several statements, the first of which asks for spaces: those under
        # way end before the numbers of spaces change their meaning, others begin afterwards.
        connection.execute(sa.text("LOCK TABLE space IN ACCESS EXCLUSIVE MODE"))

    def purge(self) -> None:
        pass  # VACUUM does, which the server runs by itself

    def filling(self) -> AbstractContextManager[Callable[[], None]]:
        return lock_session(self._plain, _FILLING + self._replacing)

    def seal(self, connection: sa.Connection, place: str) -> None:
        connection.execute(sa.text(_REFUSE))
        for table in metadata.sorted_tables:
            connection.execute(
                sa.text(
                    f"CREATE TRIGGER sealed BEFORE INSERT OR UPDATE OR DELETE ON {table.name} "
                    "FOR EACH STATEMENT EXECUTE FUNCTION kemem_sealed()"
                )
            )

    def add_words(self, connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
        rows = [
            (row.space_no, row.id, part, words)
            for row in texts
            for part, words in enumerate(_parts(row))
        ]
        insert(connection, _words, columns_of(_words.c.keys(), rows))

    def remove_words(self, connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(_remove, [{"of_space": row.space_no, "of_row": row.id} for row in texts])

    def clear_words(self, connection: sa.Connection) -> None:
        connection.execute(sa.delete(_words))

    def phrase_query(self, lookups: Sequence[Lookup]) -> tuple[sa.Executable, Values]:
        notation = [
            " <-> ".join(f"'{space.space_no}:{token}'" for token in phrase.tokens)
            + (":*" if phrase.prefix else "")
            for space, phrase, *_ in lookups
        ]
        values: Values = {"phrases": notation}
        values |= {"firsts": [it[2] for it in lookups], "lasts": [it[3] for it in lookups]}
        if not self._is_distributed:
            return _phrase_query, values
        values["numbers"] = sorted({space.space_no for space, *_ in lookups})
        return _routed_phrase_query, values

    def joined_vectors(self, vector: Any) -> Any:
        return sa.func.string_agg(HalfvecSend(vector), sa.cast(b"", BYTEA))

    def index_vectors(self, memory_mb: int) -> list[hnsw.VectorIndex]:
        """Build the indexes of large spaces, outside of any transaction."""
        return hnsw.build(self._plain, memory_mb)

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        return dump_vectors(matrix)

    def load_halves(self, joined: bytes, count: int) -> NDArray[np.uint16]:
        # The width and an unused number stand before the values.
        numbers = np.frombuffer(joined, dtype=">u2").reshape(count, -1)
        return numbers[:, 2:].astype(np.uint16)


def unreachable(url: sa.URL, error: sa.exc.DBAPIError) -> Unavailable:
    """Why there is no connection to a server."""
    reason = str(error.orig)
    port = _PORT.search(reason)  # which may be that of the environment
    place = f"PostgreSQL at {shown_host(url, port and port[1])}"
    if refused := _FATAL.search(reason):  # a wrong password, no such database
        return Unavailable(f"{place} refuses: {refused[1]}")
    return Unavailable(f"{place} cannot be reached")


def shown_host(url: sa.URL, port: str | None = None) -> str:
    """Where a server is, for people.  -> "127.0.0.1:5432" """
    host, number = url.host or "its socket", port or url.port
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{number}" if number and url.host else host


def _parts(row: IndexedText) -> Iterator[str]:
    """tsvector texts of at most 256 tokens, each with its space and its places.

    With the space in the lexeme its rows are found without those of others in between, and no
    query can reach them.
    """
    tokens, own = row.text.split(), f"'{row.space_no}:"
    for start in range(0, max(len(tokens), 1), _PART - MAX_PHRASE):
        part = tokens[start : start + _PART]
        yield own + f" {own}".join(map(add, part, _PLACES)) if part else ""
        if start + _PART >= len(tokens):
            return
