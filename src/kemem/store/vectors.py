"""Vectors as rows, each with the model that made it."""

from typing import NamedTuple

import numpy as np
from sqlalchemy import Column, Connection, and_, bindparam, select, union_all

from kemem.errors import InvalidArgument
from kemem.records import Embedded, Matrix, Model
from kemem.store.database import Database, Statement, insert_new, upsert
from kemem.store.migrate import write_meta
from kemem.store.read import chunks
from kemem.store.schema import embedding_model, message, note, row_vector
from kemem.store.spaces import invalidate_cache, model_number
from kemem.store.transaction import Transaction


class _Row(NamedTuple):
    """A message or note, its name, and the model of the vector that it has."""

    space_no: int
    id: int
    name: str
    model_no: int | None


def _named(name: Column[str], of_session: bool) -> Statement:
    table = name.table
    own = and_(row_vector.c.space_no == table.c.space_no, row_vector.c.id == table.c.id)
    statement = (
        select(table.c.id, name, row_vector.c.model_no)
        .join_from(table, row_vector, own, isouter=True)
        .where(table.c.space_no == bindparam("of_space"))
        .where(name.in_(bindparam("names", expanding=True)))
    )
    if of_session:
        statement = statement.where(table.c.session_id == bindparam("of_session"))
    return statement


_of_space, _of_session = (
    union_all(_named(message.c.message_id, each), _named(note.c.note_id, each))
    for each in (False, True)
)


def put_vectors(transaction: Transaction, embedded: Embedded) -> None:
    """Store the vectors of the rows that exist; older ones are replaced."""
    check_vectors(embedded.matrix, len(embedded.ids), embedded.model.width)
    connection, database = transaction.connection, transaction.database
    rows = _rows(transaction, embedded)
    if not rows:
        return
    number = _ensure_model(connection, database, embedded.model)
    row_of = {name: row for row, name in enumerate(embedded.ids)}
    matrix = embedded.matrix[[row_of[row.name] for row in rows]]
    connection.execute(
        upsert(database.insert, row_vector, "model_no", "vector"),
        [
            {"space_no": row.space_no, "id": row.id, "model_no": number, "vector": vector}
            for row, vector in zip(rows, database.dump_vectors(matrix), strict=True)
        ],
    )
    replaced = {row.space_no for row in rows if row.model_no == number}
    for space_no in {row.space_no for row in rows}:
        invalidate_cache(connection, space_no, rows=space_no in replaced)


def _rows(transaction: Transaction, embedded: Embedded) -> list[_Row]:
    """The rows of a scope by their names, without their contents."""
    session_id = embedded.scope.session_id
    statement = _of_session if session_id is not None else _of_space
    return [
        _Row(space.space_no, *row)
        for space in transaction.find_spaces(embedded.scope)
        for chunk in chunks(embedded.ids)
        for row in transaction.connection.execute(
            statement,
            {"of_space": space.space_no, "names": list(chunk), "of_session": session_id},
        )
    ]


def check_vectors(matrix: Matrix, count: int, width: int) -> None:
    """Refuse what is not `count` vectors of that width, finite and not zero."""
    if np.shape(matrix) != (count, width):
        raise InvalidArgument(f"vectors must have shape {(count, width)}, not {np.shape(matrix)}")
    with np.errstate(over="ignore"):
        halves = np.asarray(matrix, np.float16)  # as they are stored: huge numbers become infinite
    if not np.isfinite(halves).all() or not halves.any(axis=1).all():
        raise InvalidArgument("vectors must be finite and not zero")


def _ensure_model(connection: Connection, database: Database, model: Model) -> int:
    values = {"of_name": model.name, "of_width": model.width}
    number = connection.execute(model_number, values).scalar()
    if number is None:
        connection.execute(
            insert_new(database.insert, embedding_model),
            {"name": model.name, "width": model.width},
        )
        number = connection.execute(model_number, values).scalar_one()
    return int(number)


def record_model(connection: Connection, model: Model) -> None:
    """Record the model in use."""
    write_meta(connection, "embedder", f"{model.width} {model.name}")


def parse_model(recorded: str | None) -> Model | None:
    """The model from what was recorded."""
    if recorded is None:
        return None
    width, name = recorded.split(" ", 1)
    return Model(name, int(width))
