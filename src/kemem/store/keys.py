"""API keys in the store: by their digests, and a number by which caches know a change."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from kemem.records import Micros
from kemem.records.keys import ApiKey
from kemem.store.database import COUNTED, equal, upsert
from kemem.store.schema import Id, meta, metadata

GENERATION = "key_generation"  # a key of meta
_COLUMNS = {"created": "create_time", "expires": "expire_time", "used": "use_time"}

table = sa.Table(  # of no space, and in no backup: who may ask is not part of the memories
    "api_key",
    metadata,
    sa.Column("key_id", Id, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),  # SHA-256 of the key
    sa.Column("last_four", sa.String(4), nullable=False),
    sa.Column("create_time", sa.BigInteger, nullable=False),
    sa.Column("agent_id", Id),
    sa.Column("user_id", Id),
    sa.Column("read_only", sa.Boolean, nullable=False),
    sa.Column("sensitive", sa.Boolean, nullable=False),
    sa.Column("expire_time", sa.BigInteger),
    sa.Column("use_time", sa.BigInteger),
    sa.Column("project", sa.String(40)),
    sqlite_with_rowid=False,
)

_generation = sa.select(meta.c.value).where(meta.c.key == GENERATION)
_used = (
    sa.update(table)
    .where(table.c.key_id == sa.bindparam("of_key"))
    .values(use_time=sa.bindparam("at"))
)


def generation(connection: sa.Connection) -> int:
    """A number that grows with every key that is added or removed; 0: there never was one."""
    return int(connection.execute(_generation).scalar() or 0)


def read_keys(connection: sa.Connection, digest: str | None, key_id: str | None) -> list[ApiKey]:
    """All keys, oldest first, or the one with this digest or id."""
    chosen = sa.select(table).where(*equal(table, digest=digest, key_id=key_id))
    rows = connection.execute(chosen.order_by(table.c.create_time, table.c.key_id))
    return [_key(row) for row in rows.mappings()]


def change_keys(
    connection: sa.Connection,
    add: Sequence[ApiKey],
    remove: Sequence[str],
    used: Mapping[str, Micros],
) -> int:
    """Add and remove keys, note when some were used; returns how many were removed."""
    if add:
        connection.execute(sa.insert(table), [_row(key) for key in add])
    removed = 0
    if remove:
        gone = sa.delete(table).where(table.c.key_id.in_(remove))
        removed = connection.execute(gone, execution_options=COUNTED).rowcount
    if add or removed:
        _count_change(connection)
    if used:
        rows = [{"of_key": key_id, "at": at} for key_id, at in sorted(used.items())]
        connection.execute(_used, rows)
    return removed


def _count_change(connection: sa.Connection) -> None:
    """Add one to the number, whoever else does at the same time."""
    upsert(connection, meta, [{"key": GENERATION, "value": "0"}])
    more = sa.cast(sa.cast(meta.c.value, sa.BigInteger) + 1, sa.Text)
    connection.execute(sa.update(meta).where(meta.c.key == GENERATION).values(value=more))


def _row(key: ApiKey) -> dict[str, Any]:
    return {_COLUMNS.get(name, name): value for name, value in asdict(key).items()}


def _key(row: Mapping[Any, Any]) -> ApiKey:
    names = {column: name for name, column in _COLUMNS.items()}
    return ApiKey(**{names.get(column, column): value for column, value in row.items()})
