"""Vectors of 16-bit numbers: a blob on SQLite, pgvector's halfvec on PostgreSQL."""

from struct import pack
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType

from kemem.records import Matrix


class HalfVector(UserDefinedType[Any]):
    """Numbers of 16 bits: a blob on SQLite, pgvector's halfvec on PostgreSQL."""

    cache_ok = True


@compiles(HalfVector)
def _halfvec(element: HalfVector, compiler: Any, **options: Any) -> str:
    return of_pgvector("halfvec", compiler.dialect)


@compiles(HalfVector, "sqlite")
def _blob(element: HalfVector, compiler: Any, **options: Any) -> str:
    return "BLOB"


def pgvector_schema(dialect: sa.Dialect) -> str | None:
    """Where pgvector is; None where the search path leads there."""
    return getattr(dialect, "pgvector_schema", None)


def of_pgvector(name: str, dialect: sa.Dialect) -> str:
    """A type or function of pgvector.  "halfvec" -> "public.halfvec" """
    schema = pgvector_schema(dialect)
    return f"{schema}.{name}" if schema else name


class Vector(bytes):
    """A vector in pgvector's binary form: the width, an unused number, 16 bits of each value."""


class Vectors(list[Vector]):
    """Many vectors of one width, as an array."""


def dump_vectors(matrix: Matrix) -> list[Vector]:
    """The rows of a matrix as pgvector reads them."""
    count, width = matrix.shape
    rows = np.zeros((count, 2 + width), ">u2")
    rows[:, 0] = width
    rows[:, 2:] = matrix.astype(np.float16).view(np.uint16)
    joined, size = memoryview(rows.tobytes()), 2 * (2 + width)
    return [Vector(joined[start : start + size]) for start in range(0, len(joined), size)]


class HalfVectors(UserDefinedType[Any]):
    """An array of HalfVector, on PostgreSQL."""

    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        return Vectors


@compiles(HalfVectors)
def _halfvecs(element: HalfVectors, compiler: Any, **options: Any) -> str:
    return of_pgvector("halfvec[]", compiler.dialect)


class HalfvecSend(FunctionElement[bytes]):
    """The wire form of a vector, which is faster to read than text."""

    type = BYTEA()
    inherit_cache = True


@compiles(HalfvecSend)
def _send(element: HalfvecSend, compiler: Any, **options: Any) -> str:
    value = compiler.process(element.clauses, **options)
    return of_pgvector(f"halfvec_send({value})", compiler.dialect)


def learn_vectors(dialect: sa.Dialect, driver: Any) -> None:
    """Let a connection of psycopg know the types of pgvector, and send vectors as they are."""
    from pgvector.psycopg import register_vector
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    with driver.transaction():
        if place := pgvector_schema(dialect):
            driver.execute("SELECT set_config('search_path', %s, true)", [place])
        register_vector(driver)
    kind = driver.adapters.types["halfvec"]

    class VectorDumper(Dumper):
        format, oid = Format.BINARY, kind.oid

        def dump(self, obj: Vector) -> bytes:
            return obj

    class VectorsDumper(Dumper):
        format, oid = Format.BINARY, kind.array_oid

        def dump(self, obj: Vectors) -> bytes:
            header = pack("!iiIii", 1, 0, kind.oid, len(obj), 1)  # one dimension, no NULL, from 1
            size = pack("!i", len(obj[0]))
            return b"".join([header, size, size.join(obj)])

    driver.adapters.register_dumper(Vector, VectorDumper)
    driver.adapters.register_dumper(Vectors, VectorsDumper)
