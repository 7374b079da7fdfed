"""One batch in one transaction."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection

from kemem.batch import Applied, Batch
from kemem.errors import InvalidArgument
from kemem.records import Link, Note, Scope, Where
from kemem.store import graph, journal, outbox, records, vectors
from kemem.store.database import Database, Space
from kemem.store.notes import named_notes
from kemem.store.noting import Placed, count_uses, drop_notes, put_notes
from kemem.store.rows import drop_messages, put_messages
from kemem.store.scan import Stored
from kemem.store.spaces import touch
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
        touch(connection, space)
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
    merged = {note_id: kept for (_, _, note_id), kept in placed.merged.items()}
    return Applied(tuple(inserted), tuple(ignored), dropped, merged)


def _check(transaction: Transaction, batch: Batch) -> None:
    """Refuse a batch whose preconditions do not hold."""
    if batch.only_if is not None and not outbox.has_job(transaction.connection, batch.only_if):
        raise Refused("job")
    if not _all_present(transaction, batch.present):
        raise Refused("row")


def _all_present(transaction: Transaction, notes: tuple[Note, ...]) -> bool:
    """Whether notes are stored still, under whatever words."""
    wanted: dict[Scope, set[str]] = defaultdict(set)
    for item in notes:
        wanted[Scope(item.agent_id, item.user_id)].add(item.note_id)
    for owner, names in wanted.items():
        spaces = transaction.find_spaces(owner)
        rows = [it for space in spaces for it in named_notes(transaction.connection, space, names)]
        if len(rows) < len(names):
            return False
    return True


def _drop(transaction: Transaction, where: Where, batch: Batch) -> int:
    connection = transaction.connection
    gone: list[Stored[Any]] = [
        *drop_messages(transaction, where),
        *drop_notes(transaction, where, batch.at, batch.reason),
    ]
    sessions = {(it.space_no, it.row.session_id) for it in gone if it.row.session_id is not None}
    records.drop_checkpoints(connection, sessions)
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
