"""PostgreSQL 15 or newer with pgvector: one database for many server processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Executable,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    column,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TSQUERY, TSVECTOR
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from kemem.errors import InvalidArgument, KeMemError, Unavailable
from kemem.records import Matrix
from kemem.store.database import IndexedText, Lookup, Values
from kemem.store.migrate import bring_up_to_date
from kemem.store.schema import SEQ_BITS, dump_json, embedding_model, metadata, space
from kemem.text.query import MAX_PHRASE

_CONNECTIONS = 8
_OLDEST = 150_000  # server_version_num of PostgreSQL 15
# A tsvector keeps at most 256 places of a lexeme: parts of that size lose none. They overlap so
# that a phrase across a border stands whole in one of them.
_PART = 256
_DO_NOT_WAIT = text("SET LOCAL synchronous_commit = off")
_MIGRATING = 0x6B656D65  # key of the advisory lock that lets one process migrate at a time
_REPLACING = _MIGRATING + 1  # of the one that writers share and who replaces all rows has alone

_SEQ = (1 << SEQ_BITS) - 1  # the bits of a row's number that count within its space

T = TypeVar("T")

_own = MetaData()
_words = Table(
    "row_words",
    _own,
    Column("space_no", BigInteger, primary_key=True, autoincrement=False),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("words", TSVECTOR, nullable=False),
    Index("idx_row_words", "words", postgresql_using="gin"),
)
_add = insert(_words).values(words=cast(bindparam("words", type_=Text), TSVECTOR))
_remove = delete(_words).where(
    _words.c.space_no == bindparam("of_space"), _words.c.id == bindparam("of_row")
)

_values = (bindparam("phrases", type_=ARRAY(Text)), bindparam("afters", type_=ARRAY(BigInteger)))
_lookups = (
    func.unnest(*_values)
    .table_valued(column("phrase", Text), column("after", BigInteger), with_ordinality="number")
    .render_derived(name="lookups")
)
_seq = _words.c.id.op("&")(_SEQ)
_phrase_query = (
    select(_lookups.c.number - 1, func.aggregate_strings(cast(_seq, Text), ","))
    .join_from(_lookups, _words, _words.c.words.op("@@")(cast(_lookups.c.phrase, TSQUERY)))
    .where(_seq > _lookups.c.after)
    .group_by(_lookups.c.number)
)


class Postgres:
    """A store in a PostgreSQL database."""

    name = "postgresql"

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")

    def open(self) -> None:
        try:
            from pgvector.psycopg import register_vector
        except ImportError:
            raise InvalidArgument(
                "PostgreSQL needs psycopg and pgvector: install KeMem with the extra 'postgres'"
            ) from None
        # A prepared statement must not get a generic plan, which knows nothing of the phrases.
        custom_plans = {"options": "-c plan_cache_mode=force_custom_plan"}
        options = {"connect_args": custom_plans, "json_serializer": dump_json}
        self._engine = create_engine(
            self._url, pool_size=_CONNECTIONS, pool_pre_ping=True, **options
        )
        event.listen(self._engine, "connect", lambda driver, _: register_vector(driver))
        try:
            self._add_extensions(options)
            with self._engine.begin() as connection:
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))
                bring_up_to_date(connection, self)
        except (DBAPIError, KeMemError) as error:
            self._engine.dispose()
            raise (self.to_error(error) if isinstance(error, DBAPIError) else error) from None
        self._writers = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="kemem-writer")

    def _add_extensions(self, options: dict[str, Any]) -> None:
        """Vector types must exist before a connection can learn them."""
        engine = create_engine(self._url, poolclass=NullPool, **options)
        with engine.begin() as connection:
            if (version := connection.connection.dbapi_connection.info.server_version) < _OLDEST:  # type: ignore[union-attr]
                raise Unavailable(f"PostgreSQL 15 or newer is needed, not {version // 10_000}")
            connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")  # one moment
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            yield connection

    def write(
        self, work: Callable[[Connection], T], durable: bool = True, alone: bool = False
    ) -> "Future[T]":
        return self._writers.submit(self._transact, work, durable, alone)

    def _transact(self, work: Callable[[Connection], T], durable: bool, alone: bool) -> T:
        lock = func.pg_advisory_xact_lock if alone else func.pg_advisory_xact_lock_shared
        with self._engine.begin() as connection:
            connection.execute(select(lock(_REPLACING)))
            if not durable:
                connection.execute(_DO_NOT_WAIT)
            return work(connection)

    def close(self) -> None:
        self._writers.shutdown()
        self._engine.dispose()

    def to_error(self, error: DBAPIError) -> KeMemError:
        state = getattr(error.orig, "sqlstate", None)
        if state is None:
            return Unavailable(f"PostgreSQL at {self._url.host or 'its socket'} cannot be reached")
        return Unavailable(f"PostgreSQL refused (SQLSTATE {state}); nothing was written")

    def create(self, connection: Connection) -> None:
        metadata.create_all(connection, checkfirst=False)
        _own.create_all(connection, checkfirst=False)
        # Short vectors would be moved out of line and cost a second look-up each.
        connection.execute(text("ALTER TABLE row_vector ALTER vector SET STORAGE PLAIN"))

    def seed_statistics(self, connection: Connection) -> None:
        pass  # PostgreSQL counts by itself

    def after_restore(self, connection: Connection) -> None:
        for numbered in (space.c.space_no, embedding_model.c.model_no):
            sequence = func.pg_get_serial_sequence(numbered.table.name, numbered.name)
            largest = select(func.coalesce(func.max(numbered), 0) + 1).scalar_subquery()
            # Never lower: no rollback takes this back.
            number = func.greatest(largest, func.nextval(sequence))
            connection.execute(select(func.setval(sequence, number, False)))
        # A read consists of several statements, the first of which asks for spaces: those under
        # way end before the numbers of spaces change their meaning, others begin afterwards.
        connection.execute(text("LOCK TABLE space IN ACCESS EXCLUSIVE MODE"))

    def add_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(
            _add,
            [
                {"space_no": row.space_no, "id": row.id, "part": part, "words": words}
                for row in texts
                for part, words in enumerate(_parts(row))
            ],
        )

    def remove_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        connection.execute(_remove, [{"of_space": row.space_no, "of_row": row.id} for row in texts])

    def clear_words(self, connection: Connection) -> None:
        connection.execute(delete(_words))

    def phrase_query(self, lookups: Sequence[Lookup]) -> tuple[Executable, Values]:
        notation = [
            " <-> ".join(f"'{space.space_no}:{token}'" for token in phrase.tokens)
            + (":*" if phrase.prefix else "")
            for space, phrase, _ in lookups
        ]
        return _phrase_query, {"phrases": notation, "afters": [after for *_, after in lookups]}

    def vector_column(self, vector: Any) -> Any:
        return func.halfvec_send(vector)  # the wire format: faster to read than text

    def joined_vectors(self, vector: Any) -> Any:
        return func.string_agg(func.halfvec_send(vector), cast(b"", BYTEA))

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        from pgvector import HalfVector

        return [HalfVector(row) for row in matrix]

    def load_halves(self, joined: bytes, count: int) -> NDArray[np.uint16]:
        # The width and an unused number stand before the values.
        numbers = np.frombuffer(joined, dtype=">u2").reshape(count, -1)
        return numbers[:, 2:].astype(np.uint16)


def _parts(row: IndexedText) -> Iterator[str]:
    """tsvector texts of at most 256 tokens, each with its space and its places.

    With the space in the lexeme its rows are found without those of others in between, and no
    query can reach them.
    """
    tokens = row.text.split()
    for start in range(0, max(len(tokens), 1), _PART - MAX_PHRASE):
        part = tokens[start : start + _PART]
        yield " ".join(f"'{row.space_no}:{token}':{at}" for at, token in enumerate(part, 1))
        if start + _PART >= len(tokens):
            return
