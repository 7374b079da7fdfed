"""A store copied to another database while it is written to, and then closed to writers.

Spaces are copied a batch at a time: their rows as of one moment, in one transaction with their
state. A space that has the same state on both sides is therefore a copy, so that a move that was
killed goes on where it was, and catching up is copying the spaces that have another state.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from kemem.errors import Conflict, Unavailable
from kemem.store import keys, schema, tally, webhooks
from kemem.store.archive import decode_vector, stored_rows
from kemem.store.database import Database, IndexedText, Values
from kemem.store.migrate import MOVED_TO, MOVING_FROM, read_meta, write_meta
from kemem.store.postings import indexed_texts
from kemem.store.read import chunks
from kemem.store.schema import (
    agent,
    embedding_model,
    job,
    journal,
    meta,
    note,
    row_vector,
    session,
    space_state,
)
from kemem.store.spaces import FIRST_EPOCH
from kemem.store.tables import TABLES

T = TypeVar("T")
Key = tuple[Any, ...]  # the primary key of a row
Sizes = dict[str, int]  # rows by table
Snapshot = Callable[[], AbstractContextManager[sa.Connection]]

_PAGE = 500  # rows that are written together
_MOST_SPACES = 200  # that are copied together,
_MOST_ROWS = 20_000  # as far as their numbers tell
# Keys of meta that move with the rows.
_CARRIED = ("embedder", "label", "secret", FIRST_EPOCH, keys.GENERATION)
_SHORT = 1.0  # seconds of a pass that writers can wait for

# Which every store makes for itself.
_LEFT_OUT = (meta, schema.space_segment, schema.space_posting, tally.table)
_ALL = [it for it in schema.metadata.sorted_tables if it not in _LEFT_OUT]
_SHARED = [it for it in _ALL if "space_no" not in it.c or it is schema.space]
_OF_SPACES = [embedding_model, *(it for it in _ALL if it not in _SHARED)]

# Use counts and the names of sessions change without the state of their space.
_used = sa.select(note.c.space_no, sa.func.sum(note.c.use_count).label("used"))
_used_notes = _used.group_by(note.c.space_no).subquery()
_renamed = sa.select(session.c.space_no, sa.func.max(session.c.update_time).label("renamed"))
_renamed_sessions = _renamed.group_by(session.c.space_no).subquery()
_states = (
    sa.select(
        *space_state.c,
        sa.func.coalesce(_used_notes.c.used, 0),
        sa.func.coalesce(_renamed_sessions.c.renamed, 0),
    )
    .outerjoin(_used_notes, _used_notes.c.space_no == space_state.c.space_no)
    .outerjoin(_renamed_sessions, _renamed_sessions.c.space_no == space_state.c.space_no)
    .order_by(space_state.c.space_no)
)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass over the source has copied and verified."""

    spaces: int
    rows: int
    seconds: float


class Move:
    """A move from one open database to another.

    Where it ends, however that happens, another one goes on.
    """

    def __init__(self, source: Database, target: Database) -> None:
        """Refuse a target that holds anything but a copy of the source."""
        self._source, self._target = source, target
        with driver_errors(source), source.reading() as connection:
            own = read_meta(connection)
        self._secret, moved_to = own["secret"], own.get(MOVED_TO)
        fingerprint = blake2b(self._secret.encode(), digest_size=16).hexdigest()
        with driver_errors(target), target.reading() as connection:
            other = read_meta(connection)
            own_rows = (agent, job, journal, keys.table, webhooks.table)
            held = [it.name for it in own_rows if _count(connection, it)]
        begun, is_same = other.get(MOVING_FROM), other["secret"] == self._secret
        self.is_done = is_same and moved_to is not None and MOVED_TO not in other
        if self.is_done:
            return
        if is_same and MOVED_TO in other:
            raise Conflict("the destination is what was left of this store; name an empty one")
        if is_same:
            raise Conflict("both places are the same store; name another one to move to")
        if moved_to is not None and begun != fingerprint:
            raise Conflict(f"the store was moved to {moved_to} already; move it from there")
        if begun not in (None, fingerprint):
            begun_by = "the destination belongs to the unfinished move of another store"
            raise Conflict(f"{begun_by}; name an empty one")
        if begun is None and (held or MOVED_TO in other):
            rows = f"it has rows of {', '.join(held)}" if held else "it is a store that was moved"
            raise Conflict(f"the destination is not empty: {rows}; name an empty one")
        self._write(lambda it: write_meta(it, MOVING_FROM, fingerprint))

    def catch_up(self, report: Callable[[Pass], None]) -> None:
        """Copy and verify, until what is left is little, or does not become less."""
        last = float("inf")
        while True:
            done = self._pass(self._source.snapshot)
            report(done)
            if done.seconds < _SHORT or done.seconds >= last:
                return
            last = done.seconds

    def switch(self, place: str) -> tuple[Pass, Sizes]:
        """Let writers wait, copy the rest, verify, and close the source to them for good.

        The source says from now on that it is at `place`. The target opens to nobody before that;
        whatever fails until then leaves the source as it was.
        """

        def finish(
            connection: sa.Connection,
        ) -> tuple[Pass, Sizes, Mapping[str, str], Mapping[str, int]]:
            done = self._pass(lambda: nullcontext(connection))
            sizes, own = self._verify(connection), read_meta(connection)
            if MOVED_TO not in own:
                write_meta(connection, MOVED_TO, place)
                self._source.seal(connection)
            return done, sizes, own, tally.totals(connection)

        with driver_errors(self._source):
            done, sizes, own, counts = self._source.write(finish, alone=True).result()

        def open_target(connection: sa.Connection) -> None:
            for key in _CARRIED:
                if key in own:
                    write_meta(connection, key, own[key])
            tally.replace(connection, counts)
            self._target.after_restore(connection)
            connection.execute(sa.delete(meta).where(meta.c.key == MOVING_FROM))

        self._write(open_target)
        return done, sizes

    def _pass(self, snapshot: Snapshot) -> Pass:
        """Copy what is not, or no longer, as it is in the source."""
        began, rows, spaces = time.monotonic(), 0, 0
        with driver_errors(self._source), snapshot() as taken:
            if read_meta(taken)["secret"] != self._secret:
                raise Conflict("a backup was restored to the source meanwhile; run the move again")
            rows += self._transfer(taken, _SHARED)
            states = _read_states(taken)
        with driver_errors(self._target), self._target.reading() as connection:
            copied = _read_states(connection)
        for numbers in _batches({it: own for it, own in states.items() if own != copied.get(it)}):
            with driver_errors(self._source), snapshot() as taken:
                rows += self._transfer(taken, _OF_SPACES, numbers)
            spaces += len(numbers)
        return Pass(spaces, rows, time.monotonic() - began)

    def _transfer(
        self, taken: sa.Connection, tables: Sequence[sa.Table], numbers: Sequence[int] = ()
    ) -> int:
        """Make rows of some spaces, or all rows, what they are in the source; returns how many."""
        copier = _Copier(self._source, self._target, taken, numbers)
        return self._write(partial(copier.copy, tables=tables))

    def sizes(self) -> Sizes:
        """How many rows each table of the target has."""
        with driver_errors(self._target), self._target.reading() as connection:
            return {table.name: _count(connection, table) for table in _ALL}

    def _verify(self, taken: sa.Connection) -> Sizes:
        """The size of every table, which is the same on both sides, as are the states of spaces."""
        sizes = self.sizes()
        with driver_errors(self._target), self._target.reading() as connection:
            copied = _read_states(connection)
        for table in _ALL:
            if sizes[table.name] != _count(taken, table):
                raise _different(table)
        if copied != _read_states(taken):
            raise _different(space_state)
        return sizes

    def _write(self, work: Callable[[sa.Connection], T]) -> T:
        with driver_errors(self._target):
            return self._target.write(work).result()


class _Changes(NamedTuple):
    """How the rows of a table in the source differ from those in the target."""

    gone: list[Key]
    updated: set[Key]
    added: set[Key] | None  # None: all, as the target has none


class _Copier:
    """Some spaces, or what belongs to none, as of one moment of the source."""

    def __init__(
        self, source: Database, target: Database, taken: sa.Connection, numbers: Sequence[int]
    ) -> None:
        self._source, self._target, self._taken = source, target, taken
        self._numbers = numbers

    def copy(self, connection: sa.Connection, tables: Sequence[sa.Table]) -> int:
        """Write the differences, inside the caller's transaction, and verify; returns how many."""
        changes = {table: self._compare(connection, table) for table in tables}
        count = 0
        for table in reversed(tables):  # children first
            self._remove(connection, table, changes[table].gone)
            count += len(changes[table].gone)
        for table in tables:
            count += self._put(connection, table, changes[table])
            before = self._checksum(self._taken, self._source, table)
            if self._checksum(connection, self._target, table) != before:
                raise _different(table)
        return count

    def _rows(
        self, connection: sa.Connection, database: Database, table: sa.Table
    ) -> Iterator[tuple[Key, Values]]:
        is_of_spaces = "space_no" in table.c and table is not schema.space
        own: list[sa.ColumnElement[bool]]
        own = [table.c.space_no.in_(self._numbers)] if is_of_spaces else []
        if table is row_vector:  # which SQLite has by their numbers
            ranges = (_first_and_last(it) for it in self._numbers)
            own.append(sa.or_(sa.false(), *(table.c.id.between(*each) for each in ranges)))
        for row in stored_rows(connection, database, table, *own):
            yield tuple(row[it.name] for it in table.primary_key), row

    def _checksum(
        self, connection: sa.Connection, database: Database, table: sa.Table
    ) -> tuple[int, int]:
        """How many rows there are, and a sum over them that does not depend on their order."""
        count, total = 0, 0
        for _, row in self._rows(connection, database, table):
            count, total = count + 1, total + _digest(row)
        return count, total

    def _compare(self, connection: sa.Connection, table: sa.Table) -> _Changes:
        stored = {key: _digest(row) for key, row in self._rows(connection, self._target, table)}
        if not stored:
            return _Changes([], set(), None)
        updated, added = set[Key](), set[Key]()
        for key, row in self._rows(self._taken, self._source, table):
            digest = stored.pop(key, None)
            if digest is None:
                added.add(key)
            elif digest != _digest(row):
                updated.add(key)
        return _Changes([*stored], updated, added)

    def _remove(self, connection: sa.Connection, table: sa.Table, keys: Sequence[Key]) -> None:
        names = [it.name for it in table.primary_key]
        this = [table.c[name] == sa.bindparam(f"of_{name}") for name in names]
        for page in chunks(keys):
            if texts := _texts(connection, table, page):
                self._target.remove_words(connection, texts)
            values = [dict(zip((f"of_{it}" for it in names), key, strict=True)) for key in page]
            connection.execute(sa.delete(table).where(*this), values)

    def _put(self, connection: sa.Connection, table: sa.Table, changes: _Changes) -> int:
        """Write rows that are new or other; an updated row has the words that it had."""
        count, added = 0, changes.added
        if added is not None and not added and not changes.updated:
            return 0
        rows = (
            (key, row)
            for key, row in self._rows(self._taken, self._source, table)
            if added is None or key in added or key in changes.updated
        )
        while page := list(islice(rows, _PAGE)):
            for _, row in page if table is row_vector else ():
                row["vector"] = self._target.dump_vectors(decode_vector(row["vector"]))[0]
            connection.execute(_upsert(connection.dialect.name, table), [row for _, row in page])
            texts = _texts(
                connection, table, [key for key, _ in page if key not in changes.updated]
            )
            if texts:
                self._target.add_words(connection, texts)
            count += len(page)
        return count


@contextmanager
def driver_errors(database: Database) -> Iterator[None]:
    """Raise the errors of a database's driver as KeMem's."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise database.to_error(error) from None


def _different(table: sa.Table) -> Unavailable:
    return Unavailable(
        f"the copy of {table.name} is not what was copied; the source was left as it is"
    )


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def _read_states(connection: sa.Connection) -> dict[int, Key]:
    """The state of every space: another one after whatever was written to it."""
    # PostgreSQL's sums are decimal numbers.
    return {int(number): tuple(map(int, own)) for number, *own in connection.execute(_states)}


def _batches(states: Mapping[int, Key]) -> Iterator[list[int]]:
    """Spaces that are copied together."""
    batch, rows = list[int](), 0
    for number, (next_seq, *_) in states.items():
        if batch and (len(batch) >= _MOST_SPACES or rows + next_seq > _MOST_ROWS):
            yield batch
            batch, rows = [], 0
        batch.append(number)
        rows += next_seq
    if batch:
        yield batch


def _texts(connection: sa.Connection, table: sa.Table, keys: Sequence[Key]) -> list[IndexedText]:
    """What the word index has of the rows of a table; of most tables nothing."""
    for indexed in TABLES:
        if indexed.table is table and keys:
            numbers, ids = zip(*keys, strict=True)
            own = (table.c.space_no.in_(sorted({*numbers})), table.c.id.in_(ids))
            rows = connection.execute(sa.select(*indexed.columns).where(*own).order_by(table.c.id))
            return indexed_texts(indexed.load(rows))
    return []


def _digest(row: Values) -> int:
    text = json.dumps([_plain(row[name]) for name in sorted(row)], sort_keys=True)
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest())


def _plain(value: Any) -> Any:
    """A value as every engine has it: JSONB reads 1e3 as a whole number."""
    match value:
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
