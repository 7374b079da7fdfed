"""A store copied to another database while it is written to, and then closed to writers.

Spaces are copied a batch at a time: their rows as of one moment, and with the last of them their
state. A space that has the same state on both sides is therefore a copy, and catching up is copying
the spaces that have another state. Of a space that a move was killed in, the next one compares what
is there and copies the rest.

Of large spaces it is remembered which rows were copied, as nobody else writes to the target: the
next time only the source is looked through, and what has changed there is copied.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

import sqlalchemy as sa

from kemem.errors import Conflict
from kemem.store import keys, schema, tally, webhooks
from kemem.store.copier import Copier, Key, States, count_rows, different
from kemem.store.database import Database, driver_errors
from kemem.store.migrate import MOVED_INTO, MOVED_TO, MOVING_BY, MOVING_FROM, read_meta, write_meta
from kemem.store.schema import (
    agent,
    app_user,
    embedding_model,
    job,
    journal,
    message,
    meta,
    note,
    row_vector,
    session,
    space_state,
)
from kemem.store.spaces import FIRST_EPOCH

T = TypeVar("T")
Sizes = dict[str, int]  # rows by table
Snapshot = Callable[[], AbstractContextManager[sa.Connection]]

_MOST_SPACES = 200  # that are copied together,
_MOST_ROWS = 20_000  # as far as their numbers tell
_LARGE = 1_000  # rows of a space that is copied alone, and remembered
_MOST_KNOWN = 4_000_000  # rows that are remembered, in some 200 bytes each
# Keys of meta that move with the rows.
_CARRIED = ("embedder", "label", "secret", FIRST_EPOCH, keys.GENERATION)
_SHORT = 1.0  # seconds of a pass that writers can wait for
_SILENCE = 5.0  # seconds without a report

# Which every store makes for itself.
_LEFT_OUT = (meta, schema.space_segment, schema.space_posting, tally.table)
_ALL = [it for it in schema.metadata.sorted_tables if it not in _LEFT_OUT]
_SHARED = [it for it in _ALL if "space_no" not in it.c or it is schema.space]
_OF_SPACES = [embedding_model, *(it for it in _ALL if it not in _SHARED)]
_TALLIED = (message, note, row_vector)  # which writers count

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

    number: int  # from 1
    spaces: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How many messages, notes and vectors a pass and those before have copied, of how many."""

    number: int  # of the pass
    rows: int
    total: int
    comparing: bool = False  # what is in the source with what was copied


Report = Callable[[Pass | Progress], None]


class Move:
    """A move from one open database to another.

    Where it ends, however that happens, another one goes on.
    """

    def __init__(
        self,
        source: Database,
        target: Database,
        command: str = "kemem move",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Refuse a target that holds anything but a copy of the source.

        Until it opens, it names the command that fills it. `check` raises where another one may
        have begun to do so.
        """
        self._source, self._target, self._check = source, target, check
        with driver_errors(source), source.reading() as connection:
            own = read_meta(connection)
        self._secret, fingerprint = own["secret"], _fingerprint(own["secret"])
        with driver_errors(target), target.reading() as connection:
            other = read_meta(connection)
            held = _contents(connection)
        begun, is_same = other.get(MOVING_FROM), other["secret"] == self._secret
        self._destination = _fingerprint(other["secret"])
        self.is_done = is_same and MOVED_TO in own and MOVED_TO not in other
        if self.is_done:
            return
        if is_same and MOVED_TO in other:
            raise Conflict("the destination is what was left of this store; name an empty one")
        if is_same:
            raise Conflict("the destination is this store or a copy of it; name an empty one")
        self._check_open(own, is_begun=begun == fingerprint)
        if begun not in (None, fingerprint):
            begun_by = "the destination belongs to the unfinished move of another store"
            raise Conflict(f"{begun_by}; name an empty one")
        if begun is None and held is not None:
            raise Conflict(f"the destination is not empty: {held}; name an empty one")
        self._known: dict[tuple[int, ...], dict[sa.Table, States]] = {}  # by spaces
        self._known_rows = 0
        self._report: Report = lambda _: None
        self._progress, self._reported = Progress(0, 0, 0), time.monotonic()
        self._begin({MOVING_FROM: fingerprint, MOVING_BY: command})

    def _begin(self, values: Mapping[str, str]) -> None:
        def begin(connection: sa.Connection) -> None:
            for key, value in values.items():
                write_meta(connection, key, value)

        self._write(begin)

    def _check_open(self, own: Mapping[str, str], *, is_begun: bool = True) -> None:
        """Refuse a source that was closed for another destination than this.

        Every store has a secret of its own, which a copy exchanges for that of the source only when
        it opens. So what was filled halfway for a move that was given up is told from the copy that
        is the store now. Before 0.2 nothing told them apart, and nothing is copied.
        """
        if MOVED_TO in own and own.get(MOVED_INTO) != self._destination:
            if is_begun and MOVED_INTO in own:  # what was copied here is needed by nobody
                raise Conflict(
                    f"the store was moved to {own[MOVED_TO]}, not here; "
                    "delete this half-filled destination, nothing is missing there"
                )
            raise Conflict(f"the store was moved to {own[MOVED_TO]} already; move it from there")

    def catch_up(self, report: Report) -> None:
        """Copy and verify, until what is left is little, or is not halved by another pass."""
        self._report, self._progress = report, self._read_progress()
        last = float("inf")
        while True:
            done = self._pass(self._source.snapshot)
            report(done)
            if done.seconds < _SHORT or done.seconds > last / 2:
                return
            last = done.seconds

    def switch(self, place: str) -> float:
        """Let writers wait, copy the rest, verify, and close the source to them for good.

        Returns for how many seconds they waited. The source says from now on that it is at `place`.
        The target opens to nobody before that; whatever fails until then leaves the source as it
        was.
        """

        def finish(connection: sa.Connection) -> tuple[float, Mapping[str, str], Mapping[str, int]]:
            began = time.monotonic()
            self._pass(lambda: nullcontext(connection))
            self._verify(connection)
            own = read_meta(connection)
            self._check_open(own)  # nobody waited for another move to end
            if MOVED_TO not in own:
                write_meta(connection, MOVED_TO, place)
                write_meta(connection, MOVED_INTO, self._destination)
                self._source.seal(connection, place)
            return began, own, tally.totals(connection)

        with driver_errors(self._source):
            began, own, counts = self._source.write(finish, alone=True).result()
        seconds = time.monotonic() - began

        def open_target(connection: sa.Connection) -> None:
            for key in _CARRIED:
                if key in own:
                    write_meta(connection, key, own[key])
            tally.replace(connection, counts)
            self._target.after_restore(connection)
            connection.execute(sa.delete(meta).where(meta.c.key.in_((MOVING_FROM, MOVING_BY))))

        self._write(open_target)
        return seconds

    def _pass(self, snapshot: Snapshot) -> Pass:
        """Copy what is not, or no longer, as it is in the source."""
        began, rows = time.monotonic(), 0
        self._progress = replace(self._progress, number=self._progress.number + 1)
        with driver_errors(self._source), snapshot() as taken:
            if read_meta(taken)["secret"] != self._secret:
                raise Conflict("a backup was restored to the source meanwhile; run the move again")
            rows += self._transfer(taken, _SHARED, (), remember=True)
            states = _read_states(taken)
        with driver_errors(self._target), self._target.reading() as connection:
            copied = _read_states(connection)
        changed = {it: own for it, own in states.items() if own != copied.get(it)}
        for numbers, is_large in _batches(changed):
            with driver_errors(self._source), snapshot() as taken:
                rows += self._transfer(taken, _OF_SPACES, numbers, remember=is_large)
        return Pass(self._progress.number, len(changed), rows, time.monotonic() - began)

    def _transfer(
        self,
        taken: sa.Connection,
        tables: Sequence[sa.Table],
        numbers: tuple[int, ...],
        *,
        remember: bool,
    ) -> int:
        """Make rows of some spaces, or all rows, what they are in the source; returns how many."""
        known = self._known.pop(numbers, {}) if remember else None
        copier = Copier(self._source, self._target, taken, numbers, known, self._watch)
        count = copier.copy(tables, self._write)
        self._known_rows -= sum(map(len, (known or {}).values()))
        more = sum(map(len, copier.states.values()))
        if remember and self._known_rows + more <= _MOST_KNOWN:
            self._known_rows += more
            self._known[numbers] = copier.states
        return count

    def _watch(self, table: sa.Table, count: int | None) -> None:
        """Tell now and then how far the copy is."""
        now = self._progress
        more = count if table in _TALLIED and count else 0
        rows = min(now.rows + more, now.total)
        self._progress = Progress(now.number, rows, now.total, comparing=count is None)
        if time.monotonic() - self._reported > _SILENCE:
            self._reported = time.monotonic()
            self._report(self._progress)

    def _read_progress(self) -> Progress:
        with driver_errors(self._source), self._source.reading() as connection:
            total = tally.totals(connection).total()
        with driver_errors(self._target), self._target.reading() as connection:
            rows = sum(count_rows(connection, it) for it in _TALLIED)
        return Progress(self._progress.number, rows, total)

    def sizes(self) -> Sizes:
        """How many rows each table of the target has."""
        with driver_errors(self._target), self._target.reading() as connection:
            return {table.name: count_rows(connection, table) for table in _ALL}

    def _verify(self, taken: sa.Connection) -> None:
        """Compare the states of all spaces, and the size of every table.

        Vectors are left out, which were counted with their spaces: to count all of them, SQLite
        reads most of a store.
        """
        with driver_errors(self._target), self._target.reading() as connection:
            for table in (it for it in _ALL if it is not row_vector):
                if count_rows(connection, table) != count_rows(taken, table):
                    raise different(table)
            if _read_states(connection) != _read_states(taken):
                raise different(space_state)

    def _write(self, work: Callable[[sa.Connection], T]) -> T:
        def checked(connection: sa.Connection) -> T:
            self._check()
            return work(connection)

        with driver_errors(self._target):
            return self._target.write(checked).result()


def _fingerprint(secret: str) -> str:
    """What tells a store from others, and nothing of its secret."""
    return blake2b(secret.encode(), digest_size=16).hexdigest()


def _read_states(connection: sa.Connection) -> dict[int, Key]:
    """The state of every space: another one after whatever was written to it."""
    # PostgreSQL's sums are decimal numbers.
    return {int(number): tuple(map(int, own)) for number, *own in connection.execute(_states)}


def _batches(states: Mapping[int, Key]) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Spaces that are copied together, and whether that is one that is large."""
    batch, rows = list[int](), 0
    for number, (next_seq, *_) in states.items():
        if next_seq > _LARGE:
            yield (number,), True
            continue
        if batch and (len(batch) >= _MOST_SPACES or rows + next_seq > _MOST_ROWS):
            yield tuple(batch), False
            batch, rows = [], 0
        batch.append(number)
        rows += next_seq
    if batch:
        yield tuple(batch), False


def _contents(connection: sa.Connection) -> str | None:
    """What a store holds, in the words of its users; None: nothing."""
    if MOVED_TO in read_meta(connection):
        return "it is a store that was moved"
    users = count_rows(connection, app_user, app_user.c.user_id != "")
    messages = tally.totals(connection)[tally.MESSAGES]
    if users:
        return f"it holds users: {users}, messages: {messages}"
    others = (agent, job, journal, keys.table, webhooks.table)
    if any(count_rows(connection, it) for it in others):
        return "it holds agents, API keys, webhooks, jobs or journal entries"
    return None
