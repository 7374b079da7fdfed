"""Vectors of 16-bit numbers: a blob on SQLite, pgvector's halfvec on PostgreSQL."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import UserDefinedType


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


class Vectors(list[Any]):
    """Many vectors as one array, which PostgreSQL is sent in its binary form."""


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
