"""Vectors as rows, each with the model that made it."""

from typing import Any

import numpy as np
import sqlalchemy as sa

from kemem.errors import InvalidArgument
from kemem.records import Embedded, Matrix, Model
from kemem.store import tally
from kemem.store.database import Statement, bound, in_list, insert, planned_for, upsert
from kemem.store.migrate import write_meta
from kemem.store.schema import embedding_model, row_vector
from kemem.store.spaces import Transaction, model_number
from kemem.store.tables import TABLES, RowTable

_Named = tuple[int, int, str, int | None]  # space, row, its name, the model of its vector


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
    connection, rows = transaction.connection, _rows(transaction, embedded)
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
    vectors = transaction.database.dump_vectors(matrix)
    columns = {
        **{name: [row[at] for row in rows] for at, name in enumerate(("space_no", "id"))},
        **{"model_no": [number] * len(rows), "vector": vectors},
    }
    # Of any model: a cache may hold the vectors of the one that a row had.
    old = [(space_no, key) for space_no, key, _, model_no in rows if model_no is not None]
    if old:
        connection.execute(_remove, [{"of_space": it[0], "of_row": it[1]} for it in old])
    insert(connection, row_vector, columns)
    transaction.counts[tally.VECTORS] += len(rows) - len(old)
    transaction.inserted.clear()  # they have vectors now
    for space_no in {space_no for space_no, *_ in rows}:
        changed = [key for owner, key in old if owner == space_no]
        transaction.invalidate_cache(space_no, rows=changed)


def _rows(transaction: Transaction, embedded: Embedded) -> list[_Named]:
    """The rows that vectors are of; they are not looked up if this transaction inserted them."""
    spaces, session_id = transaction.spaces(embedded.scope), embedded.scope.session_id
    numbers, names = {space.space_no for space in spaces}, {*embedded.ids}
    rows: list[_Named] = [
        (it.space_no, it.id, it.row.id, None)
        for it in transaction.inserted
        if it.space_no in numbers and it.row.id in names
        if session_id in (None, it.row.session_id)
    ]
    if {name for _, _, name, _ in rows} == names:
        return rows
    statement = _of_space if session_id is None else _of_session
    this = {"names": [*embedded.ids], "of_session": session_id}
    options = planned_for(embedded.ids)
    return [
        tuple(row)
        for space in spaces
        for row in transaction.connection.execute(
            statement, {**this, "of_space": space.space_no}, execution_options=options
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


def record_model(connection: sa.Connection, model: Model) -> None:
    """Record the model in use."""
    write_meta(connection, "embedder", f"{model.width} {model.name}")


def parse_model(recorded: str | None) -> Model | None:
    """The model from what was recorded."""
    if recorded is None:
        return None
    width, name = recorded.split(" ", 1)
    return Model(name, int(width))
