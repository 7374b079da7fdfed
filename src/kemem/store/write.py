"""Messages and notes written to their tables, with their words: put, merge, drop."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from kemem.errors import Conflict
from kemem.ports.request import Key, key_of
from kemem.records import Message, Micros, Note, Scope, Where
from kemem.records.batch import Use
from kemem.store.database import Space
from kemem.store.graph import unlink
from kemem.store.read import (
    CHUNK,
    chunks,
    existing_messages,
    indexed_texts,
    named,
    open_notes,
    read_rows,
)
from kemem.store.rows import TABLES, R, RowTable, Stored, messages, notes
from kemem.store.schema import message, note, note_history, note_source, row_vector
from kemem.store.spaces import Refused, Transaction
from kemem.text.query import index_text, length

TimeRequest = tuple[Micros, bool]  # a time, and whether the caller chose it: then it stays

_FIXED = {"space_no", "id", "note_id", "agent_id", "user_id", "arrival"}
_CHANGEABLE = [each.name for each in note.c if each.name not in _FIXED]
_update = (
    sa.update(note)
    .where(note.c.space_no == sa.bindparam("of_space"), note.c.id == sa.bindparam("of_row"))
    .values({name: sa.bindparam(f"new_{name}") for name in _CHANGEABLE})
)
_drop_sources = sa.delete(note_source).where(
    note_source.c.space_no == sa.bindparam("of_space"),
    note_source.c.note_row == sa.bindparam("of_row"),
)
_use = (
    sa.update(note)
    .where(note.c.note_id == sa.bindparam("of_note"))
    .where(note.c.agent_id == sa.bindparam("of_agent"), note.c.user_id == sa.bindparam("of_user"))
    .values(use_count=note.c.use_count + sa.bindparam("more"), use_time=sa.bindparam("at"))
)
_insert = {table: sa.insert(table) for table in (message, note, note_source)}
_of_session = (
    message.c.space_no == sa.bindparam("space_no"),
    message.c.session_id == sa.bindparam("session_id"),
)
_last = sa.select(
    sa.select(sa.func.max(message.c.sequence_no)).where(*_of_session).scalar_subquery(),
    sa.select(sa.func.max(message.c.create_time)).where(*_of_session).scalar_subquery(),
)
_taken = sa.select(message.c.create_time).where(
    *_of_session, message.c.create_time.in_(sa.bindparam("times", expanding=True))
)
_taken_from = (
    sa.select(message.c.create_time)
    .where(*_of_session, message.c.create_time >= sa.bindparam("time"))
    .order_by(message.c.create_time)
    .limit(CHUNK)
)


def put_messages(
    transaction: Transaction, items: Sequence[Message]
) -> tuple[list[Message], list[str]]:
    """Store messages; returns them as stored, and the ids that were there already."""
    by_user: dict[str, list[Message]] = defaultdict(list)
    for item in items:
        by_user[item.user_id].append(item)
    stored: dict[tuple[str, str], Message] = {}
    for user_id, own in by_user.items():
        by_agent: dict[str, list[Message]] = defaultdict(list)
        for item in _new_messages(transaction, user_id, own):
            by_agent[item.agent_id].append(item)
        for agent_id, new in by_agent.items():
            space, now = transaction.space(agent_id, user_id), new[0].ingest_time
            transaction.ensure_sessions(space, {item.session_id: (now, now) for item in new})
            numbered = _number(transaction.connection, space.space_no, new)
            for each in _insert_rows(transaction, messages, space, numbered):
                stored[user_id, each.row.message_id] = each.row
    inserted, ignored = [], []
    for item in items:
        row = stored.pop((item.user_id, item.message_id), None)
        if row:
            inserted.append(row)
        else:
            ignored.append(item.message_id)
    return inserted, ignored


def _new_messages(
    transaction: Transaction, user_id: str, items: Sequence[Message]
) -> list[Message]:
    """Messages that are not stored yet; one that is, with other content, refuses the batch.

    A message that is handed in again may carry another time.
    """
    spaces = transaction.spaces(Scope(user_id=user_id))
    names = [item.message_id for item in items]
    rows = named(transaction.connection, messages, spaces, names)
    existing = {stored.row.message_id: stored.row for stored in rows}
    new, conflicts = [], []
    for item in items:
        other = existing.get(item.message_id)
        if other is None:
            existing[item.message_id] = item
            new.append(item)
        elif item != replace(
            other, ts=item.ts, ingest_time=item.ingest_time, sequence_no=item.sequence_no
        ):
            conflicts.append(item.message_id)
    if conflicts:
        raise Conflict(
            f"stored already with other content: {', '.join(conflicts[:5])}; nothing was stored",
            message_ids=conflicts,
        )
    return new


def _number(connection: sa.Connection, space_no: int, items: Sequence[Message]) -> list[Message]:
    """Messages with consecutive numbers in their sessions; a time that was chosen is not changed.

    A message whose time is that of its storing gets the next microsecond that is free.
    """
    by_session: dict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        by_session[item.session_id].append(index)
    numbered = list(items)
    for session_id, indexes in by_session.items():
        values = {"space_no": space_no, "session_id": session_id}
        last, newest = connection.execute(_last, values).one()
        requests = [(items[at].ts, items[at].ts != items[at].ingest_time) for at in indexes]
        times = _free_times(connection, values, requests, newest or 0)
        for number, (index, time) in enumerate(zip(indexes, times, strict=True), 1 + (last or 0)):
            numbered[index] = replace(items[index], ts=time, sequence_no=number, arrival=0)
    return numbered


def _free_times(
    connection: sa.Connection,
    values: dict[str, Any],
    requests: Sequence[TimeRequest],
    newest: Micros,
) -> list[Micros]:
    """The requested times; those not chosen are moved to the next free microsecond."""
    taken: set[Micros] = set()
    while True:
        times = _next_free(requests, taken)
        free = [it for it, (_, chosen) in zip(times, requests, strict=True) if not chosen]
        clashes = {
            time
            for chunk in chunks([time for time in free if time <= newest])
            for time in connection.execute(_taken, {**values, "times": chunk}).scalars()
        }
        if not clashes:
            return times
        taken |= clashes
        # Where one is taken the next ones often are: read the run instead of meeting it bit by bit.
        taken |= set(connection.execute(_taken_from, {**values, "time": min(clashes)}).scalars())


def _next_free(requests: Sequence[TimeRequest], taken: Iterable[Micros]) -> list[Micros]:
    """Times that were chosen, and for all others the first free one from theirs on.

    With 6 taken, 5, 5 and 5 become 5, 7 and 8; a 6 that was chosen stays one.
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
    for time, is_chosen in requests:
        if is_chosen:
            following.setdefault(time, time + 1)
        times.append(time if is_chosen else claim(time))
    return times


def _insert_rows(
    transaction: Transaction, table: RowTable[R], space: Space, rows: Sequence[R]
) -> list[Stored[R]]:
    """New rows of one space with their words."""
    if not rows:
        return []
    connection = transaction.connection
    first = transaction.reserve(space, len(rows))
    stored = [
        Stored(space.space_no, number, replace(row, arrival=row.arrival or number))
        for number, row in enumerate(rows, first)
    ]
    texts = indexed_texts(stored)
    connection.execute(
        _insert[table.table],
        [
            {
                **table.dump(it.row),
                **{"space_no": it.space_no, "id": it.id, "length": length(text.text)},
            }
            for it, text in zip(stored, texts, strict=True)
        ],
    )
    _insert_sources(connection, stored)
    transaction.database.add_words(connection, texts)
    return stored


def _insert_sources(connection: sa.Connection, rows: Iterable[Stored[Any]]) -> None:
    """What notes cite."""
    lines = [
        {"space_no": it.space_no, "note_row": it.id, "position": position, "message_id": name}
        for it in rows
        if isinstance(it.row, Note)
        for position, name in enumerate(it.row.sources)
    ]
    if lines:
        connection.execute(_insert[note_source], lines)


def put_notes(
    transaction: Transaction, items: Sequence[Note], inserted: Sequence[Message]
) -> tuple[dict[Key, tuple[Space, int]], dict[Key, str]]:
    """Store notes, each new, changed or merged into one that says the same.

    Returns the space and row of each note, and the id of the note that each merged one is now part
    of. The messages `inserted` before need not be looked up.
    """
    by_owner: dict[tuple[str, str], list[Note]] = defaultdict(list)
    for item in items:
        by_owner[item.agent_id, item.user_id].append(item)
    places: dict[Key, tuple[Space, int]] = {}
    merged: dict[Key, str] = {}
    for owner, own in by_owner.items():
        space = transaction.space(*owner)
        new = {it.message_id for it in inserted if (it.agent_id, it.user_id) == owner}
        rows = _put_space(transaction, space, own, merged, new)
        for item in own:
            places[key_of(item)] = (space, rows[merged.get(key_of(item), item.note_id)])
    return places, merged


def _put_space(
    transaction: Transaction,
    space: Space,
    items: list[Note],
    merged: dict[Key, str],
    inserted: set[str],
) -> dict[str, int]:
    """Store the notes of one space; returns the row of each, and of those they merged into."""
    connection = transaction.connection
    stored = {
        it.row.note_id: it
        for it in (
            *named(connection, notes, [space], {item.note_id for item in items}),
            *open_notes(connection, space, [item.digest for item in items]),
        )
    }
    sessions = {
        item.session_id: (item.created, item.updated)
        for item in items
        if item.session_id is not None and item.note_id not in stored
    }
    transaction.ensure_sessions(space, sessions)
    cited = {name for item in items for name in item.sources} - inserted
    missing = cited - existing_messages(connection, [space], cited)
    if any(missing & {*item.sources} for item in items if item.note_id not in stored):
        raise Refused("source")
    if missing:  # a changed note only loses the sources that have been deleted since
        items = [
            replace(item, sources=tuple(name for name in item.sources if name not in missing))
            for item in items
        ]
    final = _settle(items, {name: it.row for name, it in stored.items()}, merged)
    new, replaced = [], []
    for name, item in final.items():
        before = stored.get(name)
        if before is None:
            new.append(replace(item, arrival=0))
        elif before.row.words != item.words:
            replaced.append(before)
            new.append(replace(item, arrival=before.row.arrival))
        elif before.row != item:
            _change(transaction, before, item)
    if replaced:
        _remove(transaction, notes, replaced)
    rows = {name: it.id for name, it in stored.items()}
    return rows | {it.row.note_id: it.id for it in _insert_rows(transaction, notes, space, new)}


def _settle(
    items: Sequence[Note], stored: Mapping[str, Note], merged: dict[Key, str]
) -> dict[str, Note]:
    """What each note of a batch ends up as, one after the other."""
    current = dict(stored)
    final: dict[str, Note] = {}
    for item in items:
        if item.note_id not in current:
            place = (item.digest, item.kind, item.session_id)
            twins = [
                it
                for it in current.values()
                if it.valid_until is None and not it.ended(item.updated)
                if (it.digest, it.kind, it.session_id) == place
            ]
            twin = min(twins, key=lambda it: it.note_id, default=None)
            if twin is not None:
                merged[key_of(item)] = twin.note_id
                item = _merge(twin, item)
        current[item.note_id] = final[item.note_id] = item
    return final


def _merge(old: Note, new: Note) -> Note:
    lasts = old.expires is None or new.expires is None
    return replace(
        old,
        sources=tuple(dict.fromkeys((*old.sources, *new.sources))),
        importance=max(old.importance, new.importance),
        sensitive=old.sensitive or new.sensitive,
        updated=max(old.updated, new.updated),
        expires=None if lasts else max(old.expires or 0, new.expires or 0),
    )


def _change(transaction: Transaction, before: Stored[Note], item: Note) -> None:
    """Everything but a note's words."""
    connection, this = transaction.connection, {"of_space": before.space_no, "of_row": before.id}
    values = {**notes.dump(item), "length": length(index_text(item))}
    connection.execute(_update, this | {f"new_{name}": values[name] for name in _CHANGEABLE})
    if before.row.sources != item.sources:
        connection.execute(_drop_sources, this)
        _insert_sources(connection, [before._replace(row=item)])
    cached = ("ts", "kind", "session_id")
    if any(getattr(before.row, name) != getattr(item, name) for name in cached):
        transaction.invalidate_cache(before.space_no, rows=True)


def _remove(transaction: Transaction, table: RowTable[R], rows: Sequence[Stored[R]]) -> None:
    """Take rows out with their words, vectors, links and sources."""
    connection = transaction.connection
    transaction.database.remove_words(connection, indexed_texts(rows))
    by_space: dict[int, list[int]] = defaultdict(list)
    for it in rows:
        by_space[it.space_no].append(it.id)
    for space_no, keys in by_space.items():
        if table is notes:
            unlink(connection, space_no, keys)
        for each in (row_vector, table.table):
            connection.execute(
                sa.delete(each).where(each.c.space_no == space_no, each.c.id.in_(keys))
            )
        transaction.invalidate_cache(space_no, rows=True)


def drop_rows(
    transaction: Transaction, where: Where, at: Micros, reason: str | None
) -> list[Stored[Any]]:
    """Remove visible rows; notes cite removed messages no longer.

    Each removed note leaves one line in the history, without its text.
    """
    connection = transaction.connection
    spaces = transaction.spaces(where.scope, where.shared)
    removed: list[Stored[Any]] = []
    for table in TABLES:
        while rows := read_rows(connection, table, where, spaces, None, CHUNK, False):
            _remove(transaction, table, rows)
            removed += rows
            for space in spaces if table is notes else ():
                names = [it.row.note_id for it in rows if it.space_no == space.space_no]
                if names:
                    this_space = note_history.c.space_no == space.space_no
                    own = (this_space, note_history.c.note_id.in_(names))
                    connection.execute(sa.delete(note_history).where(*own))
                if names and not where.everything:  # an erased scope leaves no trace at all
                    first = transaction.reserve(space, len(names))
                    line = {"event": "delete", "create_time": at, "reason": reason}
                    lines = [
                        {"space_no": space.space_no, "id": number, "note_id": name, **line}
                        for number, name in enumerate(names, first)
                    ]
                    connection.execute(sa.insert(note_history), lines)
    return removed


def count_uses(connection: sa.Connection, uses: Sequence[Use]) -> None:
    """Record how often notes were used."""
    rows = [
        {"of_note": it.note_id, "of_agent": it.agent_id, "of_user": it.user_id}
        | {"more": it.count, "at": it.at}
        for it in uses
    ]
    if rows:
        connection.execute(_use, rows)
