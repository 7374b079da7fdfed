"""Schema versions: created or brought forward in one transaction; a newer store is left alone."""

import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    MetaData,
    Table,
    bindparam,
    delete,
    exists,
    inspect,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.schema import DropTable

from kemem.errors import Unavailable
from kemem.store.database import Database
from kemem.store.read import CHUNK, chunks, rebuild_words
from kemem.store.schema import (
    Json,
    checkpoint,
    job,
    journal,
    message,
    meta,
    metadata,
    note,
    note_source,
    sensitive_messages,
    sensitive_notes,
)
from kemem.text.segment import TEXT_VERSION

Step = Callable[[Connection, Database], None]

_ORDERED_BY_TIME = ("uk_agent_user_session_time", "idx_message_user_create_time", "idx_note_time")
_cited = Table(  # notes until version 4
    "note",
    MetaData(),
    Column("space_no", BigInteger),
    Column("id", BigInteger),
    Column("sources", Json),
    Column("sensitive", Boolean),
)


def _create(connection: Connection, database: Database) -> None:
    database.create(connection)
    connection.execute(
        meta.insert(),
        [
            {"key": "text_version", "value": TEXT_VERSION},
            {"key": "secret", "value": secrets.token_hex(32)},
        ],
    )


def _add_notes(connection: Connection, database: Database) -> None:
    """Version 1 held messages only: its tables of notes and graph were a sketch, always empty."""
    sketched = "relation_source relation entity note_history note_vector note checkpoint"
    for name in sketched.split():
        connection.execute(DropTable(Table(name, MetaData())))
    for name in ("vector", "words"):
        connection.execute(text(f"ALTER TABLE message_{name} RENAME TO row_{name}"))
    metadata.create_all(connection)
    database.seed_statistics(connection)
    for job_id, payload in connection.execute(select(job.c.job_id, job.c.payload)).all():
        renamed = {"ids": payload["message_ids"], "after": payload["after"], "details": {}}
        connection.execute(update(job).where(job.c.job_id == job_id).values(payload=renamed))


def _mark_messages(connection: Connection, database: Database) -> None:
    """Version 2 knew sensitive notes only: what they were drawn from is sensitive as well, and so
    is what else was drawn from that. States that may retell it go; they are made again.
    """
    added = "ALTER TABLE message ADD COLUMN sensitive BOOLEAN DEFAULT false NOT NULL"
    connection.execute(text(added))
    for index in (sensitive_messages, sensitive_notes):
        index.create(connection, checkfirst=True)
    database.seed_statistics(connection)
    if not _has_source_lists(connection):  # it came from version 1 and has no notes
        return
    cited: dict[int, set[str]] = defaultdict(set)
    sensitive = select(_cited.c.space_no, _cited.c.sources).where(_cited.c.sensitive)
    for space_no, sources in connection.execute(sensitive):
        cited[space_no].update(sources or ())
    for space_no, names in cited.items():
        rows = select(_cited.c.id, _cited.c.sources).where(_cited.c.space_no == space_no)
        drawn = [row for row, sources in connection.execute(rows) if names & {*(sources or ())}]
        _mark(connection, message.c.message_id, space_no, sorted(names))
        _mark(connection, note.c.id, space_no, drawn)
    quoted = exists().where(
        message.c.space_no == checkpoint.c.space_no,
        message.c.session_id == checkpoint.c.session_id,
        message.c.sensitive,
    )
    connection.execute(delete(checkpoint).where(quoted))


def _mark(connection: Connection, key: Column[Any], space_no: int, names: Sequence[Any]) -> None:
    for chunk in chunks(names):
        own = (key.table.c.space_no == space_no, key.in_(chunk))
        connection.execute(update(key.table).where(*own).values(sensitive=True))


def _has_source_lists(connection: Connection) -> bool:
    return any(each["name"] == "sources" for each in inspect(connection).get_columns("note"))


def _cite_messages(connection: Connection, database: Database) -> None:
    """Until version 4 a note had a list of message ids, some of messages deleted since.

    Those are left out: a note cites what can be read.
    """
    note_source.create(connection, checkfirst=True)
    if not _has_source_lists(connection):
        return
    key = tuple_(_cited.c.space_no, _cited.c.id)
    page = select(_cited.c.space_no, _cited.c.id, _cited.c.sources).where(
        _cited.c.sources.is_not(None)
    )
    page = page.order_by(_cited.c.space_no, _cited.c.id).limit(CHUNK)
    rows = connection.execute(page).all()
    while rows:
        put_sources(connection, [(space_no, row, names or ()) for space_no, row, names in rows])
        last = rows[-1]
        rows = connection.execute(page.where(key > tuple_(last.space_no, last.id))).all()
    connection.execute(text("ALTER TABLE note DROP COLUMN sources"))
    database.seed_statistics(connection)


def put_sources(connection: Connection, cited: Sequence[tuple[int, int, Sequence[str]]]) -> None:
    """What notes cite, as (space, row of the note, ids); messages that are gone are left out."""
    by_space: dict[int, list[tuple[int, Sequence[str]]]] = defaultdict(list)
    for space_no, row, names in cited:
        by_space[space_no].append((row, names))
    for space_no, notes in by_space.items():
        present: set[str] = set()
        for chunk in chunks(sorted({name for _, names in notes for name in names})):
            known = select(message.c.message_id).where(
                message.c.space_no == space_no, message.c.message_id.in_(chunk)
            )
            present |= set(connection.execute(known).scalars())
        lines = [
            {"space_no": space_no, "note_row": row, "position": position, "message_id": name}
            for row, names in notes
            for position, name in enumerate(names)
            if name in present
        ]
        if lines:
            connection.execute(note_source.insert(), lines)


def _add_journal(connection: Connection, database: Database) -> None:
    """Version 3 had no journal; one that came from version 1 has got its table already."""
    journal.create(connection, checkfirst=True)


def _order_by_arrival(connection: Connection, database: Database) -> None:
    """Until version 5 rows with equal times were ordered by id, and no two messages of a session
    had the same time. The new secret refuses cursors that hold an id.
    """
    columns = [each["name"] for each in inspect(connection).get_columns("note")]
    if "arrival" not in columns:  # it did not come from version 1
        added = "ALTER TABLE note ADD COLUMN arrival BIGINT DEFAULT 0 NOT NULL"
        connection.execute(text(added))
        connection.execute(update(note).values(arrival=note.c.id))
    for index in (*message.indexes, *note.indexes):
        if index.name in _ORDERED_BY_TIME:
            index.drop(connection, checkfirst=True)
            index.create(connection)
    write_meta(connection, "secret", secrets.token_hex(32))
    database.seed_statistics(connection)


STEPS: tuple[Step, ...] = (  # step n leads from version n + 1 to n + 2
    _add_notes,
    _mark_messages,
    _add_journal,
    _cite_messages,
    _order_by_arrival,
)

_set = update(meta).where(meta.c.key == bindparam("wanted")).values(value=bindparam("new_value"))


def bring_up_to_date(
    connection: Connection, database: Database, steps: Sequence[Step] = STEPS
) -> None:
    """Create or migrate the store inside the caller's transaction."""
    version, newest = _version(connection), 1 + len(steps)
    if version > newest:
        raise Unavailable(
            f"the store has schema version {version}, this KeMem knows {newest}; "
            "install a newer KeMem, the store was left as it is"
        )
    if version == 0:
        _create(connection, database)
    for step in steps[version - 1 :] if version else ():
        step(connection, database)
    if version < newest:
        write_meta(connection, "schema_version", str(newest))
    if read_meta(connection).get("text_version") != TEXT_VERSION:
        rebuild_words(connection, database)
        write_meta(connection, "text_version", TEXT_VERSION)


def _version(connection: Connection) -> int:
    tables = inspect(connection).get_table_names()
    if "meta" in tables:
        return int(read_meta(connection).get("schema_version", 0))
    if tables:
        raise Unavailable(
            "the database holds tables of another program; KeMem needs one of its own"
        )
    return 0


def read_meta(connection: Connection) -> dict[str, str]:
    """The values kept with the store."""
    return {key: value for key, value in connection.execute(select(meta.c.key, meta.c.value))}


def write_meta(connection: Connection, key: str, value: str) -> None:
    """Change a value kept with the store."""
    if connection.execute(_set, {"wanted": key, "new_value": value}).rowcount == 0:
        connection.execute(meta.insert(), {"key": key, "value": value})
