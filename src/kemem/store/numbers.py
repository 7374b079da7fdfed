"""Messages in their sessions: consecutive numbers, and a free microsecond for each."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from kemem.ports.entries import refusal
from kemem.records import Message, Micros
from kemem.store import read, tables
from kemem.store.database import Values, bound, group, in_list
from kemem.store.schema import DISABLED_SESSION, SEQ_BITS, message, session
from kemem.store.spaces import Transaction

Lasts = Mapping[int, sa.Result[*tuple[Any, ...]]]  # by number of the space

_FIELDS = [each.name for each in fields(Message)]
_values = attrgetter(*_FIELDS)
_PLACE = ("ts", "sequence_no", "valid_until", "arrival")
_TS, _NUMBER, _UNTIL, _ARRIVAL = map(_FIELDS.index, _PLACE)

_own = (message.c.space_no == session.c.space_no, message.c.session_id == session.c.session_id)
# Whoever disables one of them waits until what is said in it is stored.
_lasts = sa.select(
    session.c.session_id,
    session.c.status,
    *(
        sa.select(sa.func.max(column)).where(*_own).scalar_subquery()
        for column in (message.c.sequence_no, message.c.create_time)
    ),
).where(*bound(session, space_no="space_no"), in_list(session.c.session_id, "names"))
_lasts = _lasts.with_for_update(key_share=True, of=session)
_of_session = bound(message, space_no="space_no", session_id="session_id")
_times = sa.select(message.c.create_time).where(*_of_session).order_by(message.c.create_time)
_taken = _times.where(tables.one_of(message.c.create_time, "times"))
_taken_from = _times.where(message.c.create_time >= sa.bindparam("time")).limit(read.CHUNK)


def ask_lasts(transaction: Transaction, items: Sequence[Message]) -> Lasts:
    """The last number and time of each session; asked for before anything is waited for."""
    owned = group(items, lambda it: transaction.space(it.agent_id, it.user_id).space_no)
    return {
        space_no: transaction.connection.execute(
            _lasts, {"space_no": space_no, "names": sorted({it.session_id for it in own})}
        )
        for space_no, own in owned.items()
    }


def number_messages(
    connection: sa.Connection, first: int, items: Sequence[Message], lasts: Lasts
) -> list[Message]:
    """Messages with consecutive ids from `first` on, and consecutive numbers in their sessions.

    A time that was chosen is not changed; a message whose time is that of its storing gets the next
    microsecond that is free. A message in a session that is disabled is PermissionDenied.
    """
    space_no = first >> SEQ_BITS
    numbered = list(items)
    sessions = group(range(len(items)), lambda at: items[at].session_id)
    known = {session_id: last for session_id, *last in lasts[space_no]}
    for session_id, indexes in sessions.items():
        values = {"space_no": space_no, "session_id": session_id}
        status, last, newest = known.get(session_id, (None, None, None))
        if status == DISABLED_SESSION:
            raise refusal("session", session_id)
        times = _free_times(connection, values, [items[at] for at in indexes], newest or 0)
        for number, (at, time) in enumerate(zip(indexes, times, strict=True), 1 + (last or 0)):
            numbered[at] = _numbered(items[at], time, number, first + at)
    return numbered


def _numbered(item: Message, time: Micros, number: int, arrival: int) -> Message:
    """A message in its place: what replace() makes in twice the time."""
    values = [*_values(item)]
    values[_TS], values[_NUMBER], values[_UNTIL], values[_ARRIVAL] = time, number, None, arrival
    return Message(*values)


def _free_times(
    connection: sa.Connection, values: Values, items: Sequence[Message], newest: Micros
) -> list[Micros]:
    """The times of a session's messages; those not chosen are moved to the next free microsecond.

    With 6 taken, 5, 5 and 5 become 5, 7 and 8; a 6 that was chosen stays one.
    """
    taken: set[Micros] = set()
    while True:
        times, used, moved = [], set(taken), set()
        following: dict[Micros, Micros] = {}  # where the search goes on for messages of one time
        for item in items:
            time = item.ts
            if time == item.ingest_time:
                time = following.get(time, time)
                while time in used:
                    time += 1
                following[item.ts] = time + 1
                moved.add(time)
            used.add(time)
            times.append(time)
        clashes = {
            time
            for chunk in read.chunks(sorted(time for time in moved if time <= newest))
            for time in connection.execute(_taken, {**values, "times": chunk}).scalars()
        }
        if not clashes:
            return times
        taken |= clashes
        # Where one is taken the next ones often are: read the run instead of meeting it bit by bit.
        taken |= set(connection.execute(_taken_from, {**values, "time": min(clashes)}).scalars())
