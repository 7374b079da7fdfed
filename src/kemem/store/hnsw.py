"""HNSW indexes of pgvector over the vectors of large spaces, built when an operator asks for them.

Each covers one space and model, up to a row: those that come later are not slowed down by it, and
are compared by their signs until it is built again.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from kemem.errors import Conflict, Unavailable
from kemem.records import Vector
from kemem.store import codes
from kemem.store.columns import Ids
from kemem.store.database import Space, Values
from kemem.store.halfvec import of_pgvector
from kemem.store.migrate import read_meta
from kemem.store.pipeline import DISTRIBUTED
from kemem.store.schema import SEQ_BITS, embedding_model, row_vector, space_state

_OLDEST = (0, 8)  # version of pgvector whose scans go on until enough rows are found
_WIDEST = 4000  # numbers of a vector that it can index
_EFFORT = 100  # rows that a scan looks at first
_LATER = 0.1  # part of the rows that may have come after an index was built
_BUILDING = 0x6B656D68  # key of the advisory lock that lets one process build at a time
_PREFIX = "hnsw_"

_version = sa.text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
_indexes = sa.text(
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = to_regclass('row_vector') AND starts_with(c.relname, :prefix)"
)
_options = sa.select(
    sa.func.set_config("hnsw.ef_search", str(_EFFORT), True),
    sa.func.set_config("hnsw.iterative_scan", "relaxed_order", True),
)
_large = (
    sa.select(
        *(row_vector.c.space_no, row_vector.c.model_no, embedding_model.c.width),
        *(sa.func.count(), sa.func.max(row_vector.c.id)),
    )
    .join_from(row_vector, embedding_model)
    .where(
        row_vector.c.space_no.in_(
            sa.select(space_state.c.space_no).where(space_state.c.next_seq > sa.bindparam("least"))
        ),
        embedding_model.c.width <= _WIDEST,
    )
    .group_by(row_vector.c.space_no, row_vector.c.model_no, embedding_model.c.width)
    .having(sa.func.count() > sa.bindparam("least"))
    .order_by(row_vector.c.space_no, row_vector.c.model_no)
)


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """An index of the vectors that one model made of a space's rows."""

    space_no: int
    model_no: int
    rows: int
    seconds: float  # that it took to build; 0: it was there


@dataclass(frozen=True, slots=True)
class IndexState:
    """Which large spaces have an index."""

    pgvector: str  # its version
    can_index: bool
    large: int  # spaces, counted once for each model
    indexed: int


def _nearest(width: int, dialect: sa.Dialect) -> Any:
    # In the words of the index, or it would not be used.
    kind, operator = of_pgvector(f"halfvec({width})", dialect), of_pgvector("<=>", dialect)
    return sa.text(
        "SELECT id FROM row_vector WHERE space_no = CAST(:space_no AS BIGINT) "
        "AND model_no = CAST(:model_no AS INTEGER) AND id <= CAST(:last AS BIGINT) "
        f"ORDER BY CAST(vector AS {kind}) OPERATOR({operator}) CAST(:vector AS {kind}) LIMIT :count"
    ).columns(id=sa.BigInteger)


def nearest(
    connection: sa.Connection, space: Space, model_no: int, vector: Vector, count: int
) -> tuple[int, Ids] | None:
    """The last row of a space that an index covers, and the nearest of those rows; None without."""
    is_distributed = DISTRIBUTED in connection.get_execution_options()
    if connection.dialect.name != "postgresql" or is_distributed:
        return None
    prefix = f"{_PREFIX}{space.space_no}_{model_no}_"
    names = connection.execute(_indexes, {"prefix": prefix}).all()
    last = max((_last(name) for name, is_valid in names if is_valid), default=0)
    if not last:
        return None
    values: Values = {"space_no": space.space_no, "model_no": model_no, "count": count}
    values |= {"last": space.first_id + last, "vector": str(vector.tolist())}
    connection.execute(_options)
    statement = _nearest(len(vector), connection.dialect)
    ids = connection.execute(statement, values).scalars().all()
    return space.first_id + last, np.array(ids, np.int64)


def _last(name: str) -> int:
    return int(name.rsplit("_", 1)[1])


def state(connection: sa.Connection) -> IndexState:
    """Which large spaces have an index, and whether they could."""
    version = str(connection.scalar(_version))
    large = connection.execute(_large, {"least": codes.EXACT}).all()
    names = connection.execute(_indexes, {"prefix": _PREFIX}).all()
    known = {name.rsplit("_", 1)[0] for name, is_valid in names if is_valid}
    indexed = sum(f"{_PREFIX}{it.space_no}_{it.model_no}" in known for it in large)
    numbers = tuple(int(part) for part in version.split(".")[:2])
    return IndexState(version, numbers >= _OLDEST, len(large), indexed)


def build(engine: sa.Engine, memory_mb: int) -> list[VectorIndex]:
    """Build the indexes of large spaces that are missing or too old, and drop all others.

    Reads and writes go on meanwhile.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(_BUILDING))):
            raise Conflict("another process builds vector indexes; wait until it is done")
        if DISTRIBUTED in read_meta(connection):
            raise Conflict("the store is distributed, for which no vector indexes are built")
        found = state(connection)
        if not found.can_index:
            oldest = ".".join(map(str, _OLDEST))
            reason = f"vector indexes need pgvector {oldest} or newer, not {found.pgvector}"
            raise Unavailable(f"{reason}: run ALTER EXTENSION vector UPDATE")
        connection.execute(sa.text(f"SET maintenance_work_mem = '{memory_mb}MB'"))
        kept, made = set[str](), list[VectorIndex]()
        large = connection.execute(_large, {"least": codes.EXACT}).all()
        for space_no, model_no, width, rows, newest in large:
            name, seconds = _build(connection, space_no, model_no, width, rows, newest)
            kept.add(name)
            made.append(VectorIndex(space_no, model_no, rows, seconds))
        for name, _ in connection.execute(_indexes, {"prefix": _PREFIX}).all():
            if name not in kept:
                connection.execute(sa.text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
    return made


def _build(
    connection: sa.Connection, space_no: int, model_no: int, width: int, rows: int, newest: int
) -> tuple[str, float]:
    """The name of an index, and the seconds that it took if there was none as good."""
    prefix = f"{_PREFIX}{space_no}_{model_no}_"
    last = newest & ((1 << SEQ_BITS) - 1)
    for name, is_valid in connection.execute(_indexes, {"prefix": prefix}).all():
        if is_valid and last - _last(name) <= rows * _LATER:
            return name, 0.0
    name, begun = f"{prefix}{last}", time.perf_counter()
    connection.execute(sa.text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))  # one left half built
    dialect = connection.dialect
    kind = of_pgvector(f"halfvec({width})", dialect)
    connection.execute(
        sa.text(
            f"CREATE INDEX CONCURRENTLY {name} ON row_vector USING hnsw "
            f"(CAST(vector AS {kind}) {of_pgvector('halfvec_cosine_ops', dialect)}) "
            f"WHERE space_no = CAST({space_no} AS BIGINT) AND model_no = {model_no} "
            f"AND id <= CAST({newest} AS BIGINT)"
        )
    )
    return name, time.perf_counter() - begun
