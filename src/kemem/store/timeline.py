"""Places in a session: no two messages share a time, and every one has its number."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, bindparam, func, select

from kemem.records import Message, Micros
from kemem.store.schema import message

_RUN = 1000  # taken times read at once where messages crowd

_of_session = (
    message.c.space_no == bindparam("space_no"),
    message.c.session_id == bindparam("session_id"),
)
_last_number = select(func.max(message.c.sequence_no)).where(*_of_session)
_taken = select(message.c.create_time).where(
    *_of_session, message.c.create_time.in_(bindparam("times", expanding=True))
)
_run_from = (
    select(message.c.create_time)
    .where(*_of_session, message.c.create_time >= bindparam("time"))
    .order_by(message.c.create_time)
    .limit(_RUN)
)


def separate(connection: Connection, space_no: int, messages: Sequence[Message]) -> list[Message]:
    """Messages with times of their own and consecutive numbers; the order given is kept."""
    by_session: dict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(messages):
        by_session[item.session_id].append(index)
    placed = list(messages)
    for session_id, indexes in by_session.items():
        values = {"space_no": space_no, "session_id": session_id}
        number = connection.execute(_last_number, values).scalar() or 0
        times = _free_times(connection, values, [messages[index].ts for index in indexes])
        for index, time in zip(indexes, times, strict=True):
            number += 1
            placed[index] = replace(messages[index], ts=time, sequence_no=number)
    return placed


def _free_times(
    connection: Connection, values: dict[str, object], wanted: Sequence[Micros]
) -> list[Micros]:
    """The wanted times, moved on to the next free microsecond where they are taken."""
    taken: set[Micros] = set()
    while True:
        times = next_free(wanted, taken)
        clashes = {
            time
            for start in range(0, len(times), _RUN)
            for time in connection.execute(
                _taken, {**values, "times": times[start : start + _RUN]}
            ).scalars()
        }
        if not clashes:
            return times
        taken |= clashes
        # Where one is taken the next ones often are: read the run instead of meeting it bit by bit.
        taken |= set(connection.execute(_run_from, {**values, "time": min(clashes)}).scalars())


def next_free(wanted: Sequence[Micros], taken: Iterable[Micros]) -> list[Micros]:
    """Distinct times, each the first free one from its wish on.  ([5, 5, 5], {6}) -> [5, 7, 8]"""
    following = {time: time + 1 for time in taken}

    def claim(time: Micros) -> Micros:
        passed = []
        while time in following:
            passed.append(time)
            time = following[time]
        for step in passed:  # shorten the way for those who come later
            following[step] = time + 1
        following[time] = time + 1
        return time

    return [claim(time) for time in wanted]
