"""Schema versions: created or brought forward in one transaction; a newer store is left alone."""

import secrets
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, bindparam, inspect, select, update

from kemem.backends.sql.database import Database
from kemem.backends.sql.rows import rebuild_words
from kemem.backends.sql.schema import meta
from kemem.errors import Unavailable
from kemem.text.segment import TEXT_VERSION

Step = Callable[[Connection, Database], None]


def _create(connection: Connection, database: Database) -> None:
    database.create(connection)
    connection.execute(
        meta.insert(),
        [
            {"key": "schema_version", "value": "0"},
            {"key": "text_version", "value": TEXT_VERSION},
            {"key": "secret", "value": secrets.token_hex(32)},
        ],
    )


STEPS: tuple[Step, ...] = (_create,)  # step n leads from version n to n + 1

_get = select(meta.c.value).where(meta.c.key == bindparam("wanted"))
_set = update(meta).where(meta.c.key == bindparam("wanted")).values(value=bindparam("new_value"))


def bring_up_to_date(
    connection: Connection, database: Database, steps: Sequence[Step] = STEPS
) -> None:
    """Create or migrate the store inside the caller's transaction."""
    version = _version(connection)
    if version > len(steps):
        raise Unavailable(
            f"the store has schema version {version}, this KeMem knows {len(steps)}; "
            "install a newer KeMem, the store was left as it is"
        )
    for step in steps[version:]:
        step(connection, database)
    if version < len(steps):
        write_meta(connection, "schema_version", str(len(steps)))
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
