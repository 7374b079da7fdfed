"""A store written out, and replaced as a whole: the same rows for SQLite and PostgreSQL."""

import base64
import binascii
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, islice
from typing import Any

import numpy as np
import sqlalchemy as sa

from kemem.errors import InvalidArgument
from kemem.records import NOTE_KINDS, ROLES, Matrix
from kemem.store import keys, postings, schema, segments, tally, webhooks
from kemem.store.branches import mark_all_branches
from kemem.store.database import COUNTED, Database, Values
from kemem.store.halfvec import HalfVector
from kemem.store.index import rebuild_words
from kemem.store.migrate import put_sources, read_meta, write_meta
from kemem.store.schema import (
    embedding_model,
    job,
    journal,
    message,
    meta,
    note,
    row_vector,
    space_state,
)
from kemem.store.spaces import FIRST_EPOCH
from kemem.store.vectors import check_vectors

Rows = Iterable[tuple[str, Mapping[str, Any]]]

_LEFT_OUT = (schema.space_segment, schema.space_posting, tally.table, keys.table, webhooks.table)
_TABLES = {it.name: it for it in schema.metadata.sorted_tables if it not in _LEFT_OUT}
_PAGE = 500  # rows that are read or written together
_CARRIED = ("embedder",)  # of meta: all else is this store's own
_KEPT = ("feedback", "ontology")  # kinds of the journal: what users think of hits, own types
_LARGEST = 1 << 62  # of a whole number; none of ours comes near
_LISTS = {"keywords"}  # JSON columns; all others hold objects
_CHOICES = {message.c.role: ROLES, note.c.kind: NOTE_KINDS, meta.c.key: _CARRIED}
_CHOICES |= {journal.c.kind: _KEPT}


def export(database: Database, take: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Hand over every row as of one moment, parents first."""
    with database.snapshot() as connection:
        for table in _TABLES.values():
            for row in stored_rows(connection, database, table, *_carried(table)):
                take(table.name, row)


def _carried(table: sa.Table) -> list[sa.ColumnElement[bool]]:
    """The rows of a table that backups carry, where that is not all of them."""
    if table is meta:
        return [meta.c.key.in_(_CARRIED)]
    if table is job:  # a delivery is of the store whose change it tells of
        return [job.c.kind != "webhook"]
    return [journal.c.kind.in_(_KEPT)] if table is journal else []


def stored_rows(
    connection: sa.Connection,
    database: Database,
    table: sa.Table,
    *conditions: sa.ColumnElement[bool],
) -> Iterator[Values]:
    """The rows of a table in the order of its key, with values as JSON has them."""
    key = schema.key_of(table, database.name)
    statement = sa.select(table).where(*conditions).order_by(*key)
    if table is row_vector:
        vector = database.joined_vectors(row_vector.c.vector).label("vector")
        columns = [vector if it is row_vector.c.vector else it for it in table.c]
        statement = statement.with_only_columns(*columns).group_by(*key)
    with connection.execute(statement, execution_options={"yield_per": _PAGE}) as rows:
        for row in map(dict, rows.mappings()):
            if table is row_vector:
                halves = database.load_halves(row["vector"], 1).astype("<u2")
                row["vector"] = base64.b64encode(halves.tobytes()).decode()
            yield row


def decode_vector(text: str) -> Matrix:
    """A vector of `stored_rows` as a matrix of one row."""
    halves = np.frombuffer(base64.b64decode(text, validate=True), "<f2")
    return halves.astype(np.float32)[np.newaxis]


def replace(connection: sa.Connection, database: Database, rows: Rows, label: str) -> None:
    """Put rows in the place of all others, inside the caller's transaction."""
    largest = sa.select(sa.func.max(space_state.c.epoch))
    before = connection.execute(largest).scalar() or 0
    before = max(before, int(read_meta(connection).get(FIRST_EPOCH, 0)))
    segments.clear(connection)
    postings.clear(connection)
    for table in reversed(_TABLES.values()):
        connection.execute(sa.delete(table).where(*_carried(table)))
    _insert(connection, database, rows)
    # Larger than any that a cache of some process can know.
    epoch = 1 + max(before, connection.execute(largest).scalar() or 0)
    connection.execute(sa.update(space_state).values(epoch=epoch))
    write_meta(connection, FIRST_EPOCH, str(epoch))
    write_meta(connection, "secret", secrets.token_hex(32))
    write_meta(connection, "label", label)
    rebuild_words(connection, database)
    tally.recount(connection)
    database.after_restore(connection)


def _insert(connection: sa.Connection, database: Database, rows: Rows) -> None:
    widths: dict[int, int] = {}  # of vectors, by the number of their model
    cited: list[tuple[int, int, Sequence[str]]] = []  # by notes of backups until version 4
    for name, group in groupby(rows, key=lambda row: row[0]):
        table = _TABLES.get(name)
        if table is None:
            raise InvalidArgument("the backup has rows of a table that KeMem does not know")
        while page := [dict(row) for _, row in islice(group, _PAGE)]:
            for row in page:
                sources = row.pop("sources", None) if table is note else None
                if table is note:
                    row.setdefault("arrival", row.get("id"))  # backups until version 5 have none
                elif table is message:
                    row.setdefault("withdrawn", False)  # nor this until version 6
                    row.setdefault("valid_until", None)  # nor this until version 8
                _check(table, row)
                if sources is not None:
                    if type(sources) is not list or not all(type(it) is str for it in sources):
                        raise InvalidArgument(
                            "the backup has a row of note whose sources cannot be"
                        )
                    cited.append((row["space_no"], row["id"], sources))
                elif table is embedding_model:
                    widths[row["model_no"]] = row["width"]
                elif table is row_vector:
                    row["vector"] = _vector(row, widths, database)
            try:
                connection.execute(sa.insert(table), page, execution_options=COUNTED)
            except (sa.exc.DataError, sa.exc.IntegrityError, UnicodeEncodeError):
                text = f"the backup does not hold together: a {table.name} that cannot be"
                raise InvalidArgument(text) from None
    put_sources(connection, cited)
    mark_all_branches(connection)


def _check(table: sa.Table, row: Mapping[str, Any]) -> None:
    """Refuse a row that lacks a column or has a value that its column cannot have."""
    if row.keys() != set(table.c.keys()):
        raise InvalidArgument(f"the backup has a row of {table.name} with other columns")
    for column in table.c:
        if not _fits(column, row[column.name]):
            raise InvalidArgument(
                f"the backup has a row of {table.name} whose {column.name} cannot be"
            )


def _fits(column: sa.Column[Any], value: Any) -> bool:
    if value is None:
        return bool(column.nullable)
    if column in _CHOICES:
        return value in _CHOICES[column]
    kind = _json_type(column)
    if type(value) is not kind and not (kind is float and type(value) is int):
        return False
    if kind is list:
        return all(isinstance(each, str) for each in value)
    return kind not in (int, float) or bool(-_LARGEST < value < _LARGEST)  # NaN is not


@cache
def _json_type(column: sa.Column[Any]) -> type[Any]:
    """What JSON has for the values of a column."""
    if isinstance(column.type, sa.JSON):
        return list if column.name in _LISTS else dict
    if isinstance(column.type, schema.Verbatim | HalfVector):
        return str
    return column.type.python_type


def _vector(row: Mapping[str, Any], widths: Mapping[int, int], database: Database) -> Any:
    try:
        matrix = decode_vector(row["vector"])
        check_vectors(matrix, 1, widths.get(row["model_no"], 0))
    except (binascii.Error, ValueError):  # InvalidArgument among them
        raise InvalidArgument("the backup has a vector that is none") from None
    return database.dump_vectors(matrix)[0]
