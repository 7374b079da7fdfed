"""Vectors as rows, each with the model that made it."""

from typing import Any

import numpy as np
import sqlalchemy as sa

from kemem.errors import InvalidArgument
from kemem.records import Embedded, Matrix, Model
from kemem.store.database import Statement, bound, in_list, upsert
from kemem.store.migrate import write_meta
from kemem.store.schema import embedding_model, row_vector
from kemem.store.spaces import Transaction, model_number
from kemem.store.tables import TABLES, RowTable


def _named(rows: RowTable[Any], of_session: bool) -> Statement:
    """Rows of a space by their names, each with the model of the vector that it has."""
    table = rows.table
    own = sa.and_(row_vector.c.space_no == table.c.space_no, row_vector.c.id == table.c.id)
    statement = (
        sa.select(table.c.space_no, table.c.id, rows.name, row_vector.c.model_no)
        .join_from(table, row_vector, own, isouter=True)
        .where(table.c.space_no == sa.bindparam("of_space"), in_list(rows.name, "names"))
    )
    if of_session:
        statement = statement.where(table.c.session_id == sa.bindparam("of_session"))
    return statement


_of_space, _of_session = (
    sa.union_all(*(_named(table, of_session) for table in TABLES)) for of_session in (False, True)
)
_remove = sa.delete(row_vector).where(*bound(row_vector, space_no="of_space", id="of_row"))


def put_vectors(transaction: Transaction, embedded: Embedded) -> None:
    """Store the vectors of the rows that exist; older ones are replaced."""
    check_vectors(embedded.matrix, len(embedded.ids), embedded.model.width)
    connection, session_id = transaction.connection, embedded.scope.session_id
    statement = _of_space if session_id is None else _of_session
    this = {"names": [*embedded.ids], "of_session": session_id}
    rows = [
        row
        for space in transaction.spaces(embedded.scope)
        for row in connection.execute(statement, {**this, "of_space": space.space_no})
    ]
    if not rows:
        return
    model = {"name": embedded.model.name, "width": embedded.model.width}
    values = {f"of_{name}": value for name, value in model.items()}
    number = transaction.model_numbers.get(embedded.model)
    number = number or connection.execute(model_number, values).scalar()
    if number is None:
        upsert(connection, embedding_model, [model])
        number = connection.execute(model_number, values).scalar_one()
    place = {name: at for at, name in enumerate(embedded.ids)}
    matrix = embedded.matrix[[place[name] for _, _, name, _ in rows]]
    lines = [
        {"space_no": row.space_no, "id": row.id, "model_no": number, "vector": vector}
        for row, vector in zip(rows, transaction.database.dump_vectors(matrix), strict=True)
    ]
    # Of any model: a cache may hold the vectors of the one that a row had.
    replaced = [row for row in rows if row.model_no is not None]
    if replaced:
        old = [{"of_space": row.space_no, "of_row": row.id} for row in replaced]
        connection.execute(_remove, old)
    connection.execute(sa.insert(row_vector), lines)
    changed = {row.space_no for row in replaced}
    for space_no in {row.space_no for row in rows}:
        transaction.invalidate_cache(space_no, rows=space_no in changed)


def check_vectors(matrix: Matrix, count: int, width: int) -> None:
    """Refuse what is not `count` vectors of that width, finite and not zero."""
    if np.shape(matrix) != (count, width):
        raise InvalidArgument(f"vectors must have shape {(count, width)}, not {np.shape(matrix)}")
    with np.errstate(over="ignore"):
        halves = np.asarray(matrix, np.float16)  # as they are stored: huge numbers become infinite
    if not np.isfinite(halves).all() or not halves.any(axis=1).all():
        raise InvalidArgument("vectors must be finite and not zero")


def record_model(connection: sa.Connection, model: Model) -> None:
    """Record the model in use."""
    write_meta(connection, "embedder", f"{model.width} {model.name}")


def parse_model(recorded: str | None) -> Model | None:
    """The model from what was recorded."""
    if recorded is None:
        return None
    width, name = recorded.split(" ", 1)
    return Model(name, int(width))
