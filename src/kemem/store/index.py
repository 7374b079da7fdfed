"""The columns of whole spaces that searches rank by, cached in memory and always current.

Every search first reads the counters of its spaces from the database: new rows are appended, and
when rows were removed, the cache entry is dropped. So no write of another process is missed.
"""

import logging
import platform
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from kemem.records import Matrix
from kemem.store import codes, postings, segments
from kemem.store.columns import (
    KIND_NUMBER,
    KINDS,
    SEPARATOR,
    CacheEntry,
    Ids,
    ModelColumns,
    NewRows,
    SpaceSnapshot,
    rows_of_segment,
)
from kemem.store.database import Database, Joined, Space, bound, in_list
from kemem.store.postings import indexed_texts, lookup, mark_rows, numbers_in
from kemem.store.read import CHUNK
from kemem.store.schema import SEQ_BITS, row_vector
from kemem.store.tables import TABLES, RowTable, notes
from kemem.text.query import ASKING

_FEW = 500  # missing vectors that are looked up one by one
_PAGE = 8192  # vectors that are read at once

# Every number of 16 bits as one of 32. Some processors convert them faster than a table does.
_FLOATS = None
if platform.machine() not in ("aarch64", "arm64"):
    _FLOATS = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_STORED = 8  # segments that are stored by one transaction
_MODELS = 2  # of which a space has vectors while the embedder changes

log = logging.getLogger("kemem")


def _new_rows(rows: RowTable[Any]) -> sa.Select[*tuple[Any, ...]]:
    columns = rows.table.c
    kind = sa.case(KIND_NUMBER, value=columns.kind if rows is notes else columns.role)
    found = () if rows is notes else (~columns.withdrawn,)  # no search knows withdrawn messages
    return sa.select(
        *(Joined(columns.id), Joined(rows.time), Joined(columns.length * len(KINDS) + kind)),
        sa.func.aggregate_strings(sa.func.coalesce(columns.session_id, ""), SEPARATOR),
        sa.func.aggregate_strings(rows.name, SEPARATOR),
    ).where(
        *(columns.space_no == sa.bindparam("space_no"), *found),
        *(columns.id > sa.bindparam("after"), columns.id < sa.bindparam("before")),
    )


_rows_between = sa.union_all(*map(_new_rows, TABLES))


class SpaceCache:
    """The columns of the spaces used last, within a budget of bytes."""

    def __init__(self, database: Database, budget: int) -> None:
        self._database = database
        self._budget = budget
        self.later = deque[Callable[[], None]]()  # what a search leaves to be done after it
        self._entries: OrderedDict[int, CacheEntry] = OrderedDict()
        self._used = 0
        self._builds = False  # a block of common phrases
        self._lock = threading.Lock()
        key, vector = row_vector.c.id, row_vector.c.vector
        this_model = sa.and_(*bound(row_vector, space_no="space_no", model_no="model_no"))
        rows = sa.select(Joined(key), database.joined_vectors(vector)).where(this_model)
        self._vector_page = rows.where(key.between(sa.bindparam("first"), sa.bindparam("last")))
        self._few_vectors = rows.where(in_list(key, "keys"))

    def snapshot(
        self,
        connection: sa.Connection,
        space: Space,
        *,
        session_id: str | None = None,
        model: tuple[int, int] | None = None,
    ) -> SpaceSnapshot:
        """The current columns of a space; with `model` (number, width) its vectors too."""
        entry = self._entry(space)
        with entry.lock:
            self._add_rows(connection, space, entry)
            made = self._add_vectors(connection, space, entry, *(model or (0, 0)))
            count = len(entry.columns["ids"].rows)
            rows: dict[str, Any] = entry.derived
            rows |= {name: column.rows[:count] for name, column in entry.columns.items()}
            rows |= {"vectors": made.vectors.rows, "embedded": made.embedded.rows.copy()}
            rows |= {"name_bytes": entry.name_bytes.rows}
            planes = tuple(it.rows for it in made.planes) if made.coded else ()
            number = -1 if session_id is None else entry.session_numbers.get(session_id, -1)
            snapshot = SpaceSnapshot(
                space=space,
                **rows,
                planes=planes,
                session_no=number,
            )
            block = self._missing_block(connection, space, entry)
            missing = _missing_segments(snapshot, entry, {segments.COLUMNS, (model or (0,))[0]})
            session_ids = [*entry.session_numbers] if missing else []
        self._evict(space.space_no, entry)
        for kind, some in missing:
            store = partial(_store, snapshot, session_ids, kind, some)
            self._database.write(store, durable=False)
        if block is not None:
            self.later.append(partial(self._build_block, space, block))
        if model and planes and count <= codes.EXACT:
            if made.is_used:  # who asks once does not wait for the processor that this takes
                self.later.append(partial(self._load_all, space, entry, made, *model))
            made.is_used = True
        return snapshot

    def _missing_block(
        self, connection: sa.Connection, space: Space, entry: CacheEntry
    ) -> int | None:
        """A block of common phrases that is to be built, unless another one is being built."""
        count = space.next_seq // postings.BLOCK
        if not count or self._builds:
            return None
        if entry.blocks is None:
            entry.blocks = postings.numbers(connection, space.space_no)
        number = min({*range(count)} - entry.blocks, default=None)
        if number is not None:
            self._builds = True
            entry.blocks.add(number)
        return number

    def _build_block(self, space: Space, number: int) -> None:
        try:
            postings.build(self._database, space, number)
        except sa.exc.SQLAlchemyError as error:  # the word index answers all the same
            log.warning("a block of common phrases was not stored: %s", type(error).__name__)
        finally:
            self._builds = False

    def _entry(self, space: Space) -> CacheEntry:
        with self._lock:
            entry = self._entries.get(space.space_no)
            if entry is not None and entry.epoch > space.epoch:
                # This reader began before rows went: what it sees must not get into the cache.
                return CacheEntry(space.epoch)
            if entry is None or entry.epoch < space.epoch:
                self._used -= entry.counted if entry else 0
                entry = self._entries[space.space_no] = CacheEntry(space.epoch)
            self._entries.move_to_end(space.space_no)
            return entry

    def _evict(self, space_no: int, grown: CacheEntry) -> None:
        """Count what an entry has grown by, and drop those not used for longest."""
        with self._lock:
            if self._entries.get(space_no) is not grown:
                return
            used = grown.bytes
            self._used += used - grown.counted
            grown.counted = used
            while self._used > self._budget and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                self._used -= oldest.counted

    def _add_rows(self, connection: sa.Connection, space: Space, entry: CacheEntry) -> None:
        if entry.next_seq >= space.next_seq:
            return
        ids = entry.columns["ids"].rows
        last = int(ids[-1]) if len(ids) else space.first_id
        is_large = not len(ids) and space.next_seq > segments.LEAST
        parts = segments.load(connection, space.space_no, segments.COLUMNS) if is_large else ()
        for number, body in parts:
            first = space.first_id + number * segments.SIZE
            if rows := NewRows.of_segment(body, space.first_id):
                self._read_rows(connection, space, entry, last, first)
                if not entry.stored[segments.COLUMNS]:
                    entry.reserve(space.next_seq, rows)
                entry.append(rows)
                entry.stored[segments.COLUMNS].add(number)
                last = first + segments.SIZE - 1
        self._read_rows(connection, space, entry, last, space.first_id + (1 << SEQ_BITS))
        entry.next_seq = space.next_seq

    def _read_rows(
        self, connection: sa.Connection, space: Space, entry: CacheEntry, after: int, before: int
    ) -> None:
        """The rows between two ids."""
        bounds = {"space_no": space.space_no, "after": after, "before": before}
        if before - after < 2:
            return
        rows = [row for row in connection.execute(_rows_between, bounds) if row[0]]
        if not rows:  # all is read before anything grows: a failure leaves columns of one length
            return
        (asking,) = lookup(connection, self._database, [(space, ASKING, after + 1, before - 1)])
        numbers = [np.concatenate([numbers_in(row[at]) for row in rows]) for at in range(3)]
        lengths, kinds = np.divmod(numbers.pop(), len(KINDS))
        places: defaultdict[str, int] = defaultdict()
        places.default_factory = places.__len__  # the next number
        session_ids = [it for row in rows for it in row[3].split(SEPARATOR)]
        sessions = np.fromiter(map(places.__getitem__, session_ids), np.int64, len(session_ids))
        name_bytes = np.frombuffer(SEPARATOR.join(row[4] for row in rows).encode(), np.uint8)
        ends = np.append(np.flatnonzero(name_bytes == ord(SEPARATOR)), len(name_bytes))
        starts = np.append(0, ends[:-1] + 1)
        order = np.argsort(numbers[0], kind="stable")
        values = (*numbers, lengths, kinds, starts, ends - starts)
        names = ("ids", "times", "lengths", "kinds", "name_starts", "name_sizes")
        columns = {name: new[order] for name, new in zip(names, values, strict=True)}
        columns["asks"] = np.zeros(len(order), np.bool_)
        mark_rows(columns["asks"], columns["ids"], asking)
        entry.append(NewRows(columns, name_bytes, sessions[order], [*places]))

    def _add_vectors(
        self, connection: sa.Connection, space: Space, entry: CacheEntry, model_no: int, width: int
    ) -> ModelColumns:
        """The columns of a model, brought up to date; the model 0 has no vectors."""
        if not model_no:
            return ModelColumns(width)
        made = entry.models.setdefault(model_no, ModelColumns(width))
        entry.models.move_to_end(model_no)
        if len(entry.models) > _MODELS:
            entry.models.popitem(last=False)
        ids = entry.columns["ids"].rows
        fresh = len(ids) - len(made.embedded.rows)
        stored = set[int]()
        if made.writes < 0 and space.next_seq > segments.LEAST:
            stored = segments.numbers(connection, space.space_no, model_no)
            made.coded = len(stored) == space.next_seq // segments.SIZE
        if fresh:
            made.grow(fresh)
        if made.writes >= space.vector_writes and not fresh:
            return made
        entry.stored[model_no].update(stored)
        is_coded = stored and made.coded
        parts = segments.load(connection, space.space_no, model_no) if is_coded else ()
        for number, body in parts:
            made.put_segment(rows_of_segment(space, ids, number), body)
        self._read_vectors(connection, space, model_no, ids, made)
        return made

    def _load_all(
        self, space: Space, entry: CacheEntry, coded: ModelColumns, model_no: int, width: int
    ) -> None:
        """Put all vectors of a space that is not too large in the place of their signs."""
        with entry.lock:
            ids = entry.columns["ids"].rows
            if coded.is_replaced or entry.models.get(model_no) is not coded:
                return
            coded.is_replaced = True
        exact = ModelColumns(width)
        exact.grow(len(ids))
        with self._database.reading() as connection:
            self._read_vectors(connection, space, model_no, ids, exact)
        with entry.lock:
            if entry.models.get(model_no) is coded:
                entry.models[model_no] = exact
        self._evict(space.space_no, entry)

    def _read_vectors(
        self, connection: sa.Connection, space: Space, model_no: int, ids: Ids, made: ModelColumns
    ) -> None:
        """The vectors that are missing among the columns of a model."""
        embedded = made.embedded.rows
        few = np.count_nonzero(~embedded) <= _FEW
        values: dict[str, Any] = {"space_no": space.space_no, "model_no": model_no}
        statement = self._few_vectors if few else self._vector_page
        size = max(len(ids), 1) if few else _PAGE
        for start in range(0, len(ids), size):
            place = slice(start, start + size)
            page = ids[place]
            missing = page[~embedded[place]].tolist()
            if not missing:
                continue
            values |= {"keys": missing} if few else {"first": missing[0], "last": missing[-1]}
            numbers, blob = connection.execute(statement, values).one()
            if not numbers:
                continue
            keys = numbers_in(numbers)
            halves = self._database.load_halves(blob, len(keys))
            if np.array_equal(keys, page) and not made.coded:
                _load(halves, made.vectors.rows[place])
                embedded[place] = True
            else:
                at = np.minimum(np.searchsorted(ids, keys), len(ids) - 1)
                present = ids[at] == keys
                made.put(at[present], _load(halves[present]))
        made.writes = space.vector_writes

    def read_vectors(self, connection: sa.Connection, model_no: int, keys: Ids) -> Matrix:
        """The vectors that a model made of rows of one space."""
        values = {"space_no": int(keys[0]) >> SEQ_BITS, "model_no": model_no, "keys": keys.tolist()}
        numbers, blob = connection.execute(self._few_vectors, values).one()
        known = numbers_in(numbers)
        vectors = _load(self._database.load_halves(blob, len(known)))
        order = np.argsort(known)
        return np.asarray(vectors[order[np.searchsorted(known, keys, sorter=order)]])


def _missing_segments(
    snapshot: SpaceSnapshot, entry: CacheEntry, kinds: set[int]
) -> list[tuple[int, list[int]]]:
    """The segments that are to be stored, a few together; those of a model once they are whole."""
    space, missing = snapshot.space, list[tuple[int, list[int]]]()
    if space.next_seq <= segments.LEAST:
        return missing
    for kind in kinds:
        numbers = [
            it
            for it in range(space.next_seq // segments.SIZE)
            if it not in entry.stored[kind]
            if kind == segments.COLUMNS
            or snapshot.embedded[rows_of_segment(space, snapshot.ids, it)].all()
        ]
        entry.stored[kind].update(numbers)
        missing += [(kind, numbers[at : at + _STORED]) for at in range(0, len(numbers), _STORED)]
    return missing


def _store(
    snapshot: SpaceSnapshot,
    session_ids: list[str],
    kind: int,
    numbers: list[int],
    connection: sa.Connection,
) -> None:
    bodies = {
        number: snapshot.coded_segment(number) if kind else snapshot.segment(number, session_ids)
        for number in numbers
    }
    segments.put(connection, snapshot.space, kind, bodies)


def _load(halves: NDArray[np.uint16], place: Matrix | None = None) -> Matrix:
    """Vectors of 16 bits as 32 bits and scaled to length 1, so that a product is a cosine."""
    place = np.empty(halves.shape, np.float32) if place is None else place
    for start in range(0, len(halves), 256):  # pieces that stay in the processor's cache
        rows, piece = place[start : start + 256], halves[start : start + 256]
        if _FLOATS is None:
            rows[:] = piece.view(np.float16)
        else:
            np.take(_FLOATS, piece, out=rows, mode="clip")
        rows /= np.sqrt(np.vecdot(rows, rows))[:, np.newaxis]
    return place


def rebuild_words(connection: sa.Connection, database: Database) -> None:
    """Empty the word index and derive it again from messages and notes."""
    segments.clear(connection)
    postings.clear(connection)
    database.clear_words(connection)
    for table in TABLES:
        key = sa.tuple_(table.table.c.space_no, table.table.c.id)
        page = sa.select(*table.columns).order_by(*key.clauses).limit(CHUNK)
        rows = table.load(connection.execute(page))
        while rows:
            database.add_words(connection, indexed_texts(rows))
            last = sa.tuple_(rows[-1].space_no, rows[-1].id)
            rows = table.load(connection.execute(page.where(key > last)))
