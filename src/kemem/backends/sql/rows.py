"""Messages as rows: put, scan, drop."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
    tuple_,
)

from kemem.backends.sql.database import Database, IndexedText, Statement
from kemem.backends.sql.schema import SEQ_BITS, message, message_vector, session
from kemem.backends.sql.spaces import Space, find_spaces, lock_user, mark_changed, reserve
from kemem.backends.sql.timeline import separate
from kemem.errors import Conflict
from kemem.text.segment import search_text
from kemem.types import Message, Position, Where

_CHUNK = 500  # ids in one IN list
_COLUMNS = (
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
_in_spaces = message.c.space_no.in_(bindparam("spaces", expanding=True))
_with_ids = message.c.message_id.in_(bindparam("ids", expanding=True))


class Key(NamedTuple):
    """Where a message is stored."""

    message_id: str
    space_no: int
    id: int


def to_message(row: Sequence[Any]) -> Message:
    """A message from the columns above."""
    _, _, *fields = row
    fields[-2] = fields[-2] or {}
    return Message(*fields)


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Pieces short enough for one statement."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


@cache
def _scan(
    newest_first: bool,
    beyond: bool,
    since: bool,
    until: bool,
    role: bool,
    session_: bool,
    ids: bool,
) -> Statement:
    """The statement for one combination of filters, built once."""
    time = message.c.create_time
    conditions: list[ColumnElement[bool]] = [_in_spaces]
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
    if session_:
        conditions.append(message.c.session_id == bindparam("session_id"))
    if ids:
        conditions.append(_with_ids)
    order = time.desc() if newest_first else time.asc()
    return (
        select(*_COLUMNS)
        .where(*conditions)
        .order_by(order, message.c.message_id)
        .limit(bindparam("limit"))
    )


def _rows(
    connection: Connection,
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Row[*tuple[Any, ...]]]:
    statement = _scan(
        newest_first,
        after is not None,
        where.since is not None,
        where.until is not None,
        where.role is not None,
        where.scope.session_id is not None,
        where.ids is not None,
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
    if where.ids is None:
        return list(connection.execute(statement, values))
    found = [
        row
        for chunk in chunks(sorted(where.ids))
        for row in connection.execute(statement, {**values, "ids": list(chunk)})
    ]
    sign = -1 if newest_first else 1
    return sorted(found, key=lambda row: (sign * row.create_time, row.message_id))[:limit]


def scan(
    connection: Connection, where: Where, after: Position | None, limit: int, newest_first: bool
) -> list[Message]:
    """Visible messages in time order."""
    spaces = find_spaces(connection, where.scope)
    if not spaces or limit < 1:
        return []
    return [to_message(row) for row in _rows(connection, where, spaces, after, limit, newest_first)]


@cache
def _by_key(count: int) -> Statement:
    """Rows of one space by `count` ids, bound one by one: faster than a list of any size."""
    wanted: list[BindParameter[int]] = [bindparam(f"key_{index}") for index in range(count)]
    return select(*_COLUMNS).where(
        message.c.space_no == bindparam("of_space"), message.c.id.in_(wanted)
    )


def load(connection: Connection, keys: Sequence[int]) -> dict[int, Message]:
    """Messages by their internal ids; those that are gone are left out."""
    by_space: dict[int, list[int]] = defaultdict(list)
    for key in keys:
        by_space[key >> SEQ_BITS].append(key)
    loaded: dict[int, Message] = {}
    for space_no, own in by_space.items():
        for chunk in chunks(own):
            count = 1 << (len(chunk) - 1).bit_length()  # few sizes, so few statements
            padded = [*chunk, *[chunk[-1]] * (count - len(chunk))]
            values = {f"key_{index}": key for index, key in enumerate(padded)}
            rows = connection.execute(_by_key(count), {"of_space": space_no, **values})
            loaded.update((row.id, to_message(row)) for row in rows)
    return loaded


_keys = select(message.c.message_id, message.c.space_no, message.c.id, message.c.session_id).where(
    _in_spaces, _with_ids
)


def find_keys(
    connection: Connection,
    spaces: Sequence[Space],
    message_ids: Sequence[str],
    session_id: str | None = None,
) -> list[Key]:
    """The keys of messages by their public ids; those that do not exist are left out."""
    numbers = [found.space_no for found in spaces]
    return [
        Key(row.message_id, row.space_no, row.id)
        for chunk in chunks(message_ids)
        for row in connection.execute(_keys, {"spaces": numbers, "ids": list(chunk)})
        if session_id in (None, row.session_id)
    ]


def put(
    connection: Connection, database: Database, messages: Sequence[Message]
) -> tuple[list[Message], list[str]]:
    """Store messages; returns them as stored, and the ids that were there already."""
    by_user: dict[str, list[Message]] = defaultdict(list)
    for item in messages:
        by_user[item.user_id].append(item)
    stored: dict[tuple[str, str], Message] = {}
    for user_id in sorted(by_user):  # always in this order, so that no two writers deadlock
        for item in _put_user(connection, database, user_id, by_user[user_id]):
            stored[user_id, item.message_id] = item
    inserted, ignored = [], []
    for item in messages:
        fresh = stored.pop((item.user_id, item.message_id), None)
        if fresh:
            inserted.append(fresh)
        else:
            ignored.append(item.message_id)
    return inserted, ignored


def _put_user(
    connection: Connection, database: Database, user_id: str, messages: Sequence[Message]
) -> list[Message]:
    now = messages[0].ingest_time
    agents = {item.agent_id for item in messages}
    spaces = lock_user(connection, database, user_id, agents, now)
    fresh = _fresh(connection, list(spaces.values()), messages)
    by_agent: dict[str, list[Message]] = defaultdict(list)
    for item in fresh:
        by_agent[item.agent_id].append(item)
    return [
        item
        for agent_id, items in by_agent.items()
        for item in _insert(connection, database, spaces[agent_id], items)
    ]


_known = select(*_COLUMNS).where(_in_spaces, _with_ids)


def _fresh(
    connection: Connection, spaces: Sequence[Space], messages: Sequence[Message]
) -> list[Message]:
    """Messages that are not there yet; one that is, with other content, refuses the batch."""
    numbers = [found.space_no for found in spaces]
    known = {
        item.message_id: item
        for chunk in chunks([item.message_id for item in messages])
        for item in map(
            to_message, connection.execute(_known, {"spaces": numbers, "ids": list(chunk)})
        )
    }
    fresh, conflicts = [], []
    for item in messages:
        other = known.get(item.message_id)
        if other is None:
            known[item.message_id] = item
            fresh.append(item)
        elif not _same(item, other):
            conflicts.append(item.message_id)
    if conflicts:
        raise Conflict(
            f"stored already with other content: {', '.join(conflicts[:5])}; nothing was stored",
            message_ids=conflicts,
        )
    return fresh


def _same(given: Message, stored: Message) -> bool:
    """Whether a message was only handed in again; a retry may carry another time."""
    return given == replace(
        stored, ts=given.ts, ingest_time=given.ingest_time, sequence_no=given.sequence_no
    )


def _insert(
    connection: Connection, database: Database, found: Space, messages: Sequence[Message]
) -> list[Message]:
    """New rows of one space with their words."""
    _ensure_sessions(connection, database, found, messages)
    placed = separate(connection, found.space_no, messages)
    first = reserve(connection, found, len(placed))
    texts = [search_text(item.words) for item in placed]
    connection.execute(
        insert(message),
        [
            {
                "space_no": found.space_no,
                "id": first + index,
                "message_id": item.message_id,
                "agent_id": item.agent_id,
                "user_id": item.user_id,
                "session_id": item.session_id,
                "role": item.role,
                "content": item.content,
                "content_type": item.content_type,
                "metadata": dict(item.metadata) or None,
                "parent_message_id": item.parent_message_id,
                "create_time": item.ts,
                "ingest_time": item.ingest_time,
                "sequence_no": item.sequence_no,
                "length": len(texts[index].split()),
            }
            for index, item in enumerate(placed)
        ],
    )
    database.add_words(
        connection,
        [IndexedText(found.space_no, first + index, body) for index, body in enumerate(texts)],
    )
    return placed


def _ensure_sessions(
    connection: Connection, database: Database, found: Space, messages: Sequence[Message]
) -> None:
    upsert = database.insert(session)
    connection.execute(
        upsert.on_conflict_do_update(
            index_elements=["space_no", "session_id"],
            set_={"update_time": upsert.excluded.update_time},
        ),
        [
            {
                "space_no": found.space_no,
                "session_id": session_id,
                "agent_id": found.agent_id,
                "user_id": found.user_id,
                "create_time": messages[0].ingest_time,
                "update_time": messages[0].ingest_time,
            }
            for session_id in dict.fromkeys(item.session_id for item in messages)
        ],
    )


def drop(connection: Connection, database: Database, where: Where) -> int:
    """Remove visible messages with their words and vectors."""
    spaces = find_spaces(connection, where.scope)
    dropped = 0
    while spaces and (rows := _rows(connection, where, spaces, None, _CHUNK, False)):
        keys = [row.id for row in rows]
        texts = [
            IndexedText(row.space_no, row.id, search_text(to_message(row).words)) for row in rows
        ]
        database.remove_words(connection, texts)
        for table in (message_vector, message):
            connection.execute(
                delete(table).where(
                    table.c.space_no.in_({row.space_no for row in rows}), table.c.id.in_(keys)
                )
            )
        dropped += len(rows)
    if dropped:
        for found in spaces:
            mark_changed(connection, found.space_no, rows=True)
    return dropped


def rebuild_words(connection: Connection, database: Database) -> None:
    """Derive the word index again from the messages."""
    database.clear_words(connection)
    key = tuple_(message.c.space_no, message.c.id)
    page = select(*_COLUMNS).order_by(*key.clauses).limit(1000)
    rows = connection.execute(page).all()
    while rows:
        texts = [
            IndexedText(row.space_no, row.id, search_text(to_message(row).words)) for row in rows
        ]
        database.add_words(connection, texts)
        last = tuple_(rows[-1].space_no, rows[-1].id)
        rows = connection.execute(page.where(key > last)).all()
