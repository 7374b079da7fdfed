"""Messages and notes written to their tables, with their words: put, merge, drop."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from kemem.errors import Conflict
from kemem.ports.request import Key, key_of
from kemem.records import Message, Micros, Note, Row, Scope, Where
from kemem.records.batch import Use, merge_notes
from kemem.records.webhooks import EventType
from kemem.store import postings, read, tables, tally
from kemem.store.branches import mark_branches, may_branch
from kemem.store.database import (
    COUNTED,
    SENT,
    Space,
    Values,
    bound,
    columns_of,
    group,
    in_list,
    insert,
)
from kemem.store.graph import unlink
from kemem.store.numbers import ask_lasts, number_messages
from kemem.store.pipeline import send
from kemem.store.postings import indexed_texts
from kemem.store.schema import SEQ_BITS, message, note, note_history, note_source, row_vector
from kemem.store.spaces import Refused, Transaction
from kemem.store.tables import R, RowTable, Stored
from kemem.text.query import index_text, length

_SOURCE = ("space_no", "note_row", "position", "message_id")
_FIXED = {"space_no", "id", "note_id", "agent_id", "user_id", "arrival"}
_CHANGEABLE = [each.name for each in note.c if each.name not in _FIXED]
_update = (
    sa.update(note)
    .where(*bound(note, space_no="of_space", id="of_row"))
    .values({name: sa.bindparam(f"new_{name}") for name in _CHANGEABLE})
)
_drop_sources = sa.delete(note_source)
_drop_sources = _drop_sources.where(*bound(note_source, space_no="of_space", note_row="of_row"))
_use = (
    sa.update(note)
    .where(*bound(note, note_id="of_note", agent_id="of_agent", user_id="of_user"))
    .values(use_count=note.c.use_count + sa.bindparam("more"), use_time=sa.bindparam("at"))
)
_notes = sa.select(*tables.notes.columns).where(*bound(note, space_no="of_space"))
_same_notes = sa.union_all(  # by their ids; or they say the same and have not been replaced
    _notes.where(in_list(note.c.note_id, "names")),
    _notes.where(in_list(note.c.digest, "digests"), note.c.valid_until.is_(None)),
)


def put_messages(
    transaction: Transaction, items: Sequence[Message]
) -> tuple[list[Message], list[str]]:
    """Store messages; returns them as stored, and the ids that were there already."""
    stored: dict[tuple[str, str], Message] = {}
    for user_id, own in group(items, lambda item: item.user_id).items():
        lasts = ask_lasts(transaction, own)
        new_items = _new_messages(transaction, user_id, own)
        for agent_id, new in group(new_items, lambda item: item.agent_id).items():
            space, now = transaction.open_space(agent_id, user_id), new[0].ingest_time
            first = transaction.reserve(space, len(new))
            numbered = number_messages(transaction.connection, first, new, lasts)
            begun = {item.session_id: (now, now) for item in new}
            transaction.ensure_sessions(space, begun)
            rows = [it.row for it in _insert_rows(transaction, tables.messages, first, numbered)]
            for row in _with_branches(transaction.connection, space.space_no, rows):
                stored[user_id, row.message_id] = row
    inserted, ignored = [], []
    for item in items:
        if (item.user_id, item.message_id) in stored:
            inserted.append(stored.pop((item.user_id, item.message_id)))
        else:
            ignored.append(item.message_id)
    return inserted, ignored


def _with_branches(
    connection: sa.Connection, space_no: int, messages: Sequence[Message]
) -> list[Message]:
    """New messages of a space, marked where their session has left them; as are others."""
    marked = list[Message]()
    for session_id, own in group(messages, lambda it: it.session_id).items():
        if may_branch(connection, space_no, session_id, own):
            ends = mark_branches(connection, space_no, session_id)
            own = [replace(it, valid_until=ends.get(it.message_id)) for it in own]
        marked += own
    return marked


def _new_messages(
    transaction: Transaction, user_id: str, items: Sequence[Message]
) -> list[Message]:
    """Messages that are not stored yet; one that is, with other content, refuses the batch.

    A message that is handed in again may carry another time.
    """
    spaces = transaction.spaces(Scope(user_id=user_id))
    names = [item.message_id for item in items]
    rows = read.named(transaction.connection, tables.messages, spaces, names)
    existing = {stored.row.message_id: stored.row for stored in rows}
    new, conflicts = [], []
    for item in items:
        other = existing.get(item.message_id)
        if other is None:
            existing[item.message_id] = item
            new.append(item)
        elif item != replace(
            other,
            ts=item.ts,
            ingest_time=item.ingest_time,
            sequence_no=item.sequence_no,
            withdrawn=item.withdrawn,
            valid_until=item.valid_until,
        ):
            conflicts.append(item.message_id)
    if conflicts:
        raise Conflict(
            f"stored already with other content: {', '.join(conflicts[:5])}; nothing was stored",
            message_ids=conflicts,
        )
    return new


def _insert_rows(
    transaction: Transaction, table: RowTable[R], first: int, rows: Sequence[R]
) -> list[Stored[R]]:
    """New rows of one space, the first of which has this id, with their words."""
    stored = [
        Stored(first >> SEQ_BITS, number, row if row.arrival else replace(row, arrival=number))
        for number, row in enumerate(rows, first)
    ]
    connection = transaction.connection
    # By and by: a server works on the first ones while the next ones are prepared.
    for some in (stored[at : at + SENT] for at in range(0, len(stored), SENT)):
        texts, columns = indexed_texts(some), table.dump([it.row for it in some])
        columns |= {name: [getattr(it, name) for it in some] for name in ("space_no", "id")}
        columns["length"] = [length(it.text) for it in texts]
        insert(connection, table.table, columns)
        transaction.database.add_words(connection, texts)
        if len(some) == SENT:
            send(connection)
    transaction.counts.update(map(_counted_as, rows))
    transaction.inserted += stored
    return stored


def _counted_as(row: Row) -> str:
    return row.kind if isinstance(row, Note) else tally.MESSAGES


def put_notes(
    transaction: Transaction, items: Sequence[Note], inserted: Sequence[Message]
) -> tuple[dict[Key, tuple[Space, int]], dict[Key, str]]:
    """Store notes, each new, changed or merged into one that says the same.

    Returns the space and row of each note, and the id of the note that each merged one is now part
    of. The messages `inserted` before need not be looked up.
    """
    places: dict[Key, tuple[Space, int]] = {}
    merged: dict[Key, str] = {}
    for owner, own in group(items, lambda item: (item.agent_id, item.user_id)).items():
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
    values = {
        "of_space": space.space_no,
        "names": sorted({item.note_id for item in items}),
        "digests": sorted({item.digest for item in items}),
    }
    existing = tables.notes.load(connection.execute(_same_notes, values))
    stored = {it.row.note_id: it for it in existing}
    sessions = {
        item.session_id: (item.created, item.updated)
        for item in items
        if item.session_id is not None and item.note_id not in stored
    }
    transaction.ensure_sessions(space, sessions)
    cited_before = (name for it in existing for name in it.row.sources)
    cited = {name for item in items for name in item.sources}.difference(inserted, cited_before)
    missing = cited - read.existing_names(connection, tables.messages, [space.space_no], cited)
    if any(missing & {*item.sources} for item in items if item.note_id not in stored):
        raise Refused("source")
    if missing:  # a changed note only loses the sources that have been deleted since
        items = [
            replace(item, sources=tuple(name for name in item.sources if name not in missing))
            for item in items
        ]
    final = _settle(items, {name: it.row for name, it in stored.items()}, merged)
    new, changed, replaced = [], [], []
    for name, item in final.items():
        before = stored.get(name)
        if before is None:
            new.append(replace(item, arrival=0))
        elif before.row.words != item.words:
            replaced.append(before)
            new.append(replace(item, arrival=before.row.arrival))
        elif before.row != item:
            changed.append((before, item))
    if replaced:
        _remove(transaction, tables.notes, replaced)
    for item in (*new, *(item for _, item in changed)):
        type: EventType = "memory.updated" if item.note_id in stored else "memory.added"
        transaction.note_events.append((type, item))
    first = transaction.reserve(space, len(new))
    inserted_notes = _insert_rows(transaction, tables.notes, first, new)
    cited_by = [
        (it.space_no, it.id, position, name)
        for it in (*inserted_notes, *_change(transaction, changed))
        for position, name in enumerate(it.row.sources)
    ]
    insert(connection, note_source, columns_of(_SOURCE, cited_by))
    return {it.row.note_id: it.id for it in (*stored.values(), *inserted_notes)}


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
                item = merge_notes(twin, item)
        current[item.note_id] = final[item.note_id] = item
    return final


def _change(
    transaction: Transaction, changes: Sequence[tuple[Stored[Note], Note]]
) -> list[Stored[Note]]:
    """Everything but the words of notes; returns those that now need their sources."""
    rows, moved = [], []
    for before, item in changes:
        this = {"of_space": before.space_no, "of_row": before.id}
        values = {name: value for name, (value,) in tables.notes.dump([item]).items()}
        values["length"] = length(index_text(item))
        rows.append(this | {f"new_{name}": values[name] for name in _CHANGEABLE})
        if before.row.sources != item.sources:
            moved.append(before._replace(row=item))
        transaction.counts.subtract([before.row.kind])
        transaction.counts.update([item.kind])
        cached = ("ts", "kind", "session_id")
        if any(getattr(before.row, name) != getattr(item, name) for name in cached):
            transaction.invalidate_cache(before.space_no, rows=[before.id])
    if rows:
        transaction.connection.execute(_update, rows)
    if moved:
        outdated = [{"of_space": it.space_no, "of_row": it.id} for it in moved]
        transaction.connection.execute(_drop_sources, outdated)
    return moved


def _remove(transaction: Transaction, table: RowTable[R], rows: Sequence[Stored[R]]) -> None:
    """Take rows out with their words, vectors, links and sources."""
    connection = transaction.connection
    texts = indexed_texts(rows)
    transaction.database.remove_words(connection, texts)
    postings.remove(connection, texts)
    for space_no, own in group(rows, lambda it: it.space_no).items():
        keys = [it.id for it in own]
        if table is tables.notes:
            unlink(connection, space_no, keys)
        of_vectors, of_rows = (
            sa.delete(each).where(each.c.space_no == space_no, each.c.id.in_(keys))
            for each in (row_vector, table.table)
        )
        gone = connection.execute(of_vectors, execution_options=COUNTED).rowcount
        connection.execute(of_rows)
        transaction.counts[tally.VECTORS] -= gone
        transaction.counts.subtract(_counted_as(it.row) for it in own)
        transaction.invalidate_cache(space_no, rows=keys)


def drop_rows(
    transaction: Transaction, where: Where, at: Micros, reason: str | None
) -> list[Stored[Any]]:
    """Remove visible rows and withdrawn messages; notes cite removed messages no longer.

    Each removed note leaves one line in the history, without its text.
    """
    connection, where = transaction.connection, replace(where, withdrawn=True)
    spaces = transaction.spaces(where.scope, where.shared)
    line = {"event": "delete", "create_time": at, "reason": reason}
    removed: list[Stored[Any]] = []
    for table in tables.TABLES:
        while rows := read.read_rows(connection, table, where, spaces, None, read.CHUNK, False):
            _remove(transaction, table, rows)
            removed += rows
            if table is tables.notes:
                transaction.note_events += [("memory.deleted", it.row) for it in rows]
            for space in spaces if table is tables.notes else ():
                names = [it.row.note_id for it in rows if it.space_no == space.space_no]
                # An erased scope leaves no trace at all.
                lines = [] if where.everything else [{**line, "note_id": name} for name in names]
                _replace_history(transaction, space, names, lines)
    return removed


def withdraw_messages(transaction: Transaction, where: Where) -> set[tuple[int, str]]:
    """Mark visible messages as withdrawn; returns the sessions that they are in."""
    connection, where = transaction.connection, replace(where, withdrawn=False)
    spaces = transaction.spaces(where.scope, where.shared)
    sessions: set[tuple[int, str]] = set()
    while rows := read.read_rows(
        connection, tables.messages, where, spaces, None, read.CHUNK, False
    ):
        sessions |= {(it.space_no, it.row.session_id) for it in rows}
        for space_no, own in group(rows, lambda it: it.space_no).items():
            these = (message.c.space_no == space_no, message.c.id.in_([it.id for it in own]))
            connection.execute(sa.update(message).where(*these).values(withdrawn=True))
            transaction.invalidate_cache(space_no, rows=[it.id for it in own])
    return sessions


def _replace_history(
    transaction: Transaction, space: Space, names: Sequence[str], lines: Sequence[Values]
) -> None:
    """Remove the histories of some notes, and put these lines in their place."""
    if names:
        of_notes = (note_history.c.space_no == space.space_no, note_history.c.note_id.in_(names))
        transaction.connection.execute(sa.delete(note_history).where(*of_notes))
    if lines:
        numbers = enumerate(lines, transaction.reserve(space, len(lines)))
        rows = [{**line, "space_no": space.space_no, "id": number} for number, line in numbers]
        transaction.connection.execute(sa.insert(note_history), rows)


def count_uses(connection: sa.Connection, uses: Sequence[Use]) -> None:
    """Record how often notes were used."""
    rows = [
        {"of_note": it.note_id, "of_agent": it.agent_id, "of_user": it.user_id}
        | {"more": it.count, "at": it.at}
        for it in uses
    ]
    if rows:
        connection.execute(_use, rows)
