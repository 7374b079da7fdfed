"""What the two engines do differently, as one small interface."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from json import JSONDecoder
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType

from kemem.errors import KeMemError
from kemem.records import Matrix
from kemem.store.halfvec import HalfVector, HalfVectors
from kemem.store.pipeline import defer
from kemem.store.schema import DISABLED_SESSION, SEQ_BITS, Verbatim, dump_json
from kemem.text.query import Phrase

T = TypeVar("T")
K = TypeVar("K")
Statement = sa.Select[*tuple[Any, ...]]
Values = dict[str, Any]
# Execution options of a statement whose `rowcount`, or whose failure, is of interest at once.
COUNTED = {"preserve_rowcount": True}
_decoder: Any = JSONDecoder()
_FEW = 50  # values that a plan which was made for others may compare each row with


@dataclass(frozen=True, slots=True)
class Space:
    """One (agent, user) pair, and the state that tells a cache whether it is current."""

    space_no: int
    agent_id: str
    user_id: str
    next_seq: int
    epoch: int
    vector_writes: int
    disabled: Literal["agent", "user"] | None  # which of the two is, if one is

    @property
    def first_id(self) -> int:
        """The id of sequence number 0."""
        return self.space_no << SEQ_BITS


# Rows of a space with a phrase, from the first to the last of these ids.
Lookup = tuple[Space, Phrase, int, int]


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The search text of one row."""

    space_no: int
    id: int
    text: str


class Database(Protocol):
    """An engine: how it connects, and its own forms of words and vectors."""

    name: str
    readers: int  # how many can read at once
    finds_in_ranges: bool  # whether its word index finds rows of a range without those of others

    def open(self, *, moving: bool = False) -> None:
        """Connect; create or migrate the tables.

        A store that was moved elsewhere, or is being filled by a move, opens only for `moving`.
        """

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """A connection for reads."""

    def snapshot(self) -> AbstractContextManager[sa.Connection]:
        """A connection beside those for reads, which sees one moment however long it lasts."""

    def write(
        self, work: Callable[[sa.Connection], T], durable: bool = True, alone: bool = False
    ) -> Future[T]:
        """Do work in a transaction; the future is done when that is committed.

        What is not `durable` may be taken back by a power failure, wholly, and must be derivable.
        Beside work that is to be `alone` no other is done.
        """

    def after_restore(self, connection: sa.Connection) -> None:
        """Number new rows above those that came, and let no read that began before see them."""

    def purge(self) -> None:
        """Overwrite what erased rows have left in files of this database, as far as it can."""

    def seal(self, connection: sa.Connection, place: str) -> None:
        """Refuse every later write of any process, and name the place; reads go on."""

    def filling(self) -> AbstractContextManager[Callable[[], None]]:
        """Let nobody else fill this store; yields what raises once that is not so any more."""

    def close(self) -> None:
        """Finish the writes and disconnect."""

    def to_error(self, error: sa.exc.DBAPIError) -> KeMemError:
        """A driver's error as one of KeMem's, without internals."""

    def create(self, connection: sa.Connection) -> None:
        """The tables, and what the engine's words and vectors need."""

    def seed_statistics(self, connection: sa.Connection) -> None:
        """Tell a planner that does not count rows itself how large tables are."""

    def add_words(self, connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
        """Put rows into the word index."""

    def remove_words(self, connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
        """Take rows out of the word index; the texts are those that were added."""

    def clear_words(self, connection: sa.Connection) -> None:
        """Empty the word index."""

    def phrase_query(self, lookups: Sequence[Lookup]) -> tuple[sa.Executable, Values]:
        """A statement, with its values, that answers with (number of a lookup, its rows).

        The rows are sequence numbers joined by commas.
        """

    def joined_vectors(self, column: Any) -> Any:
        """All vectors of a column as one value: fetched in half the time that rows take."""

    def dump_vectors(self, matrix: Matrix) -> list[Any]:
        """Vectors as they are bound."""

    def load_halves(self, joined: bytes, count: int) -> NDArray[np.uint16]:
        """The bits of `count` vectors from what was selected."""


@contextmanager
def driver_errors(database: Database) -> Iterator[None]:
    """Raise the errors of a database's driver as KeMem's."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise database.to_error(error) from None


def load_json(text: str) -> Any:
    """What `dump_json` has written, in a third of the time of `json.loads`."""
    return _decoder.scan_once(text, 0)[0]


def group(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by what a function tells of them."""
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def equal(table: sa.Table, **values: Any) -> list[sa.ColumnElement[bool]]:
    """Conditions on the columns that have a value; None is none."""
    return [table.c[name] == value for name, value in values.items() if value is not None]


def bound(table: sa.Table, **parameters: str) -> list[sa.ColumnElement[bool]]:
    """Conditions on columns whose values are bound under these names."""
    return [table.c[name] == sa.bindparam(parameter) for name, parameter in parameters.items()]


class _List(sa.TypeDecorator[list[Any]]):
    """Any number of values bound at once: JSON on SQLite, an array on PostgreSQL."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, element: sa.types.TypeEngine[Any]) -> None:
        super().__init__()
        self.element = element

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(sa.Text())
        numbers = self.element.python_type is int
        return _Array(sa.BigInteger() if numbers else sa.Text(), "BIGINT" if numbers else "TEXT")

    def process_bind_param(self, value: list[Any] | None, dialect: sa.Dialect) -> Any:
        if value and isinstance(self.element, sa.TypeDecorator):  # each as its column stores it
            value = [self.element.process_bind_param(it, dialect) for it in value]
        return value if dialect.name == "postgresql" else dump_json(value)


class _Expression(FunctionElement[Any]):
    """What each engine writes in its own way; {0}, {1}, … stand for its arguments."""

    type: sa.types.TypeEngine[Any] = sa.Boolean()
    sql: ClassVar[Mapping[str, str]]  # by the name of the dialect

    def self_group(self, against: Any = None) -> Any:
        return self  # else SQLite gets "= 1" behind it, and looks at every row


@compiles(_Expression)
def _compile(element: _Expression, compiler: Any, **options: Any) -> str:
    arguments = [compiler.process(it, **options) for it in element.clauses]
    return element.sql[compiler.dialect.name].format(*arguments)


class _InList(_Expression):
    inherit_cache = True
    sql: ClassVar = {
        "sqlite": "{0} IN (SELECT value FROM json_each({1}))",
        "postgresql": "{0} = ANY({1})",
    }


class _JsonHolds(_Expression):  # {1}: path, {2}: key, {3}: text, {4}: the text as JSON
    inherit_cache = True
    sql: ClassVar = {
        "sqlite": "EXISTS (SELECT 1 FROM json_each({0}, {1})"
        " WHERE type = 'array' OR (type = 'text' AND value = {3}))",
        "postgresql": "(({0} -> {2}) @> CAST({4} AS JSONB)"
        " OR jsonb_path_exists({0} -> {2}, '$[*] ? (@.type() == \"array\")'))",
    }


class Joined(_Expression):
    """All numbers of a column in one text: a fifth of the time that fetching rows takes."""

    inherit_cache = True
    type = sa.Text()
    sql: ClassVar = {
        "sqlite": "trim(json_group_array({0}), '[]')",  # in two thirds of group_concat's time
        "postgresql": "string_agg(CAST({0} AS TEXT), ',')",
    }


def in_list(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """A column that has one of the values bound under a name, however many there are."""
    return _InList(column, sa.bindparam(name, type_=_List(column.type)))


def planned_for(values: Sequence[Any]) -> dict[str, bool]:
    """Execution options of a statement with a list of values.

    PostgreSQL may compare every row of a space with every value of a list unless it knows the list
    when it makes the plan.
    """
    return {"replan": len(values) > _FEW}


def json_holds(column: sa.ColumnElement[Any], key: str, text: str) -> sa.ColumnElement[bool]:
    """Whether a JSON column has a text under a key, alone or in a list; lists in lists pass."""
    values = (f'$."{key}"', key, text, dump_json(text))
    return _JsonHolds(column, *(sa.literal(value, sa.Text) for value in values))


@cache
def _upsert(dialect: str, table: sa.Table, names: tuple[str, ...], changed: tuple[str, ...]) -> Any:
    statement: Any = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    statement = statement.values(_scalars(table, names))
    if not changed:
        return statement.on_conflict_do_nothing()
    new = {name: statement.excluded[name] for name in changed}
    enabled = table.c.status != DISABLED_SESSION if "status" in changed else None
    key = list(table.primary_key)
    return statement.on_conflict_do_update(index_elements=key, set_=new, where=enabled)


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Values], *changed: str
) -> None:
    """Insert rows; where the key of one is there already, change these columns, if any.

    A session that is disabled is left as it is.
    """
    if rows:
        names, dialect = tuple(rows[0]), connection.dialect.name
        change(connection, table, _upsert(dialect, table, names, changed), rows)


def change(
    connection: sa.Connection, table: sa.Table, statement: sa.Executable, rows: Sequence[Values]
) -> None:
    """Execute a statement that changes rows of a table once with each of these values."""
    if len(rows) == 1:
        defer(connection, table, statement, rows[0])
    elif rows:
        connection.execute(statement, rows)


def _scalars(table: sa.Table, names: Iterable[str]) -> dict[str, Any]:
    return {name: sa.bindparam(name, type_=table.c[name].type) for name in names}


SENT = 200  # rows that a server is sent at once, and works on while the next ones are prepared


@cache
def insert_of(table: sa.Table, arrays: tuple[str, ...], scalars: tuple[str, ...]) -> Any:
    """An INSERT of all rows in one statement, for PostgreSQL.

    A column is bound as an array, or as the one value that all of its rows have.
    """
    if not arrays:
        return postgresql.insert(table).values(_scalars(table, scalars))
    types = [table.c[it].type for it in arrays]
    columns = [
        sa.bindparam(it, type_=HalfVectors() if isinstance(kind, HalfVector) else _Array(kind))
        for it, kind in zip(arrays, types, strict=True)
    ]
    rows = sa.func.unnest(*columns).table_valued(*(sa.column(it) for it in arrays))
    rows = rows.render_derived(name="new")
    values = [  # no text is cast: one too long would be cut without a word
        rows.c[it] if isinstance(kind, sa.String | Verbatim) else sa.cast(rows.c[it], kind)
        for it, kind in zip(arrays, types, strict=True)
    ]
    every = sa.select(*values, *_scalars(table, scalars).values())
    new = postgresql.insert(table)
    return new.from_select((*arrays, *scalars), every, include_defaults=False)


class _Array(UserDefinedType[Sequence[Any]]):
    """Values of a type, as an array of texts or numbers: in a tenth of the driver's time."""

    cache_ok = True
    render_bind_cast = True

    def __init__(self, element: sa.types.TypeEngine[Any], name: str = "TEXT") -> None:
        self.element, self.name = element, name

    def get_col_spec(self, **options: Any) -> str:
        return f"{self.name}[]"

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], str]:
        own = self.element.dialect_impl(dialect).bind_processor(dialect)
        if isinstance(self.element, sa.JSON):  # of which the driver would get an object of its own
            own = _dump_unless_none

        def process(values: Sequence[Any]) -> str:
            texts = values if own is None else [*map(own, values)]
            return "{" + _listed(texts) + "}"

        return process


def _listed(values: Sequence[Any]) -> str:
    """The elements of an array as PostgreSQL reads them."""
    kinds = {*map(type, values)}
    if kinds == {int}:
        return ",".join(map(str, values))
    if kinds == {str}:
        plain = '"' + '","'.join(values) + '"'
        if "\\" not in plain and plain.count('"') == 2 * len(values):
            return plain
    return ",".join(map(_quoted, values))


def _dump_unless_none(value: Any) -> str | None:
    return None if value is None else dump_json(value)


def _quoted(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return "NULL" if value is None else str(value)


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Rows as columns of these names."""
    return dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))


def insert(
    connection: sa.Connection, table: sa.Table, columns: Mapping[str, Sequence[Any]]
) -> None:
    """Insert rows, given as the values of each column."""
    names, count = tuple(columns), len(next(iter(columns.values())))
    if connection.dialect.name != "postgresql":
        rows = [dict(zip(names, it, strict=True)) for it in zip(*columns.values(), strict=True)]
        if rows:
            connection.execute(sa.insert(table), rows)
        return
    for start in range(0, count, SENT):
        some = {name: values[start : start + SENT] for name, values in columns.items()}
        same = {name: it[0] for name, it in some.items() if it.count(it[0]) == len(it)}
        arrays = tuple(name for name in names if name not in same)
        defer(connection, table, insert_of(table, arrays, tuple(same)), {**some, **same})
