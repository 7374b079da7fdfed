"""A store written out, and replaced as a whole: the same rows for SQLite and PostgreSQL."""

import base64
import binascii
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import JSON, Column, Connection, Table, delete, func, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError

from kemem.errors import InvalidArgument
from kemem.records import NOTE_KINDS, ROLES
from kemem.store.database import Database
from kemem.store.migrate import put_sources, read_meta, write_meta
from kemem.store.read import rebuild_words
from kemem.store.schema import (
    HalfVector,
    Verbatim,
    embedding_model,
    journal,
    message,
    meta,
    metadata,
    note,
    row_vector,
    space_state,
)
from kemem.store.spaces import FIRST_EPOCH
from kemem.store.vectors import check_vectors

Rows = Iterable[tuple[str, Mapping[str, Any]]]

_TABLES = {table.name: table for table in metadata.sorted_tables if table is not journal}
_PAGE = 500  # rows that are read or written together
_CARRIED = ("embedder",)  # of meta: all else is this store's own
_LARGEST = 1 << 62  # of a whole number; none of ours comes near
_LISTS = {"keywords"}  # JSON columns; all others hold objects
_CHOICES = {message.c.role: ROLES, note.c.kind: NOTE_KINDS, meta.c.key: _CARRIED}


def export(database: Database, take: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Hand over every row as of one moment, parents first."""
    with database.snapshot() as connection:
        for table in _TABLES.values():
            for row in _rows_of(connection, database, table):
                take(table.name, row)


def _rows_of(
    connection: Connection, database: Database, table: Table
) -> Iterator[Mapping[str, Any]]:
    columns = [
        database.vector_column(it).label(it.name) if isinstance(it.type, HalfVector) else it
        for it in table.c
    ]
    statement = select(*columns).order_by(*table.primary_key)
    if table is meta:
        statement = statement.where(meta.c.key.in_(_CARRIED))
    found = connection.execute(statement, execution_options={"yield_per": _PAGE})
    for row in found.mappings():
        if table is row_vector:
            halves = database.load_halves(row["vector"], 1).astype("<u2")
            yield {**row, "vector": base64.b64encode(halves.tobytes()).decode()}
        else:
            yield dict(row)


def replace(connection: Connection, database: Database, rows: Rows, label: str) -> None:
    """Put rows in the place of all others, inside the caller's transaction."""
    before = max(_largest_epoch(connection), int(read_meta(connection).get(FIRST_EPOCH, 0)))
    for table in reversed(_TABLES.values()):
        own = delete(table)
        connection.execute(own.where(meta.c.key.in_(_CARRIED)) if table is meta else own)
    _insert(connection, database, rows)
    # Larger than any that a cache of some process can know.
    epoch = 1 + max(before, _largest_epoch(connection))
    connection.execute(update(space_state).values(epoch=epoch))
    write_meta(connection, FIRST_EPOCH, str(epoch))
    write_meta(connection, "secret", secrets.token_hex(32))
    write_meta(connection, "label", label)
    rebuild_words(connection, database)
    database.after_restore(connection)


def _largest_epoch(connection: Connection) -> int:
    return connection.execute(select(func.max(space_state.c.epoch))).scalar() or 0


def _insert(connection: Connection, database: Database, rows: Rows) -> None:
    widths: dict[int, int] = {}  # of vectors, by the number of their model
    cited: list[tuple[int, int, Sequence[str]]] = []  # by notes of backups until version 4
    for name, group in groupby(rows, key=lambda row: row[0]):
        table = _TABLES.get(name)
        if table is None:
            raise InvalidArgument("the backup has rows of a table that KeMem does not know")
        batch: list[dict[str, Any]] = []
        for _, row in group:
            if table is note:
                row = {"arrival": row.get("id"), **row}  # backups until version 5 have none
            if table is note and "sources" in row:
                row, sources = _without_sources(row)
                cited.append((row["space_no"], row["id"], sources))
            batch.append(_checked(table, row))
            if table is embedding_model:
                widths[row["model_no"]] = row["width"]
            if table is row_vector:
                batch[-1]["vector"] = _vector(row, widths, database)
            if len(batch) == _PAGE:
                _write(connection, table, batch)
                batch = []
        if batch:
            _write(connection, table, batch)
    put_sources(connection, cited)


def _without_sources(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """A note as it is stored now, and the message ids that it listed until version 4."""
    rest = {name: value for name, value in row.items() if name != "sources"}
    sources = [] if row["sources"] is None else row["sources"]
    if not isinstance(sources, list) or not all(isinstance(name, str) for name in sources):
        raise InvalidArgument("the backup has a row of note whose sources cannot be")
    return _checked(note, rest), sources


def _write(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    try:
        connection.execute(insert(table), rows)
    except (DataError, IntegrityError, UnicodeEncodeError):
        raise InvalidArgument(
            f"the backup does not hold together: a {table.name} that cannot be"
        ) from None


def _checked(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row, if every column is there and has a value that it can have."""
    if row.keys() != _names(table):
        raise InvalidArgument(f"the backup has a row of {table.name} with other columns")
    for column in table.c:
        if not _fits(column, row[column.name]):
            raise InvalidArgument(
                f"the backup has a row of {table.name} whose {column.name} cannot be"
            )
    return dict(row)


def _fits(column: Column[Any], value: Any) -> bool:
    if value is None:
        return bool(column.nullable)
    if column in _CHOICES:
        return value in _CHOICES[column]
    kind = _kind(column)
    if type(value) is not kind and not (kind is float and type(value) is int):
        return False
    if kind is list:
        return all(isinstance(each, str) for each in value)
    return kind not in (int, float) or bool(-_LARGEST < value < _LARGEST)  # NaN is not


@cache
def _names(table: Table) -> set[str]:
    return {column.name for column in table.c}


@cache
def _kind(column: Column[Any]) -> type[Any]:
    """What JSON has for the values of a column."""
    if isinstance(column.type, JSON):
        return list if column.name in _LISTS else dict
    if isinstance(column.type, Verbatim | HalfVector):
        return str
    return column.type.python_type


def _vector(row: Mapping[str, Any], widths: Mapping[int, int], database: Database) -> Any:
    try:
        raw = base64.b64decode(row["vector"], validate=True)
        matrix = np.frombuffer(raw, "<f2").astype(np.float32)[np.newaxis]
        check_vectors(matrix, 1, widths.get(row["model_no"], 0))
    except (binascii.Error, ValueError):  # InvalidArgument among them
        raise InvalidArgument("the backup has a vector that is none") from None
    return database.dump_vectors(matrix)[0]
