"""Rows of a store written to another one: what differs, with the proof that it arrived."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from kemem.errors import Unavailable
from kemem.store import schema
from kemem.store.archive import decode_vector, stored_rows
from kemem.store.database import (
    Database,
    IndexedText,
    Values,
    columns_of,
    driver_errors,
    insert,
)
from kemem.store.halfvec import HalfvecSend, HalfVector
from kemem.store.postings import indexed_texts
from kemem.store.read import chunks
from kemem.store.schema import embedding_model, message, note_source, row_vector, space_state
from kemem.store.tables import TABLES

T = TypeVar("T")
Key = tuple[Any, ...]  # the primary key of a row
Conditions = list[sa.ColumnElement[bool]]
States = dict[Key, int]  # of rows: another one after a row has changed
Work = Callable[[sa.Connection], None]
# Is told how many rows of a table were written, or None while they are compared.
Watch = Callable[[sa.Table, int | None], None]

_PAGE = 500  # rows that are written together,
_PART = 2_000  # and committed together: where a copy ends, the next one goes on behind them
_citing = sa.select(*note_source.primary_key).join(
    message,
    sa.and_(
        message.c.space_no == note_source.c.space_no,
        message.c.message_id == note_source.c.message_id,
    ),
)
_INDEXED = {it.table: it for it in TABLES}  # whose words are searched


class _Changes(NamedTuple):
    """How the rows of a table in the source differ from those in the target."""

    gone: list[Key]
    updated: set[Key]
    added: list[Key] | None  # None: all, as the target has none


_EVERYTHING = _Changes([], set(), None)


class Copier:
    """Some spaces, or what belongs to none, as of one moment of the source.

    `known` has the states that rows had in the source when they were copied last; a table of which
    there are none is compared row by row with the target, which takes many times as long. `watch`
    hears of each page.
    """

    def __init__(
        self,
        source: Database,
        target: Database,
        taken: sa.Connection,
        numbers: Sequence[int],
        known: Mapping[sa.Table, States] | None,
        watch: Watch,
    ) -> None:
        self._source, self._target, self._taken = source, target, taken
        self._numbers, self._known, self._watch = numbers, known, watch
        self.states: dict[sa.Table, States] = {}  # of what it has copied, unless `known` is None

    def copy(self, tables: Sequence[sa.Table], write: Callable[[Work], None]) -> int:
        """Write the differences in several transactions, and verify; returns how many.

        Spaces have no state between the first and the last of them: until then they are no copies.
        """
        with driver_errors(self._target), self._target.snapshot() as connection:
            changes = {it: self._compare(connection, it) for it in tables if it is not space_state}
            self._cite_again(connection, changes)
        part, size, count = list[Work](), 0, 0
        if space_state in tables:
            part.append(self._forget_states)
        for rows, work in self._steps(changes):
            part.append(work)
            size, count = size + rows, count + rows
            if size >= _PART:
                write(partial(_do_all, works=part))
                part, size = [], 0
        part.append(partial(_verify, expected=self._expected([*changes])))
        if space_state in tables:
            for page in self._pages(space_state, _EVERYTHING):
                part.append(partial(self._put, table=space_state, page=page, updated=set()))
                count += len(page)
        write(partial(_do_all, works=part))
        return count

    def _steps(self, changes: Mapping[sa.Table, _Changes]) -> Iterator[tuple[int, Work]]:
        """What is to be done, each with its number of rows; it can be done again."""
        for table in reversed([*changes]):  # children first
            for keys in chunks(changes[table].gone):
                yield len(keys), partial(self._remove, table=table, keys=keys)
        for table, own in changes.items():
            for page in self._pages(table, own):
                yield len(page), partial(self._put, table=table, page=page, updated=own.updated)

    def _expected(self, tables: Sequence[sa.Table]) -> list[tuple[sa.Table, Conditions, int]]:
        """Tables, conditions on their rows, and how many those are in the source."""
        own = [(table, self._own(table)) for table in tables]
        return [(table, each, count_rows(self._taken, table, *each)) for table, each in own]

    def _forget_states(self, connection: sa.Connection) -> None:
        connection.execute(sa.delete(space_state).where(*self._own(space_state)))

    def _own(self, table: sa.Table) -> Conditions:
        """Conditions on the rows of a table that are to be copied."""
        if "space_no" not in table.c or table is schema.space:
            return []
        own: Conditions = [table.c.space_no.in_(self._numbers)]
        if table is row_vector:  # which SQLite has by their numbers
            ranges = (_first_and_last(it) for it in self._numbers)
            own.append(sa.or_(sa.false(), *(table.c.id.between(*each) for each in ranges)))
        return own

    def _states(self, table: sa.Table) -> States:
        state = _state(self._source.name, table)
        statement = sa.select(*table.primary_key, state).where(*self._own(table))
        options = {"yield_per": _PAGE}
        with (
            driver_errors(self._source),
            self._taken.execute(statement, execution_options=options) as rows,
        ):
            # Of texts and bytes, Python's own has 64 bits, too, and nobody can foresee it.
            return {row[:-1]: hash(row[-1]) for row in self._watched(table, rows)}

    def _digests(self, connection: sa.Connection, database: Database, table: sa.Table) -> States:
        with driver_errors(database):
            rows = stored_rows(connection, database, table, *self._own(table))
            return {key: _digest(row) for key, row in _keyed(table, self._watched(table, rows))}

    def _watched(self, table: sa.Table, rows: Iterable[T]) -> Iterator[T]:
        for number, row in enumerate(rows):
            if number % _PAGE == 0:
                self._watch(table, None)
            yield row

    def _compare(self, connection: sa.Connection, table: sa.Table) -> _Changes:
        # Models are written with every space: what is known of them with one would become wrong.
        known = self._known if table is not embedding_model else None
        if known is not None:
            self.states[table] = self._states(table)
        if known and table in known:
            before, now = known[table], self.states[table]
        else:
            before = self._digests(connection, self._target, table)
            if not before:
                return _EVERYTHING
            now = self._digests(self._taken, self._source, table)
        return _Changes(
            [key for key in before if key not in now],
            {key for key, state in now.items() if before.get(key, state) != state},
            [key for key in now if key not in before],
        )

    def _cite_again(self, connection: sa.Connection, changes: dict[sa.Table, _Changes]) -> None:
        """Add what goes with a message that is removed, and is cited again under the same id."""
        if message not in changes or not changes[message].gone:
            return
        cited, taken = changes[note_source], set[Key]()
        for keys in chunks(changes[message].gone):
            own = message.c.space_no.in_(self._numbers), message.c.id.in_([it[1] for it in keys])
            taken |= {(*row,) for row in connection.execute(_citing.where(*own))}
        again = sorted(taken.difference(cited.gone))
        if cited.added is not None and again:
            added = [*cited.added, *again]
            changes[note_source] = _Changes(cited.gone, cited.updated.difference(again), added)

    def _remove(self, connection: sa.Connection, table: sa.Table, keys: Sequence[Key]) -> None:
        names = [it.name for it in table.primary_key]
        this = [table.c[name] == sa.bindparam(f"of_{name}") for name in names]
        for page in chunks(keys):
            if table in _INDEXED:
                rows = self._rows(connection, self._target, table, page)
                self._target.remove_words(connection, _texts(table, rows.values()))
            values = [dict(zip((f"of_{it}" for it in names), key, strict=True)) for key in page]
            connection.execute(sa.delete(table).where(*this), values)

    def _pages(self, table: sa.Table, changes: _Changes) -> Iterator[dict[Key, Values]]:
        """The rows of the source that are new or other, by their keys."""
        if changes.added is None:
            rows = stored_rows(self._taken, self._source, table, *self._own(table))
            while page := dict(_keyed(table, islice(rows, _PAGE))):
                yield page
            return
        for keys in chunks([*sorted(changes.updated), *changes.added]):
            yield self._rows(self._taken, self._source, table, keys)

    def _rows(
        self, connection: sa.Connection, database: Database, table: sa.Table, keys: Sequence[Key]
    ) -> dict[Key, Values]:
        """The rows that have these keys."""
        wanted, own = {*keys}, list[sa.ColumnElement[bool]]()
        for column, each in zip(table.primary_key, zip(*keys, strict=True), strict=True):
            values = sorted({*each})
            # From the first to the last: else PostgreSQL, which knows nothing of a table that was
            # just filled, may take another index than the key's, and read the whole space.
            own += [column.in_(values), column.between(values[0], values[-1])]
        rows = stored_rows(connection, database, table, *own)
        return {key: row for key, row in _keyed(table, rows) if key in wanted}

    def _put(
        self,
        connection: sa.Connection,
        table: sa.Table,
        page: Mapping[Key, Values],
        updated: set[Key],
    ) -> None:
        """Write rows, and read them again; an updated row has the words that it had."""
        new = [row for key, row in page.items() if key not in updated]
        rows = [[*it.values()] for it in self._bound(table, new)]
        insert(connection, table, columns_of(table.c.keys(), rows))
        if len(new) < len(page):
            old = self._bound(table, [row for key, row in page.items() if key in updated])
            connection.execute(_upsert(connection.dialect.name, table), old)
        stored = self._rows(connection, self._target, table, [*page])
        if {key: _digest(row) for key, row in stored.items()} != {
            key: _digest(row) for key, row in page.items()
        }:
            raise different(table)
        if new and table in _INDEXED:
            self._target.add_words(connection, _texts(table, new))
        self._watch(table, len(page))

    def _bound(self, table: sa.Table, rows: Sequence[Values]) -> list[Values]:
        """Rows as the target takes them."""
        if table is not row_vector:
            return [*rows]
        dump = self._target.dump_vectors
        return [{**row, "vector": dump(decode_vector(row["vector"]))[0]} for row in rows]


def different(table: sa.Table) -> Unavailable:
    """The error of a copy that is none; it names its table."""
    reason = f"the copy of {table.name} is not what was copied; the source was left as it is"
    return Unavailable(reason, table=table.name)


def _do_all(connection: sa.Connection, works: Iterable[Work]) -> None:
    for work in works:
        work(connection)


def _verify(
    connection: sa.Connection, expected: Iterable[tuple[sa.Table, Conditions, int]]
) -> None:
    for table, own, count in expected:
        if count_rows(connection, table, *own) != count:
            raise different(table)


def count_rows(
    connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]
) -> int:
    """How many rows a table has."""
    counted = sa.select(sa.func.count()).select_from(table).where(*conditions)
    return int(connection.execute(counted).scalar_one())


def _keyed(table: sa.Table, rows: Iterable[Values]) -> Iterator[tuple[Key, Values]]:
    """Rows, each behind its key."""
    names = [it.name for it in table.primary_key]
    for row in rows:
        yield tuple([row[name] for name in names]), row


def _texts(table: sa.Table, rows: Iterable[Values]) -> list[IndexedText]:
    """What the word index has of the rows of a table."""
    indexed = _INDEXED[table]
    return indexed_texts(indexed.load(map(indexed.values, rows)))


def _state(dialect: str, table: sa.Table) -> Any:
    """All columns of a row as one value, which is read in a fraction of their time."""
    if dialect == "postgresql":
        shown = [HalfvecSend(it) if isinstance(it.type, HalfVector) else it for it in table.c]
        return sa.func.hashtextextended(sa.cast(sa.func.row(*shown), sa.Text), 0)
    # Of a number, JSON has the first 15 digits, and of bytes nothing.
    plain = [it for it in table.c if not isinstance(it.type, sa.Float | HalfVector)]
    exact = [sa.func.quote(it) for it in table.c if isinstance(it.type, sa.Float)]
    state: Any = sa.func.json_array(*plain, *exact, type_=sa.Text)
    for vector in (it for it in table.c if isinstance(it.type, HalfVector)):
        state = sa.cast(state.op("||")(sa.type_coerce(vector, sa.Text)), sa.LargeBinary)
    return state


def _digest(row: Values) -> int:
    """The same for a row on every engine."""
    text = json.dumps([*map(_plain, row.values())], sort_keys=True)
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest())


def _plain(value: Any) -> Any:
    """A value as every engine has it: JSONB reads 1e3 as a whole number."""
    match value:
        case str() | int() | None:
            return value
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value


def _first_and_last(space_no: int) -> tuple[int, int]:
    """The range of the ids of a space."""
    return space_no << schema.SEQ_BITS, ((space_no + 1) << schema.SEQ_BITS) - 1


@cache
def _upsert(dialect: str, table: sa.Table) -> Any:
    """A row in the place of the one that has its key."""
    statement: Any = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    key = [it.name for it in table.primary_key]
    new = {it.name: statement.excluded[it.name] for it in table.c if it.name not in key}
    if not new:
        return statement.on_conflict_do_nothing(index_elements=key)
    if dialect == "sqlite" and table is row_vector:
        key = ["id"]  # which is unique in a store, and the key there
    return statement.on_conflict_do_update(index_elements=key, set_=new)
