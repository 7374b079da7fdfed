"""How many messages, notes and vectors there are, kept by those who write them.

To count rows takes as long as there are many. Each writer adds to a part of its own, so that none
waits for another; what there is, is the sum of the parts.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from kemem.store.database import insert_of
from kemem.store.pipeline import defer
from kemem.store.schema import message, metadata, note, row_vector

MESSAGES, VECTORS = "message", "vector"  # names of what is counted; notes go by their kinds
table = sa.Table(  # derived, and in no backup
    "tally",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
_PARTS = 64  # threads of one process have parts of their own up to this number

_totals = sa.select(table.c.name, sa.func.sum(table.c.amount)).group_by(table.c.name)


@cache
def _add(dialect: str) -> Any:
    if dialect == "postgresql":  # all names in one statement
        statement = insert_of(table, ("name", "amount"), ("part",))
    else:
        statement = sqlite.insert(table)
    sums = {"amount": table.c.amount + statement.excluded.amount}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=sums)


def add(connection: sa.Connection, more: Mapping[str, int]) -> None:
    """Count rows that came, or, below zero, that went."""
    part, dialect = threading.get_native_id() % _PARTS, connection.dialect.name
    changed = [(name, count) for name, count in sorted(more.items()) if count]
    if changed and dialect == "postgresql":
        names, amounts = zip(*changed, strict=True)
        values = {"name": names, "amount": amounts, "part": part}
        defer(connection, table, _add(dialect), values)
    elif changed:
        rows = [{"name": name, "part": part, "amount": count} for name, count in changed]
        connection.execute(_add(dialect), rows)


def totals(connection: sa.Connection) -> Counter[str]:
    """How many there are of each."""
    # PostgreSQL's sums are decimal numbers.
    return Counter({name: int(amount) for name, amount in connection.execute(_totals) if amount})


def replace(connection: sa.Connection, counts: Mapping[str, int]) -> None:
    """Put counts in the place of all others."""
    connection.execute(sa.delete(table))
    add(connection, counts)


def recount(connection: sa.Connection) -> None:
    """Count all rows."""
    counts = {
        name: connection.execute(sa.select(sa.func.count()).select_from(rows)).scalar_one()
        for name, rows in ((MESSAGES, message), (VECTORS, row_vector))
    }
    kinds = connection.execute(sa.select(note.c.kind, sa.func.count()).group_by(note.c.kind))
    replace(connection, {**counts, **{kind: count for kind, count in kinds}})
