"""One batch in one transaction."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from kemem.errors import InvalidArgument
from kemem.ports.request import key_of
from kemem.records import Checkpoint, Link, Message, Note, Row, Scope, Where
from kemem.records.batch import Applied, Batch
from kemem.store import graph, records, vectors
from kemem.store.database import Database, Space
from kemem.store.read import existing_messages, named, read_rows, rebuild_words
from kemem.store.rows import notes
from kemem.store.spaces import Refused, Transaction
from kemem.store.write import count_uses, drop_rows, put_messages, put_notes


def apply(connection: sa.Connection, database: Database, batch: Batch) -> Applied:
    """Write a batch. Whatever fails, the transaction takes all of it back; Refused among it."""
    transaction = Transaction(connection, database)
    transaction.lock(batch)  # first: what is checked below holds until the end
    _check(transaction, batch)
    dropped = sum(_drop(transaction, where, batch) for where in batch.drop)
    inserted, ignored = put_messages(transaction, batch.put)
    places, merged = put_notes(transaction, batch.notes, inserted)
    of_notes = {item.note_id: places[key_of(item)] for item in batch.notes}
    by_space: dict[Space, list[tuple[Link, int]]] = defaultdict(list)
    for link in batch.links:
        if link.note_id not in of_notes:
            raise InvalidArgument(
                f"a link names the note {link.note_id!r:.80}, which is not in the batch"
            )
        space, row = of_notes[link.note_id]
        by_space[space].append((link, row))
    for space, links in by_space.items():
        graph.put_links(transaction, space, links)
    for space in {space for space, _ in places.values()}:
        transaction.reserve(space, 1)
    changes = [it for it in batch.changes if (it.agent_id, it.user_id, it.note_id) not in merged]
    records.put_changes(transaction, changes)
    records.put_checkpoints(transaction, batch.checkpoints)
    count_uses(connection, batch.used)
    for embedded in batch.vectors:
        vectors.put_vectors(transaction, embedded)
    records.end_sessions(transaction, batch.ended)
    records.put_jobs(connection, batch.jobs)
    records.finish_jobs(connection, batch.done)
    records.put_lines(connection, batch.journal)
    dropped += sum(records.trim_lines(connection, each) for each in batch.trim)
    if batch.model is not None:
        vectors.record_model(connection, batch.model)
    if batch.rebuild_words:
        rebuild_words(connection, database)
    transaction.finish()
    names = {note_id: twin for (_, _, note_id), twin in merged.items()}
    return Applied(tuple(inserted), tuple(ignored), dropped, names)


def _check(transaction: Transaction, batch: Batch) -> None:
    """Refuse a batch whose preconditions do not hold."""
    connection = transaction.connection
    if batch.only_if is not None and not records.has_job(connection, batch.only_if):
        raise Refused("job")
    by_owner: dict[Scope, list[Row | Checkpoint]] = defaultdict(list)
    for row in batch.present:
        by_owner[Scope(row.agent_id, row.user_id)].append(row)
    if not all(_has(transaction, owner, rows) for owner, rows in by_owner.items()):
        raise Refused("row")
    for expected in batch.expects:
        where = expected.where
        spaces = transaction.spaces(where.scope, where.shared)
        rows = read_rows(connection, notes, where, spaces, None, expected.limit, True)
        if not expected.holds([stored.row for stored in rows]):
            raise Refused("changed")


def _has(transaction: Transaction, owner: Scope, rows: Sequence[Row | Checkpoint]) -> bool:
    """Whether an owner has rows still, under whatever words, and checkpoints are the newest."""
    connection, spaces = transaction.connection, transaction.spaces(owner)
    message_ids = {row.id for row in rows if isinstance(row, Message)}
    note_ids = {row.id for row in rows if isinstance(row, Note)}
    stored = {it.row.id for it in named(connection, notes, spaces, note_ids)}
    if message_ids - existing_messages(connection, spaces, message_ids) or note_ids - stored:
        return False
    return all(
        records.checkpoints(connection, replace(owner, session_id=row.session_id), 1) == [row]
        for row in rows
        if isinstance(row, Checkpoint)
    )


def _drop(transaction: Transaction, where: Where, batch: Batch) -> int:
    connection = transaction.connection
    removed = drop_rows(transaction, where, batch.at, batch.reason)
    sessions = {(it.space_no, it.row.session_id) for it in removed if it.row.session_id is not None}
    records.drop_checkpoints(connection, sessions)
    messages = [it.row for it in removed if isinstance(it.row, Message)]
    records.remove_from_jobs(connection, messages)
    if where.everything:
        records.erase_scope(transaction, where.scope)
    return len(removed)
