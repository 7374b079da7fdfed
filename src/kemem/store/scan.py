"""Messages read from their table: in time order, or by their ids."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    or_,
    select,
)

from kemem.records import Message, Note, Position, Where
from kemem.store.database import Space, Statement
from kemem.store.schema import message
from kemem.store.spaces import find_spaces

R = TypeVar("R", Message, Note)

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
    message.c.sensitive,
)
_METADATA = COLUMNS.index(message.c.metadata) - 2


class Stored(NamedTuple, Generic[R]):
    """A message or note and where it is stored."""

    space_no: int
    id: int
    row: R


def to_stored(rows: Iterable[Sequence[Any]]) -> list[Stored[Message]]:
    """Messages from the columns above."""
    stored = []
    for space_no, key, *fields in rows:
        fields[_METADATA] = fields[_METADATA] or {}
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
    spaces = message_spaces(connection, where)
    rows = scan_rows(connection, where, spaces, after, limit, newest_first)
    return [stored.row for stored in rows]


def message_spaces(connection: Connection, where: Where) -> list[Space]:
    """The spaces whose messages may be seen."""
    if "message" not in where.kinds or where.marks is not None or where.sources is not None:
        return []
    found = find_spaces(connection, where.scope)
    return [each for each in found if (each.agent_id, each.user_id) != (where.shared, "")]


def passing(
    page: Callable[[Position | None, int], list[Stored[R]]],
    where: Where,
    after: Position | None,
    limit: int,
) -> list[Stored[R]]:
    """Rows in order that a Where admits, where the database cannot tell: page by page."""
    if where.filters is None:
        return page(after, limit)
    kept: list[Stored[R]] = []
    while len(kept) < limit:
        rows = page(after, CHUNK)
        kept += [stored for stored in rows if where.matches(stored.row)]
        if len(rows) < CHUNK:
            break
        after = Position(rows[-1].row.ts, rows[-1].row.id)
    return kept[:limit]


def scan_rows(
    connection: Connection,
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Stored[Message]]:
    """The same, with the places they are stored at."""
    if not spaces or limit < 1:
        return []
    if where.ids is not None:
        found = named(connection, spaces, sorted(where.ids))
        return in_order(found, where, after, newest_first)[:limit]

    def page(after: Position | None, limit: int) -> list[Stored[Message]]:
        return _page(connection, where, spaces, after, limit, newest_first)

    return passing(page, where, after, limit)


def _page(
    connection: Connection,
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Stored[Message]]:
    ends = [where.until, None if where.known_by is None else where.known_by + 1]
    until = min((end for end in ends if end is not None), default=None)
    statement = _in_time_order(
        newest_first,
        after is not None,
        where.since is not None,
        until is not None,
        where.role is not None,
        where.scope.session_id is not None,
        where.sensitive,
    )
    values = {
        "spaces": [found.space_no for found in spaces],
        "after_ts": after.ts if after else None,
        "after_id": after.id if after else None,
        "since": where.since,
        "until": until,
        "role": where.role,
        "session_id": where.scope.session_id,
        "limit": limit,
    }
    return to_stored(connection.execute(statement, values))


@cache
def _in_time_order(
    newest_first: bool,
    beyond: bool,
    since: bool,
    until: bool,
    role: bool,
    session: bool,
    sensitive: bool,
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
    if not sensitive:
        conditions.append(~message.c.sensitive)
    order = time.desc() if newest_first else time.asc()
    return (
        select(*COLUMNS)
        .where(*conditions)
        .order_by(order, message.c.message_id)
        .limit(bindparam("limit"))
    )


def in_order(
    found: Iterable[Stored[R]], where: Where, after: Position | None, newest_first: bool
) -> list[Stored[R]]:
    """Those that a Where admits, in time order, beyond `after`."""
    sign = -1 if newest_first else 1

    def place(stored: Stored[R]) -> tuple[int, str]:
        return sign * stored.row.ts, stored.row.id

    visible = [stored for stored in found if where.matches(stored.row)]
    if after is not None:
        border = (sign * after.ts, after.id)
        visible = [stored for stored in visible if place(stored) > border]
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
) -> list[Stored[Message]]:
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
