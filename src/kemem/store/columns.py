"""The columns of one space as searches see them, and as they are cached."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kemem.records import MESSAGES, NOTE_KINDS, NOTES, ROLES, Matrix, Where
from kemem.store import codes, segments
from kemem.store.codes import Plane, encode, planes_of
from kemem.store.database import Space
from kemem.store.recent import RecentMessages
from kemem.text.conversation import Conversation
from kemem.text.query import Mask, Phrase

_ENTRY_BYTES = 4096  # of an empty cache entry
_SESSION_BYTES = 160  # of a session's id and number as Python keeps them

KINDS = (*ROLES, *NOTE_KINDS)  # a row is a message of some role, or a note of some kind
KIND_NUMBER = {name: number for number, name in enumerate(KINDS)}
COLUMNS = {"ids": "i8", "times": "i8", "lengths": "i8", "kinds": "i1", "sessions": "i4"}
COLUMNS |= {"name_starts": "i8", "name_sizes": "i2", "asks": "?"}
_SEGMENT = {"ids": "u4", "times": "i8", "lengths": "i4", "kinds": "i1", "name_sizes": "i2"}
_SEGMENT |= {"asks": "?"}
SEPARATOR = "\x1f"  # no id contains it
_OF_MODEL = ("vectors", "embedded")

Ids = NDArray[np.int64]
# The last sequence number that was looked at, and a bit for each row until then; those used longest
# ago come first.
Postings = OrderedDict[Phrase, tuple[int, NDArray[np.uint8]]]


class AppendArray:
    """An array that rows can be appended to; slices handed out earlier stay as they were."""

    def __init__(self, dtype: str, width: int | None = None) -> None:
        self.buffer: NDArray[Any] = np.zeros((0,) if width is None else (0, width), dtype)
        self._size = 0

    @property
    def rows(self) -> NDArray[Any]:
        return self.buffer[: self._size]

    def reserve(self, room: int) -> None:
        """Take memory for so many rows at once."""
        grown = np.zeros((room, *self.buffer.shape[1:]), self.buffer.dtype)
        grown[: self._size] = self.rows
        self.buffer = grown

    def grow(self, count: int) -> NDArray[Any]:
        """The place of `count` more rows, which are 0."""
        size = self._size + count
        if size > len(self.buffer):
            self.reserve(size if not self._size else size * 5 // 4)
        added = self.buffer[self._size : size]
        self._size = size
        return added


def rows_of_segment(space: Space, ids: Ids, number: int) -> slice:
    """The places of the rows of a segment."""
    first = space.first_id + number * segments.SIZE
    start, stop = np.searchsorted(ids, [first, first + segments.SIZE]).tolist()
    return slice(start, stop)


@dataclass(frozen=True, slots=True)
class SpaceSnapshot:
    """The columns of a space at one moment."""

    space: Space
    ids: NDArray[np.int64]
    times: NDArray[np.int64]
    lengths: NDArray[np.int64]
    kinds: NDArray[np.int8]
    asks: Mask
    sessions: NDArray[np.int32]
    name_starts: NDArray[np.int64]  # of what callers know rows by,
    name_sizes: NDArray[np.int16]
    name_bytes: NDArray[np.uint8]  # in here
    vectors: Matrix  # of up to EXACT rows, once they are read;
    planes: tuple[Plane, ...]  # else the signs
    embedded: Mask
    session_no: int  # the number of the requested session; -1: it has no rows
    talks: dict[int, Conversation]  # of all messages among the first rows, one for now
    postings: Postings  # of common phrases
    recent: RecentMessages

    def upto(self, end: int) -> "SpaceSnapshot":
        """The first rows only."""
        if end == len(self.ids):
            return self
        names = (*COLUMNS, *_OF_MODEL)
        columns: dict[str, Any] = {name: getattr(self, name)[:end] for name in names}
        planes = tuple(plane[:end] for plane in self.planes)
        return replace(self, **columns, planes=planes, postings=OrderedDict())

    def names(self, places: NDArray[np.intp]) -> list[str]:
        """What callers know the rows in some places by."""
        starts, sizes = self.name_starts[places], self.name_sizes[places]
        spans = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        letters = self.name_bytes.data
        return [str(letters[start:end], "utf-8") for start, end in spans]

    def talk(self, seen: Mask) -> Conversation:
        """The conversations of the messages that are seen."""
        size = len(self.ids)
        everything = np.count_nonzero(seen) == np.count_nonzero(self.kinds < len(ROLES))
        talk = self.talks.get(size) if everything else None
        if talk is None:
            sessions = self.sessions.astype(np.int64)
            columns = (self.times, self.kinds, self.asks, self.lengths)
            talk = Conversation.of(sessions, *columns, seen)
            if everything:
                self.talks.clear()
                self.talks[size] = talk
        return talk

    def segment(self, number: int, session_ids: Sequence[str]) -> bytes:
        """The columns of a segment, given the ids of sessions by their numbers."""
        rows = rows_of_segment(self.space, self.ids, number)
        columns = [np.asarray(getattr(self, it)[rows]) for it in _SEGMENT]
        columns[0] = columns[0] - self.space.first_id
        packed = [it.astype(kind) for it, kind in zip(columns, _SEGMENT.values(), strict=True)]
        numbers, sessions = np.unique(self.sessions[rows], return_inverse=True)
        own = SEPARATOR.join(session_ids[it] for it in numbers.tolist())
        starts, sizes = self.name_starts[rows].tolist(), self.name_sizes[rows].tolist()
        letters = self.name_bytes.data
        spans = zip(starts, sizes, strict=True)
        names = b"".join(letters[start : start + size] for start, size in spans)
        texts = [np.frombuffer(it, np.uint8) for it in (names, own.encode())]
        return segments.pack([*packed, sessions.astype(np.uint16), *texts])

    def coded_segment(self, number: int) -> bytes:
        """The signs of a segment's vectors."""
        rows = rows_of_segment(self.space, self.ids, number)
        planes = [it[rows] for it in self.planes] or encode(self.vectors[rows])
        return segments.pack([self.embedded[rows], *planes])

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
        numbers = [KIND_NUMBER[name] for name in names] or [-1]
        low, high = min(numbers), max(numbers)
        mask = (self.kinds >= low) & (self.kinds <= high)
        for number in {*range(low, high)} - {*numbers}:
            mask &= self.kinds != number
        return mask


class ModelColumns:
    """The vectors that one model made of a space's rows, and which rows have one.

    Of more than EXACT rows only the signs are kept; of fewer until all vectors have been read.
    """

    def __init__(self, width: int) -> None:
        self.writes = -1
        self.vectors = AppendArray("f4", width)
        self.planes = [AppendArray("u8") for _ in range(planes_of(width))]
        self.embedded = AppendArray("?")
        self.coded = False
        self.is_used = False  # by a search that found only signs
        self.is_replaced = False  # by one with vectors, or about to be

    @property
    def arrays(self) -> list[AppendArray]:
        return [self.embedded, *(self.planes if self.coded else [self.vectors])]

    def grow(self, count: int) -> None:
        """Room for more rows, none of which has a vector yet."""
        if not self.coded and len(self.embedded.rows) + count > codes.EXACT:
            self.coded = True
            before = self.vectors.rows
            self.vectors = AppendArray("f4", before.shape[1])
            for plane, bits in zip(self.planes, encode(before), strict=True):
                plane.grow(len(before))[...] = bits
        for array in self.arrays:
            array.grow(count)

    def put_segment(self, rows: slice, body: bytes) -> None:
        """The signs of a segment."""
        arrays = segments.unpack(body, "?", *["u8"] * len(self.planes))
        if arrays and len(arrays[0]) == rows.stop - rows.start:
            for array, stored in zip(self.arrays, arrays, strict=True):
                array.rows[rows] = stored

    def put(self, place: Any, vectors: Matrix) -> None:
        """The vectors of the rows in some place."""
        if self.coded:
            for plane, bits in zip(self.planes, encode(vectors), strict=True):
                plane.rows[place] = bits
        else:
            self.vectors.rows[place] = vectors
        self.embedded.rows[place] = True


class NewRows(NamedTuple):
    """Rows that are read: the columns but that of sessions, which are places among some ids."""

    columns: dict[str, NDArray[Any]]
    name_bytes: NDArray[np.uint8]
    sessions: NDArray[Any]
    session_ids: Sequence[str]

    @classmethod
    def of_segment(cls, body: bytes, first_id: int) -> "NewRows | None":
        """The rows of a segment."""
        arrays = segments.unpack(body, *_SEGMENT.values(), "u2", "u1", "u1")
        if not arrays:
            return None
        columns = dict(zip(_SEGMENT, arrays, strict=False))
        *_, sessions, name_bytes, session_ids = arrays
        columns["ids"] = columns["ids"].astype(np.int64) + first_id
        columns["name_starts"] = np.cumsum(columns["name_sizes"], dtype=np.int64)
        columns["name_starts"] -= columns["name_sizes"]
        names = session_ids.tobytes().decode().split(SEPARATOR)
        return cls(columns, name_bytes, sessions, names)


class CacheEntry:
    """The columns of one space."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_seq = 0
        self.models: OrderedDict[int, ModelColumns] = OrderedDict()  # those used last
        self.columns = {name: AppendArray(dtype) for name, dtype in COLUMNS.items()}
        self.name_bytes = AppendArray("u1")
        self.session_numbers: defaultdict[str, int] = defaultdict()
        self.session_numbers.default_factory = self.session_numbers.__len__  # the next number
        self.talks: dict[int, Conversation] = {}
        self.postings: Postings = OrderedDict()
        self.blocks: set[int] | None = None  # of common phrases: those stored, once they are known
        self.recent = RecentMessages()
        self.stored: defaultdict[int, set[int]] = defaultdict(set)  # segments, by model
        self.lock = threading.Lock()
        self.counted = 0  # bytes that the budget includes

    def reserve(self, count: int, some: NewRows) -> None:
        """Take memory for so many rows like these at once."""
        for column in self.columns.values():
            column.reserve(count)
        of_names = len(some.name_bytes) * count // max(len(some.sessions), 1)
        self.name_bytes.reserve(of_names + len(self.name_bytes.rows))

    def append(self, rows: NewRows) -> None:
        """New rows, in the order of their ids."""
        known, numbers = len(self.name_bytes.rows), self.session_numbers
        self.name_bytes.grow(len(rows.name_bytes))[...] = rows.name_bytes
        session_of = np.array([numbers[it] for it in rows.session_ids], np.int32)
        values = {**rows.columns, "sessions": session_of[rows.sessions]}
        values["name_starts"] = values["name_starts"] + known
        for name, column in self.columns.items():
            column.grow(len(rows.sessions))[...] = values[name]

    @property
    def derived(self) -> dict[str, Any]:
        """What searches add to; every snapshot has the same."""
        return {"talks": self.talks, "postings": self.postings, "recent": self.recent}

    @property
    def bytes(self) -> int:
        arrays = [*self.columns.values(), self.name_bytes]
        arrays += [it for each in self.models.values() for it in each.arrays]
        used = sum(it.buffer.nbytes for it in arrays)
        used += sum(it.nbytes for it in [*self.talks.values()])
        used += len(self.postings) * len(self.columns["ids"].rows) // 8 + self.recent.nbytes
        return used + _SESSION_BYTES * len(self.session_numbers) + _ENTRY_BYTES
