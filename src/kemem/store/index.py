"""The columns of whole spaces that searches rank by, cached in memory and always current.

Every search first reads the counters of its spaces from the database: new rows are appended, and
when rows were removed, the cache entry is dropped. So no write of another process is missed.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    Column,
    Connection,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    func,
    select,
    union_all,
)

from kemem.records import MESSAGES, NOTE_KINDS, NOTES, ROLES, Matrix, Where
from kemem.store.database import Database, Space, in_list
from kemem.store.schema import message, note, row_vector
from kemem.store.words import Postings, lookup, mark_rows, numbers_in
from kemem.text.query import ASKING, Mask
from kemem.text.rank import Conversation

_ENTRY_BYTES = 4096  # of an empty cache entry
_NAME_BYTES = 96  # of an id as Python keeps it
_FEW = 500  # missing vectors that are looked up one by one
_PAGE = 8192  # vectors that are read at once
_SEPARATOR = "\x1f"  # no id contains it

KINDS = (*ROLES, *NOTE_KINDS)  # a row is a message of some role, or a note of some kind
_KIND_NUMBER = {name: number for number, name in enumerate(KINDS)}
_FLOATS = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def _joined(column: Any) -> Any:
    """All values of a column in one text: a fifth of the time that fetching rows takes."""
    return func.aggregate_strings(cast(column, Text), ",")


def _new_rows(table: Table, time: Column[int], kind: Column[str]) -> Select[*tuple[Any, ...]]:
    return select(
        _joined(table.c.id),
        _joined(time),
        _joined(table.c.length),
        func.aggregate_strings(kind, ","),
        func.aggregate_strings(func.coalesce(table.c.session_id, ""), _SEPARATOR),
    ).where(table.c.space_no == bindparam("space_no"), table.c.id > bindparam("last_id"))


_rows_after = union_all(
    _new_rows(message, message.c.create_time, message.c.role),
    _new_rows(note, note.c.event_time, note.c.kind),
)


def _names(table: Table, name: Column[str]) -> Select[*tuple[Any, ...]]:
    of_space = table.c.space_no.in_(bindparam("spaces", expanding=True))
    return select(table.c.id, name).where(of_space, in_list(table.c.id, "keys"))


_names_of = union_all(_names(message, message.c.message_id), _names(note, note.c.note_id))


class AppendArray:
    """An array that rows can be appended to; slices handed out earlier stay as they were."""

    def __init__(self, dtype: str, width: int | None = None) -> None:
        self._buffer: NDArray[Any] = np.zeros((0,) if width is None else (0, width), dtype)
        self._size = 0

    @property
    def rows(self) -> NDArray[Any]:
        return self._buffer[: self._size]

    def extend(self, rows: NDArray[Any]) -> None:
        self.grow(len(rows))[...] = rows

    def grow(self, count: int) -> NDArray[Any]:
        """The place of `count` more rows, which are 0."""
        size = self._size + count
        if size > len(self._buffer):
            room = size if not self._size else size * 5 // 4
            grown = np.zeros((room, *self._buffer.shape[1:]), self._buffer.dtype)
            grown[: self._size] = self.rows
            self._buffer = grown
        added = self._buffer[self._size : size]
        self._size = size
        return added

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes


@dataclass(frozen=True, slots=True)
class SpaceSnapshot:
    """The columns of a space at one moment."""

    space: Space
    ids: NDArray[np.int64]
    names: NDArray[Any]  # what callers know rows by; None where nobody asked yet
    times: NDArray[np.int64]
    lengths: NDArray[np.int64]
    kinds: NDArray[np.int8]
    asks: Mask
    sessions: NDArray[np.int32]
    session_no: int  # the number of the session asked for; -1: it has no rows
    vectors: Matrix
    embedded: Mask
    talks: dict[int, Conversation]  # of all messages among the first rows, one for now
    postings: Postings  # of common phrases

    def upto(self, end: int) -> "SpaceSnapshot":
        """The first rows only."""
        if end == len(self.ids):
            return self
        columns = ("ids", "names", "times", "lengths", "kinds", "asks", "sessions")
        rows = {name: getattr(self, name)[:end] for name in (*columns, "vectors", "embedded")}
        return replace(self, **rows)

    @property
    def has_notes(self) -> bool:
        return bool((self.kinds >= len(ROLES)).any())

    def talk(self, seen: Mask) -> Conversation:
        """The conversations of the messages that are seen."""
        size = len(self.ids)
        everything = np.count_nonzero(seen) == np.count_nonzero(self.kinds < len(ROLES))
        talk = self.talks.get(size) if everything else None
        if talk is None:
            sessions = self.sessions.astype(np.int64)
            talk = Conversation.of(sessions, self.times, self.kinds, self.asks, seen)
            if everything:
                self.talks.clear()
                self.talks[size] = talk
        return talk

    def counted(self, kinds: frozenset[str]) -> Mask:
        """Rows of some kinds: those that make up the statistics of a search."""
        return _chosen(kinds, None)[self.kinds]

    def visible(self, where: Where) -> Mask:
        """Rows that a Where admits as far as the columns tell, which hold no contents."""
        kinds = where.kinds
        shared = (self.space.agent_id, self.space.user_id) == (where.shared, "")
        mask = _chosen(kinds - MESSAGES if shared else kinds, where.role)[self.kinds]
        if where.since is not None:
            mask &= self.times >= where.since
        if where.until is not None:
            mask &= self.times < where.until
        if where.known_by is not None:  # when notes began, only their rows tell
            mask &= (self.times <= where.known_by) | (self.kinds >= len(ROLES))
        if where.scope.session_id is not None and not shared:
            mask &= self.sessions == self.session_no
        return mask


def _chosen(kinds: frozenset[str], role: str | None) -> Mask:
    """For each kind of row whether it is meant; a role means messages only."""
    roles = {role} & set(ROLES) if role is not None else set(ROLES)
    wanted = roles if "message" in kinds else set[str]()
    if role is None:
        wanted |= kinds & NOTES
    return np.array([kind in wanted for kind in KINDS], dtype=np.bool_)


def load_names(
    connection: Connection, snapshots: Sequence[SpaceSnapshot], rows: Sequence[NDArray[np.intp]]
) -> None:
    """Learn the names of some rows of each snapshot, in one statement."""
    pairs = [
        (snapshot, at[[name is None for name in snapshot.names[at]]])
        for snapshot, at in zip(snapshots, rows, strict=True)
    ]
    keys = [key for snapshot, at in pairs for key in snapshot.ids[at].tolist()]
    if not keys:
        return
    values = {"spaces": [it.space.space_no for it in snapshots], "keys": keys}
    names: dict[int, str] = {key: name for key, name in connection.execute(_names_of, values)}
    for snapshot, at in pairs:
        snapshot.names[at] = [names.get(key, "") for key in snapshot.ids[at].tolist()]


def _numbering() -> dict[str, int]:
    """A dict that gives each new key the next number."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


@dataclass(slots=True)
class _CacheEntry:
    """The columns of one space."""

    epoch: int
    next_seq: int = 0
    vector_writes: int = -1
    model_no: int | None = None
    ids: AppendArray = field(default_factory=lambda: AppendArray("i8"))
    names: AppendArray = field(default_factory=lambda: AppendArray("O"))
    times: AppendArray = field(default_factory=lambda: AppendArray("i8"))
    lengths: AppendArray = field(default_factory=lambda: AppendArray("i8"))
    kinds: AppendArray = field(default_factory=lambda: AppendArray("i1"))
    asks: AppendArray = field(default_factory=lambda: AppendArray("?"))
    sessions: AppendArray = field(default_factory=lambda: AppendArray("i4"))
    session_numbers: dict[str, int] = field(default_factory=_numbering)
    vectors: AppendArray = field(default_factory=lambda: AppendArray("f4", 0))
    embedded: AppendArray = field(default_factory=lambda: AppendArray("?"))
    talks: dict[int, Conversation] = field(default_factory=dict)
    postings: Postings = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counted: int = 0  # bytes that the budget includes

    @property
    def bytes(self) -> int:
        columns = (self.ids, self.times, self.lengths, self.kinds, self.asks, self.sessions)
        arrays = sum(each.bytes for each in (*columns, self.names, self.vectors, self.embedded))
        postings = sum(rows.nbytes for _, rows in [*self.postings.values()])
        return arrays + postings + _NAME_BYTES * len(self.names.rows) + _ENTRY_BYTES


class SpaceCache:
    """The columns of the spaces used last, within a budget of bytes."""

    def __init__(self, database: Database, budget: int) -> None:
        self._database = database
        self._budget = budget
        self._entries: OrderedDict[int, _CacheEntry] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()
        this_model = (
            row_vector.c.space_no == bindparam("space_no"),
            row_vector.c.model_no == bindparam("model_no"),
        )
        key, vector = row_vector.c.id, row_vector.c.vector
        page = (
            select(key, vector)
            .where(*this_model, key > bindparam("last_id"))
            .order_by(key)
            .limit(_PAGE)
            .subquery()
        )
        self._vector_page = select(_joined(page.c.id), database.joined_vectors(page.c.vector))
        named = select(_joined(key), database.joined_vectors(vector))
        self._few_vectors = named.where(*this_model, in_list(key, "keys"))

    def snapshot(
        self,
        connection: Connection,
        space: Space,
        *,
        session_id: str | None = None,
        model: tuple[int, int] | None = None,
    ) -> SpaceSnapshot:
        """The current columns of a space; with `model` (number, width) its vectors too."""
        entry = self._entry(space)
        with entry.lock:
            self._add_rows(connection, space, entry)
            if model is not None:
                self._add_vectors(connection, space, entry, *model)
            count = len(entry.ids.rows)
            snapshot = SpaceSnapshot(
                space,
                entry.ids.rows,
                entry.names.rows,
                entry.times.rows,
                entry.lengths.rows,
                entry.kinds.rows,
                entry.asks.rows,
                entry.sessions.rows,
                -1 if session_id is None else entry.session_numbers.get(session_id, -1),
                entry.vectors.rows[:count],
                entry.embedded.rows[:count].copy(),
                entry.talks,
                entry.postings,
            )
        self._evict(space.space_no, entry)
        return snapshot

    def _entry(self, space: Space) -> _CacheEntry:
        with self._lock:
            entry = self._entries.get(space.space_no)
            if entry is not None and entry.epoch > space.epoch:
                # This reader began before rows went: what it sees must not get into the cache.
                return _CacheEntry(space.epoch)
            if entry is None or entry.epoch < space.epoch:
                self._used -= entry.counted if entry else 0
                entry = self._entries[space.space_no] = _CacheEntry(space.epoch)
            self._entries.move_to_end(space.space_no)
            return entry

    def _evict(self, space_no: int, grown: _CacheEntry) -> None:
        """Count what an entry has grown by, and drop those not used for longest."""
        with self._lock:
            if self._entries.get(space_no) is not grown:
                return
            self._used += grown.bytes - grown.counted
            grown.counted = grown.bytes
            while self._used > self._budget and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                self._used -= oldest.counted

    def _add_rows(self, connection: Connection, space: Space, entry: _CacheEntry) -> None:
        if entry.next_seq >= space.next_seq:
            return
        last = int(entry.ids.rows[-1]) if len(entry.ids.rows) else space.first_id
        values = {"space_no": space.space_no, "last_id": last}
        found = [row for row in connection.execute(_rows_after, values) if row[0]]
        if found:
            ids, times, lengths = (
                np.concatenate([numbers_in(row[at]) for row in found]) for at in range(3)
            )
            names = [name for row in found for name in row[3].split(",")]
            number_of = entry.session_numbers.__getitem__
            sessions = [n for row in found for n in map(number_of, row[4].split(_SEPARATOR))]
            kinds = np.array([*map(_KIND_NUMBER.__getitem__, names)], np.int8)
            order = np.argsort(ids, kind="stable")
            entry.ids.extend(ids[order])
            entry.times.extend(times[order])
            entry.lengths.extend(lengths[order])
            entry.kinds.extend(kinds[order])
            entry.sessions.extend(np.array(sessions, np.int32)[order])
            entry.names.grow(len(ids))[...] = None
            asks = entry.asks.grow(len(ids))
            lookups = [(space, ASKING, last - space.first_id)]
            mark_rows(
                asks, entry.ids.rows[-len(ids) :], *lookup(connection, self._database, lookups)
            )
        entry.next_seq = space.next_seq

    def _add_vectors(
        self, connection: Connection, space: Space, entry: _CacheEntry, model_no: int, width: int
    ) -> None:
        if entry.model_no != model_no:
            entry.model_no, entry.vector_writes = model_no, -1
            entry.vectors, entry.embedded = AppendArray("f4", width), AppendArray("?")
        fresh = len(entry.ids.rows) - len(entry.embedded.rows)
        if fresh:
            entry.vectors.grow(fresh)
            entry.embedded.grow(fresh)
        if entry.vector_writes >= space.vector_writes and not fresh:
            return
        ids, vectors, embedded = entry.ids.rows, entry.vectors.rows, entry.embedded.rows
        missing = ids[~embedded]
        for keys, halves in self._read_vectors(connection, space, missing, model_no):
            at = np.minimum(np.searchsorted(ids, keys), len(ids) - 1)
            known = ids[at] == keys
            if known.all() and at[-1] - at[0] == len(at) - 1:
                _load(halves, vectors[at[0] : at[-1] + 1])
            else:
                vectors[at[known]] = _load(halves[known], np.empty((known.sum(), width), "f4"))
            embedded[at[known]] = True
        entry.vector_writes = space.vector_writes

    def _read_vectors(
        self, connection: Connection, space: Space, missing: NDArray[np.int64], model_no: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint16]]]:
        """Row ids in order with their vectors, page by page."""
        if not len(missing):
            return
        few = len(missing) <= _FEW
        statement = self._few_vectors if few else self._vector_page
        values = {"space_no": space.space_no, "model_no": model_no}
        last, size = int(missing[0]) - 1, _PAGE
        while size == _PAGE:
            more = {"keys": missing.tolist()} if few else {"last_id": last}
            joined, blob = connection.execute(statement, {**values, **more}).one()
            if not joined:
                return
            keys = numbers_in(joined)
            size, last = len(keys), int(keys.max())
            halves, order = self._database.load_halves(blob, size), np.argsort(keys, kind="stable")
            yield keys[order], halves[order] if (np.diff(keys) < 0).any() else halves


def _load(halves: NDArray[np.uint16], place: Matrix) -> Matrix:
    """Vectors of 16 bits as 32 bits and scaled to length 1, so that a product is a cosine.

    By a table: numpy takes six times as long to convert them.
    """
    for start in range(0, len(halves), 256):  # pieces that stay in the processor's cache
        rows = place[start : start + 256]
        np.take(_FLOATS, halves[start : start + 256], out=rows, mode="clip")
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
    return place
