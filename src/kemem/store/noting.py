"""Notes written to their table, with their words: put, merge, drop."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, update

from kemem.records import Micros, Note, Where
from kemem.records.batch import Use
from kemem.store.database import IndexedText, Space
from kemem.store.graph import unlink
from kemem.store.read import CHUNK, Stored, indexed_texts, named, open_notes, read_rows
from kemem.store.read import notes as note_rows
from kemem.store.rows import existing_messages
from kemem.store.schema import note, note_history, note_source, row_vector
from kemem.store.spaces import ensure_sessions, invalidate_cache, reserve, visible_spaces
from kemem.store.transaction import Refused, Transaction
from kemem.text.marks import index_text, length

_KEYS = ("space_no", "id", "note_id", "agent_id", "user_id", "arrival")
_CHANGEABLE = [column.name for column in note.c if column.name not in _KEYS]

_insert = insert(note)
_update = (
    update(note)
    .where(note.c.space_no == bindparam("of_space"), note.c.id == bindparam("of_row"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGEABLE})
)
_insert_source = insert(note_source)
_drop_sources = delete(note_source).where(
    note_source.c.space_no == bindparam("of_space"), note_source.c.note_row == bindparam("of_row")
)
_use = (
    update(note)
    .where(note.c.note_id == bindparam("of_note"))
    .where(note.c.agent_id == bindparam("of_agent"), note.c.user_id == bindparam("of_user"))
    .values(use_count=note.c.use_count + bindparam("more"), use_time=bindparam("at"))
)


Owned = tuple[str, str, str]  # agent, user and id of a note


@dataclass(slots=True)
class Placed:
    """Where the notes of a batch came to stand."""

    at: dict[Owned, tuple[Space, int]] = field(default_factory=dict)
    merged: dict[Owned, str] = field(default_factory=dict)  # new note -> the one it merged into

    def of(self, note: Note) -> tuple[Space, int]:
        """The space and row of a note, or of the one it merged into."""
        name = self.merged.get(owned(note), note.note_id)
        return self.at[note.agent_id, note.user_id, name]


def owned(note: Note) -> Owned:
    """What tells a note from those of others."""
    return (note.agent_id, note.user_id, note.note_id)


def put_notes(transaction: Transaction, notes: Sequence[Note]) -> Placed:
    """Store notes, each new, changed or merged into one that says the same."""
    placed = Placed()
    by_owner: dict[tuple[str, str], list[Note]] = defaultdict(list)
    for item in notes:
        by_owner[item.agent_id, item.user_id].append(item)
    for owner, own in by_owner.items():
        _put_space(transaction, transaction.space(*owner), own, placed)
    return placed


def _put_space(transaction: Transaction, space: Space, notes: list[Note], placed: Placed) -> None:
    connection = transaction.connection
    stored = {
        row.row.note_id: row
        for row in (
            *named(connection, note_rows, [space], {item.note_id for item in notes}),
            *open_notes(connection, space, [item.digest for item in notes]),
        )
    }
    sessions = {
        item.session_id: (item.created, item.updated)
        for item in notes
        if item.session_id is not None and item.note_id not in stored
    }
    ensure_sessions(connection, transaction.database, space, sessions)
    notes = _without_missing_sources(connection, space, notes, stored)
    final = _settle(notes, {name: row.row for name, row in stored.items()}, placed.merged)
    kept = {name: row.id for name, row in stored.items()}
    fresh, replaced = [], []
    for name, item in final.items():
        before = stored.get(name)
        if before is None:
            fresh.append(replace(item, arrival=0))
        elif before.row.words != item.words:
            replaced.append(before)
            fresh.append(replace(item, arrival=before.row.arrival))
        elif before.row != item:
            _change(connection, before, item)
    if replaced:
        _remove(transaction, space, replaced)
    kept |= _insert_rows(transaction, space, fresh)
    placed.at |= {owned(item): (space, kept[name]) for name, item in final.items()}


def _without_missing_sources(
    connection: Connection, space: Space, notes: list[Note], stored: Mapping[str, Stored[Note]]
) -> list[Note]:
    """Notes that cite only messages which exist; a new note that cites another one is refused.

    A changed note was drawn before: it only loses the sources that have been deleted since.
    """
    cited = sorted({name for item in notes for name in item.sources})
    present = existing_messages(connection, [space], cited)
    missing = set(cited) - present
    if not missing:
        return notes
    if any(missing & {*item.sources} for item in notes if item.note_id not in stored):
        raise Refused("source")
    return [
        replace(item, sources=tuple(name for name in item.sources if name in present))
        for item in notes
    ]


def _settle(
    notes: Sequence[Note], stored: Mapping[str, Note], merged: dict[Owned, str]
) -> dict[str, Note]:
    """What each note of a batch ends up as, one after the other."""
    current = dict(stored)
    final: dict[str, Note] = {}
    for item in notes:
        if item.note_id not in current:
            twins = [it for it in current.values() if _same_place(it, item)]
            twin = min(twins, key=lambda it: it.note_id, default=None)
            if twin is not None:
                merged[owned(item)] = twin.note_id
                item = _merge(twin, item)
        current[item.note_id] = final[item.note_id] = item
    return final


def _same_place(one: Note, other: Note) -> bool:
    open_still = one.valid_until is None and not one.ended(other.updated)
    return open_still and (one.digest, one.kind, one.session_id) == (
        other.digest,
        other.kind,
        other.session_id,
    )


def _merge(kept: Note, told: Note) -> Note:
    more = tuple(name for name in told.sources if name not in kept.sources)
    return replace(
        kept,
        sources=kept.sources + more,
        importance=max(kept.importance, told.importance),
        sensitive=kept.sensitive or told.sensitive,
        updated=max(kept.updated, told.updated),
        expires=None
        if kept.expires is None or told.expires is None
        else max(kept.expires, told.expires),
    )


def _values(item: Note, length: int) -> dict[str, Any]:
    return {
        "session_id": item.session_id,
        "kind": item.kind,
        "content": item.content,
        "digest": item.digest,
        "event_time": item.ts,
        "create_time": item.created,
        "update_time": item.updated,
        "valid_from": item.valid_from,
        "valid_until": item.valid_until,
        "expire_time": item.expires,
        "memory_type": item.memory_type,
        "summary": item.summary,
        "keywords": list(item.keywords) or None,
        "metadata": dict(item.metadata) or None,
        "topic": item.topic,
        "supersedes": item.supersedes,
        "importance": item.importance,
        "sensitive": item.sensitive,
        "use_count": item.uses,
        "use_time": item.used,
        "length": length,
    }


def _insert_rows(transaction: Transaction, space: Space, notes: Sequence[Note]) -> dict[str, int]:
    """New rows of one space with their words; returns where each note stands."""
    if not notes:
        return {}
    connection = transaction.connection
    first = reserve(connection, space, len(notes))
    rows = {item.note_id: first + index for index, item in enumerate(notes)}
    texts = [IndexedText(space.space_no, rows[item.note_id], index_text(item)) for item in notes]
    connection.execute(
        _insert,
        [
            {
                "space_no": space.space_no,
                "id": text.id,
                "note_id": item.note_id,
                "agent_id": item.agent_id,
                "user_id": item.user_id,
                "arrival": item.arrival or text.id,
                **_values(item, length(text.text)),
            }
            for item, text in zip(notes, texts, strict=True)
        ],
    )
    _insert_sources(connection, space.space_no, {rows[item.note_id]: item for item in notes})
    transaction.database.add_words(connection, texts)
    return rows


def _insert_sources(connection: Connection, space_no: int, notes: Mapping[int, Note]) -> None:
    """What the notes of some rows cite."""
    rows = [
        {"space_no": space_no, "note_row": row, "position": position, "message_id": name}
        for row, item in notes.items()
        for position, name in enumerate(item.sources)
    ]
    if rows:
        connection.execute(_insert_source, rows)


def _change(connection: Connection, before: Stored[Note], item: Note) -> None:
    """Everything but a note's words."""
    values = _values(item, length(index_text(item)))
    connection.execute(
        _update,
        {
            "of_space": before.space_no,
            "of_row": before.id,
            **{f"new_{name}": value for name, value in values.items()},
        },
    )
    if before.row.sources != item.sources:
        connection.execute(_drop_sources, {"of_space": before.space_no, "of_row": before.id})
        _insert_sources(connection, before.space_no, {before.id: item})
    cached = ("ts", "kind", "session_id")
    if any(getattr(before.row, name) != getattr(item, name) for name in cached):
        invalidate_cache(connection, before.space_no, rows=True)


def _remove(transaction: Transaction, space: Space, rows: Sequence[Stored[Note]]) -> None:
    """Take rows out with their words, vectors, links and sources."""
    connection = transaction.connection
    transaction.database.remove_words(connection, indexed_texts(rows))
    keys = [row.id for row in rows]
    unlink(connection, space.space_no, keys)
    for table in (row_vector, note):
        connection.execute(
            delete(table).where(table.c.space_no == space.space_no, table.c.id.in_(keys))
        )
    invalidate_cache(connection, space.space_no, rows=True)


def drop_notes(
    transaction: Transaction, where: Where, at: Micros, reason: str | None
) -> list[Stored[Note]]:
    """Remove visible notes; each leaves one line in the history, without its text."""
    connection = transaction.connection
    spaces = {each.space_no: each for each in visible_spaces(connection, where)}
    gone: list[Stored[Note]] = []
    reached = [*spaces.values()]
    while rows := read_rows(connection, note_rows, where, reached, None, CHUNK, False):
        by_space: dict[int, list[Stored[Note]]] = defaultdict(list)
        for row in rows:
            by_space[row.space_no].append(row)
        for space_no, own in by_space.items():
            _remove(transaction, spaces[space_no], own)
            _forget_history(connection, spaces[space_no], own)
            if not where.everything:  # an erased scope leaves no trace at all
                _log_deletion(connection, spaces[space_no], own, at, reason)
        gone += rows
    return gone


def _forget_history(connection: Connection, space: Space, rows: Sequence[Stored[Note]]) -> None:
    connection.execute(
        delete(note_history).where(
            note_history.c.space_no == space.space_no,
            note_history.c.note_id.in_([row.row.note_id for row in rows]),
        )
    )


def _log_deletion(
    connection: Connection,
    space: Space,
    rows: Sequence[Stored[Note]],
    at: Micros,
    reason: str | None,
) -> None:
    first = reserve(connection, space, len(rows))
    connection.execute(
        insert(note_history),
        [
            {
                "space_no": space.space_no,
                "id": first + index,
                "note_id": row.row.note_id,
                "event": "delete",
                "create_time": at,
                "reason": reason,
            }
            for index, row in enumerate(rows)
        ],
    )


def count_uses(connection: Connection, used: Sequence[Use]) -> None:
    """Note how often notes were found."""
    connection.execute(
        _use,
        [
            {
                "of_note": each.note_id,
                "of_agent": each.agent_id,
                "of_user": each.user_id,
                "more": each.count,
                "at": each.at,
            }
            for each in used
        ],
    )
