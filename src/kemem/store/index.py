"""The columns of whole spaces that searches rank by, cached in memory and always current.

Every search first reads the counters of its spaces from the database: new rows are appended, and
when rows were removed, the cache entry is dropped. So no write of another process is missed.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from kemem.records import MESSAGES, NOTE_KINDS, NOTES, ROLES, Matrix, Where
from kemem.store.database import Database, IndexedText, Joined, Lookup, Space, bound, in_list
from kemem.store.read import CHUNK
from kemem.store.schema import row_vector
from kemem.store.tables import TABLES, RowTable, Stored, notes
from kemem.text.query import ASKING, Mask, Phrase, index_text
from kemem.text.rank import Conversation

_ENTRY_BYTES = 4096  # of an empty cache entry
_NAME_BYTES = 96  # of an id as Python keeps it
_FEW = 500  # missing vectors that are looked up one by one
_PAGE = 8192  # vectors that are read at once
_COMMON = 500  # rows; phrases of fewer are looked up fast enough
_REMEMBERED = 128  # phrases of a space
_SEPARATOR = "\x1f"  # no id contains it

KINDS = (*ROLES, *NOTE_KINDS)  # a row is a message of some role, or a note of some kind
_KIND_NUMBER = {name: number for number, name in enumerate(KINDS)}
_FLOATS = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_READ = {"ids": "i8", "times": "i8", "lengths": "i8", "kinds": "i1", "sessions": "i4", "names": "O"}
_COLUMNS = {**_READ, "asks": "?"}
_OF_MODEL = ("vectors", "embedded")
_MODELS = 2  # of which a space has vectors while the embedder changes

Ids = NDArray[np.int64]
# The last sequence number that was looked at, and the rows; those used longest ago come first.
Postings = OrderedDict[Phrase, tuple[int, Ids]]


def _new_rows(rows: RowTable[Any]) -> sa.Select[*tuple[Any, ...]]:
    columns = rows.table.c
    kind = sa.case(_KIND_NUMBER, value=columns.kind if rows is notes else columns.role)
    found = () if rows is notes else (~columns.withdrawn,)  # no search knows withdrawn messages
    return sa.select(
        *(Joined(columns.id), Joined(rows.time), Joined(columns.length * len(KINDS) + kind)),
        sa.func.aggregate_strings(sa.func.coalesce(columns.session_id, ""), _SEPARATOR),
        sa.func.aggregate_strings(rows.name, _SEPARATOR),
    ).where(
        columns.space_no == sa.bindparam("space_no"), columns.id > sa.bindparam("last_id"), *found
    )


_rows_after = sa.union_all(*map(_new_rows, TABLES))


class AppendArray:
    """An array that rows can be appended to; slices handed out earlier stay as they were."""

    def __init__(self, dtype: str, width: int | None = None) -> None:
        self.buffer: NDArray[Any] = np.zeros((0,) if width is None else (0, width), dtype)
        self._size = 0

    @property
    def rows(self) -> NDArray[Any]:
        return self.buffer[: self._size]

    def grow(self, count: int) -> NDArray[Any]:
        """The place of `count` more rows, which are 0."""
        size = self._size + count
        if size > len(self.buffer):
            room = size if not self._size else size * 5 // 4
            grown = np.zeros((room, *self.buffer.shape[1:]), self.buffer.dtype)
            grown[: self._size] = self.rows
            self.buffer = grown
        added = self.buffer[self._size : size]
        self._size = size
        return added


@dataclass(frozen=True, slots=True)
class SpaceSnapshot:
    """The columns of a space at one moment."""

    space: Space
    ids: NDArray[np.int64]
    names: NDArray[Any]  # what callers know rows by
    times: NDArray[np.int64]
    lengths: NDArray[np.int64]
    kinds: NDArray[np.int8]
    asks: Mask
    sessions: NDArray[np.int32]
    vectors: Matrix
    embedded: Mask
    session_no: int  # the number of the requested session; -1: it has no rows
    talks: dict[int, Conversation]  # of all messages among the first rows, one for now
    postings: Postings  # of common phrases

    def upto(self, end: int) -> "SpaceSnapshot":
        """The first rows only."""
        if end == len(self.ids):
            return self
        names = (*_COLUMNS, *_OF_MODEL)
        return replace(self, **{name: getattr(self, name)[:end] for name in names})

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

    def visible(self, where: Where) -> Mask:
        """Rows that a Where admits as far as the columns tell, which hold no contents."""
        kinds = where.kinds
        shared = (self.space.agent_id, self.space.user_id) == (where.shared, "")
        mask = self.of_kinds(kinds - MESSAGES if shared else kinds, where.role)
        if where.since is not None:
            mask &= self.times >= where.since
        if where.until is not None:
            mask &= self.times < where.until
        if where.known_by is not None:  # when notes began, only their rows tell
            mask &= (self.times <= where.known_by) | (self.kinds >= len(ROLES))
        if where.scope.session_id is not None and not shared:
            mask &= self.sessions == self.session_no
        return mask

    def of_kinds(self, kinds: frozenset[str], role: str | None = None) -> Mask:
        """Rows of some kinds; a role means messages only."""
        names = {it for it in ROLES if "message" in kinds and role in (None, it)}
        names |= kinds & NOTES if role is None else set()
        numbers = [_KIND_NUMBER[name] for name in names] or [-1]
        low, high = min(numbers), max(numbers)
        mask = (self.kinds >= low) & (self.kinds <= high)
        for number in {*range(low, high)} - {*numbers}:
            mask &= self.kinds != number
        return mask


class _ModelColumns:
    """The vectors that one model made of a space's rows, and which rows have one."""

    def __init__(self, width: int) -> None:
        self.writes = -1
        self.vectors = AppendArray("f4", width)
        self.embedded = AppendArray("?")


class _CacheEntry:
    """The columns of one space."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_seq = 0
        self.models: OrderedDict[int, _ModelColumns] = OrderedDict()  # those used last
        self.columns = {name: AppendArray(dtype) for name, dtype in _COLUMNS.items()}
        self.session_numbers: defaultdict[str, int] = defaultdict()
        self.session_numbers.default_factory = self.session_numbers.__len__  # the next number
        self.talks: dict[int, Conversation] = {}
        self.postings: Postings = OrderedDict()
        self.lock = threading.Lock()
        self.counted = 0  # bytes that the budget includes

    @property
    def bytes(self) -> int:
        of_models = (it for each in self.models.values() for it in (each.vectors, each.embedded))
        arrays = sum(it.buffer.nbytes for it in (*self.columns.values(), *of_models))
        postings = sum(rows.nbytes for _, rows in [*self.postings.values()])
        return arrays + postings + _NAME_BYTES * len(self.columns["names"].rows) + _ENTRY_BYTES


class SpaceCache:
    """The columns of the spaces used last, within a budget of bytes."""

    def __init__(self, database: Database, budget: int) -> None:
        self._database = database
        self._budget = budget
        self._entries: OrderedDict[int, _CacheEntry] = OrderedDict()
        self._used = 0
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
            rows = {name: column.rows[:count] for name, column in entry.columns.items()}
            rows |= {"vectors": made.vectors.rows, "embedded": made.embedded.rows.copy()}
            number = -1 if session_id is None else entry.session_numbers.get(session_id, -1)
            snapshot = SpaceSnapshot(
                space, **rows, session_no=number, talks=entry.talks, postings=entry.postings
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

    def _add_rows(self, connection: sa.Connection, space: Space, entry: _CacheEntry) -> None:
        if entry.next_seq >= space.next_seq:
            return
        columns = entry.columns
        ids = columns["ids"].rows
        last = int(ids[-1]) if len(ids) else space.first_id
        bounds = {"space_no": space.space_no, "last_id": last}
        rows = [row for row in connection.execute(_rows_after, bounds) if row[0]]
        if rows:  # all is read before anything grows: a failure leaves columns of one length
            (asking,) = lookup(connection, self._database, [(space, ASKING, last - space.first_id)])
            numbers = [np.concatenate([numbers_in(row[at]) for row in rows]) for at in range(3)]
            lengths, kinds = np.divmod(numbers.pop(), len(KINDS))
            session_ids, names = (
                [it for row in rows for it in row[at].split(_SEPARATOR)] for at in (3, 4)
            )
            number_of = map(entry.session_numbers.__getitem__, session_ids)
            sessions = np.fromiter(number_of, np.int32, len(session_ids))
            order = np.argsort(numbers[0], kind="stable")
            values = (*numbers, lengths, kinds, sessions, np.array(names, np.object_))
            for name, new in zip(_READ, values, strict=True):
                columns[name].grow(len(order))[...] = new[order]
            mark_rows(columns["asks"].grow(len(order)), numbers[0][order], asking)
        entry.next_seq = space.next_seq

    def _add_vectors(
        self, connection: sa.Connection, space: Space, entry: _CacheEntry, model_no: int, width: int
    ) -> _ModelColumns:
        """The columns of a model, brought up to date; the model 0 has no vectors."""
        if not model_no:
            return _ModelColumns(width)
        made = entry.models.setdefault(model_no, _ModelColumns(width))
        entry.models.move_to_end(model_no)
        if len(entry.models) > _MODELS:
            entry.models.popitem(last=False)
        ids = entry.columns["ids"].rows
        fresh = len(ids) - len(made.embedded.rows)
        if fresh:
            made.vectors.grow(fresh)
            made.embedded.grow(fresh)
        if made.writes >= space.vector_writes and not fresh:
            return made
        vectors, embedded = made.vectors.rows, made.embedded.rows
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
            if np.array_equal(keys, page):
                _load(halves, vectors[place])
                embedded[place] = True
            else:
                at = np.minimum(np.searchsorted(ids, keys), len(ids) - 1)
                present = ids[at] == keys
                rows = np.empty((np.count_nonzero(present), width), "f4")
                vectors[at[present]] = _load(halves[present], rows)
                embedded[at[present]] = True
        made.writes = space.vector_writes
        return made


def _load(halves: NDArray[np.uint16], place: Matrix) -> Matrix:
    """Vectors of 16 bits as 32 bits and scaled to length 1, so that a product is a cosine.

    By a table: numpy takes six times as long to convert them.
    """
    for start in range(0, len(halves), 256):  # pieces that stay in the processor's cache
        rows = place[start : start + 256]
        np.take(_FLOATS, halves[start : start + 256], out=rows, mode="clip")
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
    return place


def rows_with(
    connection: sa.Connection,
    database: Database,
    views: Sequence[SpaceSnapshot],
    phrases: Sequence[Phrase],
) -> dict[Phrase, Mask]:
    """For each phrase the rows that contain it, of one space after the other.

    Of common phrases the rows are remembered, and only newer ones are looked up.
    """
    starts = np.cumsum([0, *(len(view.ids) for view in views)])
    masks = {phrase: np.zeros(starts[-1], np.bool_) for phrase in phrases}
    pairs = [(at, phrase) for at in range(len(views)) for phrase in phrases]
    nothing = (0, np.zeros(0, np.int64))
    remembered = [views[at].postings.get(phrase, nothing) for at, phrase in pairs]
    lookups = [
        (views[at].space, phrase, last)
        for (at, phrase), (last, _) in zip(pairs, remembered, strict=True)
    ]
    added = lookup(connection, database, lookups)
    for (at, phrase), (_, before), after in zip(pairs, remembered, added, strict=True):
        view, rows = views[at], np.concatenate([before, after]) if len(after) else before
        if len(rows) >= _COMMON:
            view.postings.pop(phrase, None)
            view.postings[phrase] = (view.space.next_seq - 1, rows)
            if len(view.postings) > _REMEMBERED:
                view.postings.popitem(last=False)
        mark_rows(masks[phrase][starts[at] : starts[at + 1]], view.ids, rows)
    return masks


def lookup(connection: sa.Connection, database: Database, lookups: Sequence[Lookup]) -> list[Ids]:
    """The rows of each lookup."""
    rows = [np.zeros(0, np.int64)] * len(lookups)
    if lookups:
        for number, numbers in connection.execute(*database.phrase_query(lookups)):
            rows[number] = numbers_in(numbers or "") + lookups[number][0].first_id
    return rows


def numbers_in(joined: str) -> Ids:
    """Whole numbers that the database has put together with commas."""
    return np.fromstring(joined, dtype=np.int64, sep=",")


def mark_rows(mask: Mask, ids: Ids, marked: Ids) -> None:
    """Set the places of the ids that are `marked`; `ids` are in order."""
    if not len(ids):
        return
    dense = ids[-1] - ids[0] == len(ids) - 1
    at = marked - ids[0] if dense else np.searchsorted(ids, marked)
    inside = (at >= 0) & (at < len(ids))
    at = at[inside]
    mask[at if dense else at[ids[at] == marked[inside]]] = True


def indexed_texts(rows: Iterable[Stored[Any]]) -> list[IndexedText]:
    """The search texts of rows as they are indexed."""
    return [IndexedText(it.space_no, it.id, index_text(it.row)) for it in rows]


def rebuild_words(connection: sa.Connection, database: Database) -> None:
    """Empty the word index and derive it again from messages and notes."""
    database.clear_words(connection)
    for table in TABLES:
        key = sa.tuple_(table.table.c.space_no, table.table.c.id)
        page = sa.select(*table.columns).order_by(*key.clauses).limit(CHUNK)
        rows = table.load(connection.execute(page))
        while rows:
            database.add_words(connection, indexed_texts(rows))
            last = sa.tuple_(rows[-1].space_no, rows[-1].id)
            rows = table.load(connection.execute(page.where(key > last)))
