"""Vectors as rows, each with the model that made it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, select

from kemem.errors import InvalidArgument
from kemem.records import MESSAGES, NOTES, Embedded, Matrix, Model, Where
from kemem.store.database import Database, insert_new, upsert
from kemem.store.migrate import read_meta, write_meta
from kemem.store.notes import named_notes
from kemem.store.scan import Stored, chunks, named
from kemem.store.schema import embedding_model, row_vector
from kemem.store.spaces import find_spaces, mark_changed

model_number = select(embedding_model.c.model_no).where(
    embedding_model.c.name == bindparam("of_name"), embedding_model.c.width == bindparam("of_width")
)
_present = select(row_vector.c.id).where(
    row_vector.c.space_no == bindparam("space_no"),
    row_vector.c.model_no == bindparam("model_no"),
    row_vector.c.id.in_(bindparam("keys", expanding=True)),
)


def put_vectors(connection: Connection, database: Database, embedded: Embedded) -> None:
    """Store the vectors of the rows that exist; older ones are replaced."""
    check_vectors(embedded.matrix, len(embedded.ids), embedded.model.width)
    row_of = {name: row for row, name in enumerate(embedded.ids)}
    found = _rows(connection, embedded)
    if not found:
        return
    number = _ensure_model(connection, database, embedded.model)
    replaced = _replaced(connection, found, number)
    matrix = embedded.matrix[[row_of[row.row.id] for row in found]]
    connection.execute(
        upsert(database.insert, row_vector, "model_no", "vector"),
        [
            {"space_no": row.space_no, "id": row.id, "model_no": number, "vector": vector}
            for row, vector in zip(found, database.dump_vectors(matrix), strict=True)
        ],
    )
    for space_no in {row.space_no for row in found}:
        mark_changed(connection, space_no, rows=space_no in replaced)


def _rows(connection: Connection, embedded: Embedded) -> list[Stored[Any]]:
    spaces = find_spaces(connection, embedded.scope)
    where = Where(embedded.scope, kinds=MESSAGES | NOTES)
    found: list[Stored[Any]] = list(named(connection, spaces, embedded.ids))
    for space in spaces:
        found += named_notes(connection, space, embedded.ids)
    return [row for row in found if where.matches(row.row)]


def check_vectors(matrix: Matrix, count: int, width: int) -> None:
    """Refuse what is not `count` vectors of that width, finite and not zero."""
    if np.shape(matrix) != (count, width):
        raise InvalidArgument(f"vectors must have shape {(count, width)}, not {np.shape(matrix)}")
    with np.errstate(over="ignore"):
        halves = np.asarray(matrix, np.float16)  # as they are stored: huge numbers become infinite
    if not np.isfinite(halves).all() or not halves.any(axis=1).all():
        raise InvalidArgument("vectors must be finite and not zero")


def _replaced(connection: Connection, found: Sequence[Stored[Any]], model_no: int) -> set[int]:
    """Spaces in which a vector of this model is about to change under the caches."""
    by_space: dict[int, list[int]] = {}
    for row in found:
        by_space.setdefault(row.space_no, []).append(row.id)
    return {
        space_no
        for space_no, keys in by_space.items()
        for chunk in chunks(keys)
        if connection.execute(
            _present, {"space_no": space_no, "model_no": model_no, "keys": list(chunk)}
        ).first()
    }


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


def record_model(connection: Connection, model: Model) -> Model | None:
    """Note the model in use; returns the one noted before."""
    before = read_meta(connection, "embedder")
    now = f"{model.width} {model.name}"
    if before != now:
        write_meta(connection, "embedder", now)
    if before is None:
        return None
    width, name = before.split(" ", 1)
    return Model(name, int(width))
