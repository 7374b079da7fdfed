"""What searches need of a whole space, kept in memory as columns and always current.

Every search first reads the space's counters from the database: rows that came are appended,
and when rows went, the copy is thrown away. So another process's writes are never missed.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, Table, bindparam, select, union_all

from kemem.records import MESSAGES, NOTE_KINDS, NOTES, ROLES, Matrix, Where
from kemem.store.database import Database, Space
from kemem.store.schema import message, note, row_vector
from kemem.store.words import rows_with
from kemem.text.conversation import Conversation
from kemem.text.marks import ASKING
from kemem.text.query import Mask

_COPY_BYTES = 4096  # of an empty copy
_NAME_BYTES = 96  # of a message id as Python keeps it
_FEW = 500  # missing vectors that are asked for one by one

_SORTS = (*ROLES, *NOTE_KINDS)  # what a row is: a message of some role, or a note of some kind
_SORT_NUMBER = {name: number for number, name in enumerate(_SORTS)}


def _newer(table: Table, *columns: Any) -> Select[*tuple[Any, ...]]:
    this_space = table.c.space_no == bindparam("space_no")
    return select(*columns).where(this_space, table.c.id > bindparam("last_id"))


_new_rows = union_all(
    _newer(
        message,
        message.c.id,
        message.c.create_time,
        message.c.role,
        message.c.session_id,
        message.c.length,
        message.c.message_id,
    ),
    _newer(
        note,
        note.c.id,
        note.c.event_time,
        note.c.kind,
        note.c.session_id,
        note.c.length,
        note.c.note_id,
    ),
).order_by("id")


class Growing:
    """An array that rows can be added to; what was handed out stays as it was."""

    def __init__(self, dtype: str, width: int | None = None) -> None:
        self._buffer: NDArray[Any] = np.zeros((0,) if width is None else (0, width), dtype)
        self._size = 0

    @property
    def rows(self) -> NDArray[Any]:
        return self._buffer[: self._size]

    def extend(self, rows: NDArray[Any]) -> None:
        size = self._size + len(rows)
        if size > len(self._buffer):
            grown = np.zeros(
                (max(size, size * 5 // 4), *self._buffer.shape[1:]), self._buffer.dtype
            )
            grown[: self._size] = self.rows
            self._buffer = grown
        self._buffer[self._size : size] = rows
        self._size = size

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes


@dataclass(frozen=True, slots=True)
class View:
    """The columns of a space at one moment."""

    space: Space
    ids: NDArray[np.int64]
    names: list[str]  # ids of messages and notes; longer than the columns when rows came since
    times: NDArray[np.int64]
    lengths: NDArray[np.int64]
    sorts: NDArray[np.int8]
    asks: Mask
    sessions: NDArray[np.int32]
    session_no: int  # the number of the session asked for; -1: it has no rows
    vectors: Matrix
    embedded: Mask
    talks: dict[int, Conversation]  # of all messages among the first rows, one for now

    def upto(self, end: int) -> "View":
        """The first rows only."""
        return replace(
            self,
            ids=self.ids[:end],
            times=self.times[:end],
            lengths=self.lengths[:end],
            sorts=self.sorts[:end],
            asks=self.asks[:end],
            sessions=self.sessions[:end],
        )

    @property
    def talk(self) -> Conversation:
        """The conversations of all messages."""
        size = len(self.ids)
        talk = self.talks.get(size)
        if talk is None:
            every = np.ones(size, np.bool_)
            sessions = self.sessions.astype(np.int64)
            talk = Conversation.of(sessions, self.times, self.sorts, self.asks, every)
            self.talks.clear()
            self.talks[size] = talk
        return talk

    def counted(self, kinds: frozenset[str]) -> Mask:
        """Rows of some kinds: those that make up the statistics of a search."""
        return _chosen(kinds, None)[self.sorts]

    def visible(self, where: Where) -> Mask:
        """Rows that a Where admits as far as the columns tell."""
        kinds = where.kinds
        shared = (self.space.agent_id, self.space.user_id) == (where.shared, "")
        mask = _chosen(kinds - MESSAGES if shared else kinds, where.role)[self.sorts]
        if where.since is not None:
            mask &= self.times >= where.since
        if where.until is not None:
            mask &= self.times < where.until
        if where.known_by is not None:  # when notes began, only their rows tell
            mask &= (self.times <= where.known_by) | (self.sorts >= len(ROLES))
        if where.scope.session_id is not None and not shared:
            mask &= self.sessions == self.session_no
        if where.ids is not None:
            known = self.names[: len(mask)]
            mask &= np.array([name in where.ids for name in known], dtype=np.bool_)
        return mask


def _chosen(kinds: frozenset[str], role: str | None) -> Mask:
    """For each sort whether it is meant; a role means messages only."""
    roles = {role} & set(ROLES) if role is not None else set(ROLES)
    wanted = roles if "message" in kinds else set[str]()
    if role is None:
        wanted |= kinds & NOTES
    return np.array([sort in wanted for sort in _SORTS], dtype=np.bool_)


@dataclass(slots=True)
class _Copy:
    """The copy of one space."""

    epoch: int
    next_seq: int = 0
    vector_writes: int = -1
    model_no: int | None = None
    ids: Growing = field(default_factory=lambda: Growing("i8"))
    names: list[str] = field(default_factory=list)
    times: Growing = field(default_factory=lambda: Growing("i8"))
    lengths: Growing = field(default_factory=lambda: Growing("i8"))
    sorts: Growing = field(default_factory=lambda: Growing("i1"))
    asks: Growing = field(default_factory=lambda: Growing("?"))
    sessions: Growing = field(default_factory=lambda: Growing("i4"))
    session_numbers: dict[str | None, int] = field(default_factory=dict)
    vectors: Growing = field(default_factory=lambda: Growing("f4", 0))
    embedded: Growing = field(default_factory=lambda: Growing("?"))
    talks: dict[int, Conversation] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counted: int = 0  # bytes that the budget knows of

    @property
    def bytes(self) -> int:
        columns = (self.ids, self.times, self.lengths, self.sorts, self.asks, self.sessions)
        arrays = sum(each.bytes for each in (*columns, self.vectors, self.embedded))
        return arrays + _NAME_BYTES * len(self.names) + _COPY_BYTES


class Columns:
    """Copies of the spaces used last, within a budget of bytes."""

    def __init__(self, database: Database, budget: int) -> None:
        self._database = database
        self._budget = budget
        self._copies: OrderedDict[int, _Copy] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def view(
        self,
        connection: Connection,
        space: Space,
        *,
        session_id: str | None = None,
        model: tuple[int, int] | None = None,
    ) -> View:
        """The current columns of a space; with `model` (number, width) its vectors too."""
        copy = self._copy(space)
        with copy.lock:
            self._add_rows(connection, space, copy)
            if model is not None:
                self._add_vectors(connection, space, copy, *model)
            count = len(copy.ids.rows)
            view = View(
                space,
                copy.ids.rows,
                copy.names,
                copy.times.rows,
                copy.lengths.rows,
                copy.sorts.rows,
                copy.asks.rows,
                copy.sessions.rows,
                -1 if session_id is None else copy.session_numbers.get(session_id, -1),
                copy.vectors.rows[:count],
                copy.embedded.rows[:count].copy(),
                copy.talks,
            )
        self._trim(space.space_no, copy)
        return view

    def _copy(self, space: Space) -> _Copy:
        with self._lock:
            copy = self._copies.get(space.space_no)
            if copy is not None and copy.epoch > space.epoch:
                # This reader began before rows went: what it sees must not get into the copy.
                return _Copy(space.epoch)
            if copy is None or copy.epoch < space.epoch:
                self._used -= copy.counted if copy else 0
                copy = self._copies[space.space_no] = _Copy(space.epoch)
            self._copies.move_to_end(space.space_no)
            return copy

    def _trim(self, space_no: int, grown: _Copy) -> None:
        """Count what a copy has grown by, and let go of those not used for longest."""
        with self._lock:
            if self._copies.get(space_no) is not grown:
                return
            self._used += grown.bytes - grown.counted
            grown.counted = grown.bytes
            while self._used > self._budget and len(self._copies) > 1:
                _, oldest = self._copies.popitem(last=False)
                self._used -= oldest.counted

    def _add_rows(self, connection: Connection, space: Space, copy: _Copy) -> None:
        if copy.next_seq >= space.next_seq:
            return
        last = int(copy.ids.rows[-1]) if len(copy.ids.rows) else space.first_id
        rows = connection.execute(_new_rows, {"space_no": space.space_no, "last_id": last}).all()
        if rows:
            ids, times, sorts, sessions, lengths, names = zip(*rows, strict=True)
            copy.ids.extend(np.array(ids, np.int64))
            copy.times.extend(np.array(times, np.int64))
            copy.lengths.extend(np.array(lengths, np.int64))
            copy.sorts.extend(np.array([_SORT_NUMBER[sort] for sort in sorts], np.int8))
            copy.names.extend(names)
            asking = rows_with(connection, self._database, space, copy.ids.rows, [ASKING])[ASKING]
            copy.asks.extend(asking[-len(rows) :])
            numbers = copy.session_numbers
            copy.sessions.extend(
                np.array([numbers.setdefault(each, len(numbers)) for each in sessions], np.int32)
            )
        copy.next_seq = space.next_seq

    def _add_vectors(
        self, connection: Connection, space: Space, copy: _Copy, model_no: int, width: int
    ) -> None:
        if copy.model_no != model_no:
            copy.model_no, copy.vector_writes = model_no, -1
            copy.vectors, copy.embedded = Growing("f4", width), Growing("?")
        fresh = len(copy.ids.rows) - len(copy.embedded.rows)
        if fresh:
            copy.vectors.extend(np.zeros((fresh, width), np.float32))
            copy.embedded.extend(np.zeros(fresh, np.bool_))
        if copy.vector_writes >= space.vector_writes and not fresh:
            return
        ids = copy.ids.rows
        found = self._read_vectors(connection, space, ids[~copy.embedded.rows], model_no)
        if found:
            at = np.searchsorted(ids, np.array([key for key, _ in found], np.int64))
            known = (at < len(ids)) & (ids[np.minimum(at, len(ids) - 1)] == [k for k, _ in found])
            matrix = unit_rows(self._database.load_vectors([value for _, value in found]))
            copy.vectors.rows[at[known]] = matrix[known]
            copy.embedded.rows[at[known]] = True
        copy.vector_writes = space.vector_writes

    def _read_vectors(
        self, connection: Connection, space: Space, missing: NDArray[np.int64], model_no: int
    ) -> Sequence[Any]:
        if not len(missing):
            return ()
        columns = (row_vector.c.id, self._database.vector_column(row_vector.c.vector))
        statement = select(*columns).where(
            row_vector.c.space_no == space.space_no, row_vector.c.model_no == model_no
        )
        if len(missing) > _FEW:
            statement = statement.where(row_vector.c.id >= int(missing[0]))
        else:
            statement = statement.where(row_vector.c.id.in_(missing.tolist()))
        return connection.execute(statement).all()


def unit_rows(matrix: Matrix) -> Matrix:
    """Rows scaled to length 1, so that a product is a cosine."""
    lengths = np.linalg.norm(matrix, axis=-1, keepdims=True)
    return np.asarray(matrix / np.where(lengths == 0, 1, lengths), np.float32)
