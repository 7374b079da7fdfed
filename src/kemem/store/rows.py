"""Messages written to their table, with their words: put, drop."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, bindparam, delete, insert, select

from kemem.errors import Conflict
from kemem.records import Message, Where
from kemem.store.database import IndexedText, Space
from kemem.store.read import CHUNK, Stored, chunks, indexed_texts, named, read_rows
from kemem.store.read import messages as message_rows
from kemem.store.schema import message, row_vector
from kemem.store.spaces import ensure_sessions, invalidate_cache, reserve, visible_spaces
from kemem.store.timeline import separate
from kemem.store.transaction import Transaction
from kemem.text.marks import index_text, length


def put_messages(
    transaction: Transaction, messages: Sequence[Message]
) -> tuple[list[Message], list[str]]:
    """Store messages; returns them as stored, and the ids that were there already."""
    by_user: dict[str, list[Message]] = defaultdict(list)
    for item in messages:
        by_user[item.user_id].append(item)
    stored: dict[tuple[str, str], Message] = {}
    for user_id, own in by_user.items():
        for item in _put_user(transaction, user_id, own):
            stored[user_id, item.message_id] = item
    inserted, ignored = [], []
    for item in messages:
        fresh = stored.pop((item.user_id, item.message_id), None)
        if fresh:
            inserted.append(fresh)
        else:
            ignored.append(item.message_id)
    return inserted, ignored


def _put_user(transaction: Transaction, user_id: str, messages: Sequence[Message]) -> list[Message]:
    fresh = _fresh(transaction.connection, transaction.spaces_of_user(user_id), messages)
    by_agent: dict[str, list[Message]] = defaultdict(list)
    for item in fresh:
        by_agent[item.agent_id].append(item)
    return [
        item
        for agent_id, items in by_agent.items()
        for item in _insert(transaction, transaction.space(agent_id, user_id), items)
    ]


def _fresh(
    connection: Connection, spaces: Sequence[Space], messages: Sequence[Message]
) -> list[Message]:
    """Messages that are not there yet; one that is, with other content, refuses the batch."""
    ids = [item.message_id for item in messages]
    known = {it.row.message_id: it.row for it in named(connection, message_rows, spaces, ids)}
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


def _insert(transaction: Transaction, found: Space, messages: Sequence[Message]) -> list[Message]:
    """New rows of one space with their words."""
    connection, database = transaction.connection, transaction.database
    now = messages[0].ingest_time
    sessions = dict.fromkeys((item.session_id for item in messages), (now, now))
    ensure_sessions(connection, database, found, sessions)
    separated = separate(connection, found.space_no, messages)
    first = reserve(connection, found, len(separated))
    placed = [replace(item, arrival=first + at) for at, item in enumerate(separated)]
    texts = [index_text(item) for item in placed]
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
                "length": length(texts[index]),
                "sensitive": item.sensitive,
            }
            for index, item in enumerate(placed)
        ],
    )
    database.add_words(
        connection,
        [IndexedText(found.space_no, first + index, body) for index, body in enumerate(texts)],
    )
    return placed


def drop_messages(transaction: Transaction, where: Where) -> list[Stored[Message]]:
    """Remove visible messages with their words and vectors; notes cite them no longer."""
    connection, database = transaction.connection, transaction.database
    spaces = visible_spaces(connection, where)
    gone: list[Stored[Message]] = []
    while rows := read_rows(connection, message_rows, where, spaces, None, CHUNK, False):
        database.remove_words(connection, indexed_texts(rows))
        for table in (row_vector, message):
            connection.execute(
                delete(table).where(
                    table.c.space_no.in_({row.space_no for row in rows}),
                    table.c.id.in_([row.id for row in rows]),
                )
            )
        gone += rows
    for space_no in {row.space_no for row in gone}:
        invalidate_cache(connection, space_no, rows=True)
    return gone


_existing = select(message.c.message_id).where(
    message.c.space_no == bindparam("of_space"),
    message.c.message_id.in_(bindparam("names", expanding=True)),
)


def existing_messages(
    connection: Connection, spaces: Iterable[Space], names: Iterable[str]
) -> set[str]:
    """Which of these ids are those of messages."""
    wanted = sorted(set(names))
    return {
        name
        for space in spaces
        for chunk in chunks(wanted)
        for name in connection.execute(
            _existing, {"of_space": space.space_no, "names": list(chunk)}
        ).scalars()
    }
