"""Messages read from their table: in time order, or by their ids."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    or_,
    select,
)

from kemem.backends.sql.database import Space, Statement
from kemem.backends.sql.schema import message
from kemem.backends.sql.spaces import find_spaces
from kemem.types import Message, Position, Where

CHUNK = 512  # ids in one statement
COLUMNS = (
    message.c.space_no,
    message.c.id,
    message.c.message_id,
    message.c.agent_id,
    message.c.user_id,
    message.c.session_id,
    message.c.role,
    message.c.content,
    message.c.create_time,
    message.c.ingest_time,
    message.c.content_type,
    message.c.parent_message_id,
    message.c.metadata,
    message.c.sequence_no,
)


class Stored(NamedTuple):
    """A message and where it is stored."""

    space_no: int
    id: int
    message: Message


def to_stored(rows: Iterable[Sequence[Any]]) -> list[Stored]:
    """Messages from the columns above."""
    stored = []
    for space_no, key, *fields in rows:
        fields[-2] = fields[-2] or {}  # metadata
        stored.append(Stored(space_no, key, Message(*fields)))
    return stored


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Pieces short enough for one statement."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def scan(
    connection: Connection, where: Where, after: Position | None, limit: int, newest_first: bool
) -> list[Message]:
    """Visible messages in time order, beyond `after`."""
    spaces = find_spaces(connection, where.scope)
    return [row.message for row in scan_rows(connection, where, spaces, after, limit, newest_first)]


def scan_rows(
    connection: Connection,
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Stored]:
    """The same, with the places they are stored at."""
    if where.ids is not None:
        return _by_ids(connection, where, spaces, after, newest_first)[:limit]
    if not spaces or limit < 1:
        return []
    statement = _in_time_order(
        newest_first,
        after is not None,
        where.since is not None,
        where.until is not None,
        where.role is not None,
        where.scope.session_id is not None,
    )
    values = {
        "spaces": [found.space_no for found in spaces],
        "after_ts": after.ts if after else None,
        "after_id": after.message_id if after else None,
        "since": where.since,
        "until": where.until,
        "role": where.role,
        "session_id": where.scope.session_id,
        "limit": limit,
    }
    return to_stored(connection.execute(statement, values))


@cache
def _in_time_order(
    newest_first: bool, beyond: bool, since: bool, until: bool, role: bool, session: bool
) -> Statement:
    """The statement for one combination of filters, built once."""
    time = message.c.create_time
    conditions: list[ColumnElement[bool]] = [
        message.c.space_no.in_(bindparam("spaces", expanding=True))
    ]
    if beyond:
        at: BindParameter[int] = bindparam("after_ts")
        level = message.c.message_id > bindparam("after_id")
        further = time < at if newest_first else time > at
        conditions.append(or_(further, and_(time == at, level)))
        # Implied by the line above, but it is what lets an index seek.
        conditions.append(time <= at if newest_first else time >= at)
    if since:
        conditions.append(time >= bindparam("since"))
    if until:
        conditions.append(time < bindparam("until"))
    if role:
        conditions.append(message.c.role == bindparam("role"))
    if session:
        conditions.append(message.c.session_id == bindparam("session_id"))
    order = time.desc() if newest_first else time.asc()
    return (
        select(*COLUMNS)
        .where(*conditions)
        .order_by(order, message.c.message_id)
        .limit(bindparam("limit"))
    )


def _by_ids(
    connection: Connection,
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    newest_first: bool,
) -> list[Stored]:
    sign = -1 if newest_first else 1

    def place(row: Stored) -> tuple[int, str]:
        return sign * row.message.ts, row.message.message_id

    found = named(connection, spaces, sorted(where.ids or ()))
    visible = [row for row in found if where.matches(row.message)]
    if after is not None:
        border = (sign * after.ts, after.message_id)
        visible = [row for row in visible if place(row) > border]
    return sorted(visible, key=place)


@cache
def _named(count: int) -> Statement:
    """Rows of one space by `count` ids, bound one by one: faster than a list of any size."""
    wanted: list[BindParameter[str]] = [bindparam(f"name_{index}") for index in range(count)]
    return select(*COLUMNS).where(
        message.c.space_no == bindparam("of_space"), message.c.message_id.in_(wanted)
    )


def named(
    connection: Connection, spaces: Sequence[Space], message_ids: Sequence[str]
) -> list[Stored]:
    """Messages by their ids; those that do not exist are left out."""
    found = []
    for chunk in chunks(message_ids):
        count = 1 << (len(chunk) - 1).bit_length()  # few sizes, so few statements to compile
        padded = [*chunk, *[chunk[-1]] * (count - len(chunk))]
        values = {f"name_{index}": name for index, name in enumerate(padded)}
        for space in spaces:
            rows = connection.execute(_named(count), {"of_space": space.space_no, **values})
            found += to_stored(rows)
    return found
