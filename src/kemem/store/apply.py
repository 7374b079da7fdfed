"""One batch in one transaction."""

from typing import Any

from sqlalchemy import Connection

from kemem.batch import Applied, Batch
from kemem.errors import InvalidArgument
from kemem.records import Link, Where
from kemem.store import graph, journal, outbox, records, vectors
from kemem.store.database import Database, Space
from kemem.store.noting import Placed, all_present, count_uses, drop_notes, put_notes
from kemem.store.rows import drop_messages, put
from kemem.store.scan import Stored
from kemem.store.spaces import touch


def apply(connection: Connection, database: Database, batch: Batch) -> Applied:
    """Write a batch; whatever fails, the transaction takes all of it back."""
    if batch.only_if is not None and not outbox.has_job(connection, batch.only_if):
        return Applied(refused=True)
    if not all_present(connection, batch.present):
        return Applied(refused=True)
    dropped = sum(_drop(connection, database, where, batch) for where in batch.drop)
    inserted, ignored = put(connection, database, batch.put)
    placed = put_notes(connection, database, batch.notes) if batch.notes else Placed()
    _put_links(connection, database, batch, placed)
    changes = [
        each
        for each in batch.changes
        if (each.agent_id, each.user_id, each.note_id) not in placed.merged
    ]
    locked = {(agent, user): space for (agent, user, _), (space, _) in placed.at.items()}
    for space in locked.values():
        touch(connection, space)
    records.put_changes(connection, database, changes, locked)
    records.put_checkpoints(connection, database, batch.checkpoints)
    if batch.used:
        count_uses(connection, batch.used)
    for embedded in batch.vectors:
        vectors.put_vectors(connection, database, embedded)
    records.end_sessions(connection, batch.ended)
    if batch.jobs:
        outbox.put_jobs(connection, database, batch.jobs)
    if batch.done:
        outbox.finish_jobs(connection, batch.done)
    merged = {note_id: kept for (_, _, note_id), kept in placed.merged.items()}
    return Applied(tuple(inserted), tuple(ignored), dropped, merged)


def _drop(connection: Connection, database: Database, where: Where, batch: Batch) -> int:
    gone: list[Stored[Any]] = [
        *drop_messages(connection, database, where),
        *drop_notes(connection, database, where, batch.at, batch.reason),
    ]
    sessions = {(it.space_no, it.row.session_id) for it in gone if it.row.session_id is not None}
    records.drop_checkpoints(connection, sessions)
    if where.everything:
        journal.erase(connection, where.scope)
        records.erase_records(connection, where.scope)
        outbox.drop_jobs(connection, where.scope)
    return len(gone)


def _put_links(connection: Connection, database: Database, batch: Batch, placed: Placed) -> None:
    told = {note.note_id: note for note in batch.notes}
    by_space: dict[int, tuple[Space, list[tuple[Link, int]]]] = {}
    for link in batch.links:
        if link.note_id not in told:
            raise InvalidArgument(
                f"a link names the note {link.note_id!r:.80}, which is not in the batch"
            )
        space, row = placed.of(told[link.note_id])
        by_space.setdefault(space.space_no, (space, []))[1].append((link, row))
    for space, own in by_space.values():
        graph.put_links(connection, database, space, own)
