"""Schema versions: created or brought forward in one transaction; a newer store is left alone."""

import secrets
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, MetaData, Table, bindparam, inspect, select, text, update
from sqlalchemy.schema import DropTable

from kemem.backends.sql.database import Database
from kemem.backends.sql.rebuild import rebuild_words
from kemem.backends.sql.schema import job, meta, metadata
from kemem.errors import Unavailable
from kemem.text.segment import TEXT_VERSION

Step = Callable[[Connection, Database], None]


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
    database.note_sizes(connection)
    for job_id, payload in connection.execute(select(job.c.job_id, job.c.payload)).all():
        renamed = {"ids": payload["message_ids"], "after": payload["after"], "details": {}}
        connection.execute(update(job).where(job.c.job_id == job_id).values(payload=renamed))


STEPS: tuple[Step, ...] = (_add_notes,)  # step n leads from version n + 1 to n + 2

_get = select(meta.c.value).where(meta.c.key == bindparam("wanted"))
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
    if read_meta(connection, "text_version") != TEXT_VERSION:
        rebuild_words(connection, database)
        write_meta(connection, "text_version", TEXT_VERSION)


def _version(connection: Connection) -> int:
    tables = inspect(connection).get_table_names()
    if "meta" in tables:
        return int(read_meta(connection, "schema_version") or 0)
    if tables:
        raise Unavailable(
            "the database holds tables of another program; KeMem needs one of its own"
        )
    return 0


def read_meta(connection: Connection, key: str) -> str | None:
    """A value kept with the store."""
    value: str | None = connection.execute(_get, {"wanted": key}).scalar()
    return value


def write_meta(connection: Connection, key: str, value: str) -> None:
    """Change a value kept with the store."""
    if connection.execute(_set, {"wanted": key, "new_value": value}).rowcount == 0:
        connection.execute(meta.insert(), {"key": key, "value": value})
