"""Schema versions: created or brought forward in one transaction; a newer store is left alone."""

import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import DropTable

from kemem.errors import StoreMoved, Unavailable
from kemem.store import keys, schema, tally, webhooks
from kemem.store.branches import mark_all_branches
from kemem.store.database import Database, group, upsert
from kemem.store.index import rebuild_words
from kemem.store.read import CHUNK, chunks, existing_names
from kemem.store.schema import checkpoint, job, message, meta, note, note_source
from kemem.store.tables import messages
from kemem.text.segment import TEXT_VERSION

Step = Callable[[sa.Connection, Database], None]

# Keys of meta.
MOVED_TO = "moved_to"  # where the store is now; it takes no more writes
MOVED_INTO = "moved_into"  # the fingerprint of the store that it was closed for
MOVING_FROM = "moving_from"  # the fingerprint of the store that is being copied here
MOVING_BY = "moving_by"  # the command that does so, without passwords

_ALWAYS = {"space", "message", "note"}  # tables of every version
_PLACE = re.compile("moved to (.+)")
_ORDERED_BY_TIME = ("uk_agent_user_session_time", "idx_message_user_create_time", "idx_note_time")
_old = sa.table(  # notes until version 4
    "note",
    *(sa.column("space_no", sa.BigInteger), sa.column("id", sa.BigInteger)),
    *(sa.column("sources", schema.Json), sa.column("sensitive", sa.Boolean)),
)


def _add_notes(connection: sa.Connection, database: Database) -> None:
    """Version 1 held messages only: its tables of notes and graph were a sketch, always empty."""
    sketched = "relation_source relation entity note_history note_vector note checkpoint"
    for name in sketched.split():
        connection.execute(DropTable(sa.Table(name, sa.MetaData())))
    for name in ("vector", "words"):
        connection.execute(sa.text(f"ALTER TABLE message_{name} RENAME TO row_{name}"))
    schema.metadata.create_all(connection)
    database.seed_statistics(connection)
    for job_id, payload in connection.execute(sa.select(job.c.job_id, job.c.payload)).all():
        renamed = {"ids": payload["message_ids"], "after": payload["after"], "details": {}}
        connection.execute(sa.update(job).where(job.c.job_id == job_id).values(payload=renamed))


def _mark_messages(connection: sa.Connection, database: Database) -> None:
    """Version 2 knew sensitive notes only: what they were drawn from is sensitive as well, and so
    is what else was drawn from that. States that may retell it go; they are made again.
    """
    added = "ALTER TABLE message ADD COLUMN sensitive BOOLEAN DEFAULT false NOT NULL"
    connection.execute(sa.text(added))
    for index in (schema.sensitive_messages, schema.sensitive_notes):
        index.create(connection, checkfirst=True)
    database.seed_statistics(connection)
    if not _has_note_column(connection, "sources"):  # it came from version 1 and has no notes
        return
    cited: dict[int, set[str]] = defaultdict(set)
    sensitive = sa.select(_old.c.space_no, _old.c.sources).where(_old.c.sensitive)
    for space_no, sources in connection.execute(sensitive):
        cited[space_no].update(sources or ())
    for space_no, names in cited.items():
        rows = sa.select(_old.c.id, _old.c.sources).where(_old.c.space_no == space_no)
        drawn = [row for row, sources in connection.execute(rows) if names & {*(sources or ())}]
        marked: dict[sa.Column[Any], list[Any]]
        marked = {message.c.message_id: sorted(names), note.c.id: drawn}
        for key, values in marked.items():
            for chunk in chunks(values):
                own = (key.table.c.space_no == space_no, key.in_(chunk))
                connection.execute(sa.update(key.table).where(*own).values(sensitive=True))
    quoted = sa.exists().where(
        message.c.space_no == checkpoint.c.space_no,
        message.c.session_id == checkpoint.c.session_id,
        message.c.sensitive,
    )
    connection.execute(sa.delete(checkpoint).where(quoted))


def _has_note_column(connection: sa.Connection, name: str) -> bool:
    return any(each["name"] == name for each in sa.inspect(connection).get_columns("note"))


def _add_journal(connection: sa.Connection, database: Database) -> None:
    """Version 3 had no journal; one that came from version 1 has got its table already."""
    schema.journal.create(connection, checkfirst=True)


def _cite_messages(connection: sa.Connection, database: Database) -> None:
    """Until version 4 a note had a list of message ids, some of messages deleted since.

    Those are left out: a note cites what can be read.
    """
    note_source.create(connection, checkfirst=True)
    if not _has_note_column(connection, "sources"):
        return
    key = (_old.c.space_no, _old.c.id)
    page = sa.select(*key, _old.c.sources).where(_old.c.sources.is_not(None))
    page = page.order_by(*key).limit(CHUNK)
    rows = connection.execute(page).all()
    while rows:
        put_sources(connection, [(space_no, row, names or ()) for space_no, row, names in rows])
        last = sa.tuple_(rows[-1].space_no, rows[-1].id)
        rows = connection.execute(page.where(sa.tuple_(*key) > last)).all()
    connection.execute(sa.text("ALTER TABLE note DROP COLUMN sources"))
    database.seed_statistics(connection)


def put_sources(connection: sa.Connection, cited: Iterable[tuple[int, int, Sequence[str]]]) -> None:
    """What notes cite, as (space, row of the note, ids); messages that are gone are left out."""
    for space_no, notes in group(cited, lambda it: it[0]).items():
        ids = {name for *_, names in notes for name in names}
        existing = existing_names(connection, messages, [space_no], ids)
        lines = [
            {"space_no": space_no, "note_row": row, "position": position, "message_id": name}
            for _, row, names in notes
            for position, name in enumerate(names)
            if name in existing
        ]
        if lines:
            connection.execute(sa.insert(note_source), lines)


def _order_by_arrival(connection: sa.Connection, database: Database) -> None:
    """Until version 5 rows with equal times were ordered by id, and no two messages of a session
    had the same time. The new secret refuses cursors that hold an id.
    """
    if not _has_note_column(connection, "arrival"):  # it did not come from version 1
        added = "ALTER TABLE note ADD COLUMN arrival BIGINT DEFAULT 0 NOT NULL"
        connection.execute(sa.text(added))
        connection.execute(sa.update(note).values(arrival=note.c.id))
    for index in (*message.indexes, *note.indexes):
        if index.name in _ORDERED_BY_TIME:
            index.drop(connection, checkfirst=True)
            index.create(connection)
    write_meta(connection, "secret", secrets.token_hex(32))
    database.seed_statistics(connection)


def _add_withdrawal(connection: sa.Connection, database: Database) -> None:
    """Until version 6 the messages of a deleted note were found as before."""
    added = "ALTER TABLE message ADD COLUMN withdrawn BOOLEAN DEFAULT false NOT NULL"
    connection.execute(sa.text(added))
    database.seed_statistics(connection)


def _index_supersedes(connection: sa.Connection, database: Database) -> None:
    """Until version 7 nothing asked which note had replaced another."""
    schema.superseding_notes.create(connection, checkfirst=True)
    database.seed_statistics(connection)


def _end_branches(connection: sa.Connection, database: Database) -> None:
    """Until version 8 messages that a session had left were found as before."""
    connection.execute(sa.text("ALTER TABLE message ADD COLUMN valid_until BIGINT"))
    for index in (schema.replaced_messages, schema.child_messages):
        index.create(connection, checkfirst=True)
    mark_all_branches(connection)
    database.seed_statistics(connection)


def _vectors_by_number(connection: sa.Connection, database: Database) -> None:
    """Until version 9 each vector of 512 numbers took a page of 4 KB on SQLite."""
    if database.name != "sqlite":
        return
    connection.execute(sa.text("ALTER TABLE row_vector RENAME TO old_vector"))
    schema.row_vector.create(connection)
    old = sa.table("old_vector", *(sa.column(it.name) for it in schema.row_vector.c))
    rows = sa.select(*old.c).order_by(old.c.space_no, old.c.id)
    names = [it.name for it in schema.row_vector.c]
    connection.execute(sa.insert(schema.row_vector).from_select(names, rows))
    connection.execute(DropTable(sa.Table("old_vector", sa.MetaData())))
    database.seed_statistics(connection)


def _add_segments(connection: sa.Connection, database: Database) -> None:
    """Until version 10 every process read the columns of a large space row by row."""
    schema.space_segment.create(connection, checkfirst=True)
    database.seed_statistics(connection)


def _keep_counts(connection: sa.Connection, database: Database) -> None:
    """Until version 11 whoever wanted to know how many rows there are counted all of them."""
    tally.table.create(connection, checkfirst=True)
    tally.recount(connection)
    for index in (schema.agents_sessions, schema.jobs_in_order):
        index.create(connection, checkfirst=True)
    database.seed_statistics(connection)


def _add_keys(connection: sa.Connection, database: Database) -> None:
    """Until version 12 the only API key was that of the settings."""
    keys.table.create(connection, checkfirst=True)
    database.seed_statistics(connection)


def _lengthen_ids(connection: sa.Connection, database: Database) -> None:
    """Until version 13 an id had at most 64 characters; SQLite has no limit of its own."""
    if connection.dialect.name != "postgresql":
        return
    of_ids = """
        SELECT table_name, string_agg(format('ALTER COLUMN %I TYPE VARCHAR(255) COLLATE "C"',
            column_name), ', ') FROM information_schema.columns
        WHERE table_schema = current_schema() AND character_maximum_length = 64
            AND collation_name = 'C' GROUP BY table_name
    """
    for name, changes in connection.execute(sa.text(of_ids)).all():
        connection.execute(sa.text(f"ALTER TABLE {name} {changes}"))


def _add_key_project(connection: sa.Connection, database: Database) -> None:
    """Until version 14 a key was for the only memory; one from version 11 has the column."""
    if "project" not in {it["name"] for it in sa.inspect(connection).get_columns("api_key")}:
        connection.execute(sa.text("ALTER TABLE api_key ADD COLUMN project VARCHAR(40)"))


def _add_webhooks(connection: sa.Connection, database: Database) -> None:
    """Until version 15 nobody was told of changes."""
    webhooks.table.create(connection, checkfirst=True)


def _segments_by_rowid(connection: sa.Connection, database: Database) -> None:
    """Until version 16 SQLite read the body of a segment twice. Segments are made again."""
    if database.name == "sqlite":
        schema.space_segment.drop(connection)
        schema.space_segment.create(connection)
        database.seed_statistics(connection)


def _check_once(connection: sa.Connection, database: Database) -> None:
    """Until version 17 PostgreSQL looked up the space and the model of each row."""
    if connection.dialect.name != "postgresql":
        return
    for table, column in (("message", "space_no"), ("row_vector", "model_no")):
        key = f"{table}_{column}_fkey"
        connection.execute(sa.text(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {key}"))


def _add_postings(connection: sa.Connection, database: Database) -> None:
    """Until version 18 the word index was asked for every row that has a common word."""
    schema.space_posting.create(connection, checkfirst=True)
    database.seed_statistics(connection)


# Step n leads from version n + 1 to n + 2.
STEPS: tuple[Step, ...]
STEPS = (_add_notes, _mark_messages, _add_journal, _cite_messages, _order_by_arrival)
STEPS += (_add_withdrawal, _index_supersedes, _end_branches, _vectors_by_number, _add_segments)
STEPS += (_keep_counts, _add_keys, _lengthen_ids, _add_key_project, _add_webhooks)
STEPS += (_segments_by_rowid, _check_once, _add_postings)


def bring_up_to_date(
    connection: sa.Connection,
    database: Database,
    steps: Sequence[Step] = STEPS,
    *,
    moving: bool = False,
) -> None:
    """Create or migrate the store inside the caller's transaction.

    One that was moved elsewhere, or is being filled by a move, opens only for `moving`.
    """
    values = read_own_meta(connection)
    if not moving:
        check_open(values)
    if MOVING_FROM in values and not moving:
        command = values.get(MOVING_BY, "kemem move --from … --to …")
        raise Unavailable(f"kemem move has not finished filling this store; to go on: {command}")
    version = int(values.get("schema_version", 0))
    newest = 1 + len(steps)
    if version > newest:
        raise Unavailable(
            f"the store has schema version {version}, this KeMem knows {newest}; "
            "install a newer KeMem, the store was left as it is"
        )
    if version == 0:
        database.create(connection)
        write_meta(connection, "text_version", TEXT_VERSION)
        write_meta(connection, "secret", secrets.token_hex(32))
    for step in steps[version - 1 :] if version else ():
        step(connection, database)
    if version < newest:
        write_meta(connection, "schema_version", str(newest))
    if read_meta(connection).get("text_version") != TEXT_VERSION:
        rebuild_words(connection, database)
        write_meta(connection, "text_version", TEXT_VERSION)


def read_own_meta(connection: sa.Connection) -> dict[str, str]:
    """The values kept with the store, none in an empty database; refuse that of another program.

    Others have a table of that name, too.
    """
    inspector = sa.inspect(connection)
    tables, values = inspector.get_table_names(), dict[str, str]()
    if meta.name in tables:
        names = {it["name"] for it in inspector.get_columns(meta.name)}
        values = read_meta(connection) if names == {*meta.c.keys()} else {}
    is_ours = values.get("schema_version", "").isdecimal() and {*tables} >= _ALWAYS
    if tables and not is_ours:
        raise Unavailable(
            "the database holds tables of another program; KeMem needs one of its own"
        )
    return values


def check_open(values: Mapping[str, str]) -> None:
    """StoreMoved where the values kept with a store say so."""
    if place := values.get(MOVED_TO):
        again = "or run kemem move again if that is not finished"
        raise StoreMoved(f"this store was moved to {place}; use that, {again}", place=place)


def was_moved(text: str) -> StoreMoved:
    """The error of a write to a store that was moved, from what the store says to it."""
    place = _PLACE.search(text)
    where = f"to {place[1]}" if place else "elsewhere (kemem doctor says where)"
    reason = f"the store was moved {where}; nothing was written"
    return StoreMoved(reason, place=place and place[1])


def read_meta(connection: sa.Connection) -> dict[str, str]:
    """The values kept with the store."""
    return {key: value for key, value in connection.execute(sa.select(meta.c.key, meta.c.value))}


def write_meta(connection: sa.Connection, key: str, value: str) -> None:
    """Change a value kept with the store."""
    upsert(connection, meta, [{"key": key, "value": value}], "value")
