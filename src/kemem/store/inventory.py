"""How much of each a store holds of one user."""

from typing import Any

import sqlalchemy as sa

from kemem.ports.lines import AUDIT
from kemem.records import NOTE_KINDS, Inventory
from kemem.store.schema import (
    checkpoint,
    embedding_model,
    entity,
    job,
    journal,
    message,
    note,
    note_history,
    relation,
    row_vector,
    session,
    space,
)

_COUNTED = {  # names of counts, and the tables of spaces that they are of
    **{"messages": message, "sessions": session, "summaries": checkpoint},
    **{"changes": note_history, "entities": entity, "relations": relation},
    "vectors": row_vector,
}
_TEXTS = (
    *(message.c.content, note.c.content, note.c.summary, checkpoint.c.state),
    *(note_history.c.before, note_history.c.after),
)
_HALF = 2  # bytes of a number in a vector


def take_inventory(connection: sa.Connection, backend: str, user_id: str) -> Inventory:
    """Counts of everything that belongs to a user, in the spaces of all agents."""
    spaces = sa.select(space.c.space_no, space.c.agent_id).where(space.c.user_id == user_id)
    agents = {row.space_no: row.agent_id for row in connection.execute(spaces)}

    def of_user(table: sa.Table) -> sa.ColumnElement[bool]:
        return table.c.space_no.in_(list(agents))

    def count(table: sa.Table, own: sa.ColumnElement[bool]) -> int:
        statement = sa.select(sa.func.count()).select_from(table).where(own)
        return int(connection.execute(statement).scalar_one())

    def by_kind(table: sa.Table, own: sa.ColumnElement[bool]) -> dict[str, int]:
        statement = sa.select(table.c.kind, sa.func.count()).where(own).group_by(table.c.kind)
        return {kind: number for kind, number in connection.execute(statement)}

    width = sa.select(sa.func.sum(embedding_model.c.width)).join_from(row_vector, embedding_model)
    size = _HALF * (connection.execute(width.where(of_user(row_vector))).scalar() or 0)
    for column in _TEXTS:
        total = sa.select(sa.func.sum(_bytes(backend, column))).where(of_user(column.table))
        size += connection.execute(total).scalar() or 0
    times = sa.select(sa.func.min(message.c.create_time), sa.func.max(message.c.create_time))
    first, last = connection.execute(times.where(of_user(message))).one()
    notes = by_kind(note, of_user(note))
    return Inventory(
        user_id=user_id,
        agents=tuple(sorted(agents.values())),
        **{name: count(table, of_user(table)) for name, table in _COUNTED.items()},
        notes={kind: notes.get(kind, 0) for kind in NOTE_KINDS},
        jobs=count(job, job.c.user_id == user_id),
        journal=by_kind(journal, (journal.c.user_id == user_id) & (journal.c.kind != AUDIT)),
        size=int(size),
        first_message=first,
        last_message=last,
        backend=backend,
    )


def _bytes(backend: str, column: sa.Column[Any]) -> sa.ColumnElement[int]:
    """The bytes of a text; SQLite counts them only of a blob."""
    if backend == "sqlite":
        return sa.func.length(sa.cast(column, sa.LargeBinary))
    return sa.func.octet_length(column)
