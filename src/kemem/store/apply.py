"""One batch in one transaction."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from kemem.errors import InvalidArgument
from kemem.records import Checkpoint, Link, Message, Note, Row, Scope, Where
from kemem.records.batch import Applied, Batch
from kemem.store import graph, journal, outbox, records, vectors
from kemem.store.database import Database, Space
from kemem.store.noting import Placed, count_uses, drop_notes, put_notes
from kemem.store.read import Stored, named, read_rows, rebuild_words
from kemem.store.read import notes as note_rows
from kemem.store.rows import drop_messages, existing_messages, put_messages
from kemem.store.spaces import bump_generation, visible_spaces
from kemem.store.transaction import Refused, Transaction


def apply(connection: Connection, database: Database, batch: Batch) -> Applied:
    """Write a batch. Whatever fails, the transaction takes all of it back; Refused among it."""
    transaction = Transaction(connection, database)
    transaction.lock(batch)  # first: what is checked below holds until the end
    _check(transaction, batch)
    dropped = sum(_drop(transaction, where, batch) for where in batch.drop)
    inserted, ignored = put_messages(transaction, batch.put)
    placed = put_notes(transaction, batch.notes)
    _put_links(transaction, batch, placed)
    changes = [
        each
        for each in batch.changes
        if (each.agent_id, each.user_id, each.note_id) not in placed.merged
    ]
    for space in {space.space_no: space for space, _ in placed.at.values()}.values():
        bump_generation(connection, space)
    records.put_changes(transaction, changes)
    records.put_checkpoints(transaction, batch.checkpoints)
    if batch.used:
        count_uses(connection, batch.used)
    for embedded in batch.vectors:
        vectors.put_vectors(transaction, embedded)
    records.end_sessions(connection, batch.ended)
    if batch.jobs:
        outbox.put_jobs(connection, database, batch.jobs)
    if batch.done:
        outbox.finish_jobs(connection, batch.done)
    journal.append(connection, database, batch.journal)
    dropped += sum(journal.trim(connection, each) for each in batch.trim)
    if batch.model is not None:
        vectors.record_model(connection, batch.model)
    if batch.rebuild_words:
        rebuild_words(connection, database)
    merged = {note_id: kept for (_, _, note_id), kept in placed.merged.items()}
    return Applied(tuple(inserted), tuple(ignored), dropped, merged)


def _check(transaction: Transaction, batch: Batch) -> None:
    """Refuse a batch whose preconditions do not hold."""
    if batch.only_if is not None and not outbox.has_job(transaction.connection, batch.only_if):
        raise Refused("job")
    by_owner: dict[Scope, list[Row | Checkpoint]] = defaultdict(list)
    for row in batch.present:
        by_owner[Scope(row.agent_id, row.user_id)].append(row)
    if not all(_has(transaction, owner, rows) for owner, rows in by_owner.items()):
        raise Refused("row")
    for expected in batch.expects:
        connection, where = transaction.connection, expected.where
        spaces = visible_spaces(connection, where)
        found = read_rows(connection, note_rows, where, spaces, None, expected.limit, True)
        if not expected.holds([stored.row for stored in found]):
            raise Refused("changed")


def _has(transaction: Transaction, owner: Scope, rows: Sequence[Row | Checkpoint]) -> bool:
    """Whether an owner has rows still, under whatever words, and checkpoints are the newest."""
    connection, spaces = transaction.connection, transaction.find_spaces(owner)
    messages = {row.id for row in rows if isinstance(row, Message)}
    notes = {row.id for row in rows if isinstance(row, Note)}
    stored = {it.row.id for it in named(connection, note_rows, spaces, notes)}
    if not (messages <= existing_messages(connection, spaces, messages) and notes <= stored):
        return False
    return all(
        records.checkpoints(connection, replace(owner, session_id=row.session_id), 1) == [row]
        for row in rows
        if isinstance(row, Checkpoint)
    )


def _drop(transaction: Transaction, where: Where, batch: Batch) -> int:
    connection = transaction.connection
    gone: list[Stored[Any]] = [
        *drop_messages(transaction, where),
        *drop_notes(transaction, where, batch.at, batch.reason),
    ]
    sessions = {(it.space_no, it.row.session_id) for it in gone if it.row.session_id is not None}
    records.drop_checkpoints(connection, sessions)
    messages = [it.row for it in gone if isinstance(it.row, Message)]
    outbox.forget_messages(connection, transaction.database, messages)
    if where.everything:
        journal.erase(connection, where.scope)
        records.erase_records(connection, where.scope)
        outbox.drop_jobs(connection, where.scope)
    return len(gone)


def _put_links(transaction: Transaction, batch: Batch, placed: Placed) -> None:
    notes = {note.note_id: note for note in batch.notes}
    by_space: dict[int, tuple[Space, list[tuple[Link, int]]]] = {}
    for link in batch.links:
        if link.note_id not in notes:
            raise InvalidArgument(
                f"a link names the note {link.note_id!r:.80}, which is not in the batch"
            )
        space, row = placed.of(notes[link.note_id])
        by_space.setdefault(space.space_no, (space, []))[1].append((link, row))
    for space, own in by_space.values():
        graph.put_links(transaction.connection, transaction.database, space, own)
