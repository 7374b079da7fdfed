"""Places in a session: every message has its number, and a time of its own unless one was given."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, bindparam, func, select

from kemem.records import Message, Micros
from kemem.store.schema import message

Wish = tuple[Micros, bool]  # a time, and whether it was given: then it is kept

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
    """Messages with consecutive numbers; the order given is kept, and so is a time that was given.

    A message whose time is that of its storing gets the next microsecond that is free.
    """
    by_session: dict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(messages):
        by_session[item.session_id].append(index)
    placed = list(messages)
    for session_id, indexes in by_session.items():
        values = {"space_no": space_no, "session_id": session_id}
        number = connection.execute(_last_number, values).scalar() or 0
        wanted = [
            (item.ts, item.ts != item.ingest_time) for item in map(messages.__getitem__, indexes)
        ]
        times = _free_times(connection, values, wanted)
        for index, time in zip(indexes, times, strict=True):
            number += 1
            placed[index] = replace(messages[index], ts=time, sequence_no=number)
    return placed


def _free_times(
    connection: Connection, values: dict[str, object], wanted: Sequence[Wish]
) -> list[Micros]:
    """The wanted times; those not given are moved to the next free microsecond."""
    taken: set[Micros] = set()
    while True:
        times = next_free(wanted, taken)
        free = [time for time, (_, is_given) in zip(times, wanted, strict=True) if not is_given]
        clashes = {
            time
            for start in range(0, len(free), _RUN)
            for time in connection.execute(
                _taken, {**values, "times": free[start : start + _RUN]}
            ).scalars()
        }
        if not clashes:
            return times
        taken |= clashes
        # Where one is taken the next ones often are: read the run instead of meeting it bit by bit.
        taken |= set(connection.execute(_run_from, {**values, "time": min(clashes)}).scalars())


def next_free(wanted: Sequence[Wish], taken: Iterable[Micros]) -> list[Micros]:
    """Times that were given, and for all others the first free one from their wish on.

    With 6 taken, 5, 5 and 5 become 5, 7 and 8; a 6 that was given stays one.
    """
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

    times = []
    for time, is_given in wanted:
        if is_given:
            following.setdefault(time, time + 1)
        times.append(time if is_given else claim(time))
    return times
