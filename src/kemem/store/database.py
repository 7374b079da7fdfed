"""What the two engines do differently, as one small interface."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    Select,
    Table,
    Text,
    bindparam,
    literal,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from kemem.errors import KeMemError
from kemem.records import Matrix
from kemem.store.schema import SEQ_BITS, dump_json
from kemem.text.query import Phrase

T = TypeVar("T")
Statement = Select[*tuple[Any, ...]]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Space:
    """One (agent, user) pair, and the state that tells a cache whether it is current."""

    space_no: int
    agent_id: str
    user_id: str
    next_seq: int
    epoch: int
    vector_writes: int

    @property
    def first_id(self) -> int:
        """The id of sequence number 0."""
        return self.space_no << SEQ_BITS


Lookup = tuple[Space, Phrase, int]  # rows of a space with a phrase, beyond a sequence number


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The search text of one row."""

    space_no: int
    id: int
    text: str


class Database(Protocol):
    """An engine: how it connects, and its own forms of words and vectors."""

    name: str

    def open(self) -> None:
        """Connect; create or migrate the tables."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection for reads."""

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A connection beside those for reads, which sees one moment however long it lasts."""

    def write(
        self, work: Callable[[Connection], T], durable: bool = True, alone: bool = False
    ) -> Future[T]:
        """Do work in a transaction; the future is done when that is committed.

        What is not `durable` may be taken back by a power failure, wholly, and must be derivable.
        Beside work that is to be `alone` no other is done.
        """

    def after_restore(self, connection: Connection) -> None:
        """Number new rows above those that came, and let no read that began before see them."""

    def close(self) -> None:
        """Finish the writes and disconnect."""

    def to_error(self, error: DBAPIError) -> KeMemError:
        """A driver's error as one of KeMem's, without internals."""

    def create(self, connection: Connection) -> None:
        """The tables, and what the engine's words and vectors need."""

    def seed_statistics(self, connection: Connection) -> None:
        """Tell a planner that does not count rows itself how large tables are."""

    @staticmethod
    def insert(table: Table) -> Any:
        """An insert that knows on_conflict_do_nothing and on_conflict_do_update."""

    def add_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        """Put rows into the word index."""

    def remove_words(self, connection: Connection, texts: Sequence[IndexedText]) -> None:
        """Take rows out of the word index; the texts are those that were added."""

    def clear_words(self, connection: Connection) -> None:
        """Empty the word index."""

    def phrase_query(self, lookups: Sequence[Lookup]) -> tuple[Executable, Values]:
        """A statement, with its values, that answers with (number of a lookup, its rows).

        The rows are sequence numbers joined by commas.
        """

    def vector_column(self, column: Any) -> Any:
        """A vector column as it is selected."""

    def joined_vectors(self, column: Any) -> Any:
        """All vectors of a column as one value: fetched in half the time that rows take."""

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        """Vectors as they are bound."""

    def load_halves(self, joined: bytes, count: int) -> NDArray[np.uint16]:
        """The bits of `count` vectors from what was selected."""


class _List(TypeDecorator[list[Any]]):
    """Any number of values bound at once: JSON on SQLite, an array on PostgreSQL."""

    impl = Text
    cache_ok = True

    def __init__(self, element: type[Any]) -> None:
        super().__init__()
        self.element = element

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        array = ARRAY(BigInteger if self.element is int else Text)
        return dialect.type_descriptor(array if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        return value if dialect.name == "postgresql" else dump_json(value)


class _InList(FunctionElement[bool]):
    """A column that has one of the values of a list."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Any:
        return self  # else SQLite gets "= 1" behind it, and looks at every row


@compiles(_InList, "sqlite")
def _in_json(element: _InList, compiler: Any, **options: Any) -> str:
    column, values = (compiler.process(it, **options) for it in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"


@compiles(_InList, "postgresql")
def _in_array(element: _InList, compiler: Any, **options: Any) -> str:
    column, values = (compiler.process(it, **options) for it in element.clauses)
    return f"{column} = ANY({values})"


def in_list(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """A column that has one of the values bound under a name, however many there are."""
    return _InList(column, bindparam(name, type_=_List(column.type.python_type)))


class _JsonHolds(FunctionElement[bool]):
    """A JSON object that has a text under a key, alone or in a list; lists in lists pass."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Any:
        return self


@compiles(_JsonHolds, "sqlite")
def _sqlite_holds(element: _JsonHolds, compiler: Any, **options: Any) -> str:
    column, path, _, text, _ = (compiler.process(it, **options) for it in element.clauses)
    holds = f"type = 'array' OR (type = 'text' AND value = {text})"
    return f"EXISTS (SELECT 1 FROM json_each({column}, {path}) WHERE {holds})"


@compiles(_JsonHolds, "postgresql")
def _postgres_holds(element: _JsonHolds, compiler: Any, **options: Any) -> str:
    column, _, key, _, json = (compiler.process(it, **options) for it in element.clauses)
    lists = f"jsonb_path_exists({column} -> {key}, '$[*] ? (@.type() == \"array\")')"
    return f"(({column} -> {key}) @> CAST({json} AS JSONB) OR {lists})"


def json_holds(column: ColumnElement[Any], key: str, text: str) -> ColumnElement[bool]:
    """Whether a JSON column may have a text under a key, alone or in a list."""
    values = (f'$."{key}"', key, text, dump_json(text))
    return _JsonHolds(column, *(literal(value, Text) for value in values))


@cache
def insert_new(insert: Callable[[Table], Any], table: Table) -> Any:
    """An insert that leaves rows alone whose key is there already; built once."""
    return insert(table).on_conflict_do_nothing()


@cache
def upsert(insert: Callable[[Table], Any], table: Table, *changed: str) -> Any:
    """An insert that changes some columns of rows whose key is there already; built once."""
    statement = insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={name: statement.excluded[name] for name in changed},
    )
