"""Messages in their sessions: consecutive numbers, and a free microsecond for each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from kemem.records import Message, Micros
from kemem.store import read, tables
from kemem.store.database import Values, bound, group
from kemem.store.schema import message
from kemem.store.spaces import Transaction

Lasts = Mapping[tuple[int, str], sa.Result[*tuple[Any, ...]]]  # by number of the space and session

_of_session = bound(message, space_no="space_no", session_id="session_id")
_last = sa.select(
    sa.select(sa.func.max(message.c.sequence_no)).where(*_of_session).scalar_subquery(),
    sa.select(sa.func.max(message.c.create_time)).where(*_of_session).scalar_subquery(),
)
_times = sa.select(message.c.create_time).where(*_of_session).order_by(message.c.create_time)
_taken = _times.where(tables.one_of(message.c.create_time, "times"))
_taken_from = _times.where(message.c.create_time >= sa.bindparam("time")).limit(read.CHUNK)


def ask_lasts(transaction: Transaction, items: Sequence[Message]) -> Lasts:
    """The last number and time of each session; asked for before anything is waited for."""
    keys = {(transaction.space(it.agent_id, it.user_id).space_no, it.session_id) for it in items}
    return {
        key: transaction.connection.execute(_last, {"space_no": key[0], "session_id": key[1]})
        for key in keys
    }


def number_messages(
    connection: sa.Connection, space_no: int, items: Sequence[Message], lasts: Lasts
) -> list[Message]:
    """Messages with consecutive numbers in their sessions; a time that was chosen is not changed.

    A message whose time is that of its storing gets the next microsecond that is free.
    """
    numbered = list(items)
    sessions = group(range(len(items)), lambda at: items[at].session_id)
    for session_id, indexes in sessions.items():
        values = {"space_no": space_no, "session_id": session_id}
        last, newest = lasts[space_no, session_id].one()
        times = _free_times(connection, values, [items[at] for at in indexes], newest or 0)
        for number, (at, time) in enumerate(zip(indexes, times, strict=True), 1 + (last or 0)):
            numbered[at] = replace(
                items[at], ts=time, sequence_no=number, valid_until=None, arrival=0
            )
    return numbered


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
