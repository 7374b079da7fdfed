"""What a PostgreSQL must have or allow before a store is made there, said in plain words."""

import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema

from kemem.errors import Unavailable

DENIED = "42501"  # SQLSTATE of a right that a role does not have
_NOT_INSTALLED = ("0A000", "58P01")  # of an extension that the server does not have

_has_vectors = sa.text("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
_role = sa.text("SELECT current_user")
_may_create = sa.text("SELECT has_schema_privilege(:name, 'CREATE')")
_current = sa.text("SELECT current_schema()")


def add_vectors(connection: sa.Connection) -> None:
    """Create the extension of vectors unless it is there, which needs no right."""
    if connection.execute(_has_vectors).first():
        return
    try:
        connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS vector"))
    except sa.exc.DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state == DENIED:
            raise Unavailable(
                "the database lacks the extension vector, and this role may not create it; "
                "run there as an administrator: CREATE EXTENSION vector"
            ) from None
        if state in _NOT_INSTALLED:
            raise Unavailable(
                "the PostgreSQL server lacks pgvector; install it there, "
                "then run as an administrator: CREATE EXTENSION vector"
            ) from None
        raise


def add_schema(connection: sa.Connection, name: str) -> None:
    """Create the schema of a store."""
    role, quoted = _quoted(connection, connection.execute(_role).scalar_one(), name)
    try:
        connection.execute(CreateSchema(name))
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != DENIED:
            raise
        raise Unavailable(
            f"the role {role} may not create the schema {quoted}; "
            f"run as an administrator: CREATE SCHEMA {quoted} AUTHORIZATION {role}"
        ) from None


def check_rights(connection: sa.Connection) -> None:
    """Refuse a role that may not create tables, before one is."""
    # None is current where the role may not even use it.
    name = connection.execute(_current).scalar_one() or "public"
    if connection.execute(_may_create, {"name": name}).scalar_one():
        return
    role, schema = _quoted(connection, connection.execute(_role).scalar_one(), name)
    raise Unavailable(
        f"the role {role} may not create tables in the schema {schema}; "
        f"run as an administrator: GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}"
    )


def denied(error: sa.exc.DBAPIError) -> Unavailable:
    """What a role may not do, in the words of the server, which name tables and no values."""
    reason = getattr(getattr(error.orig, "diag", None), "message_primary", None) or DENIED
    return Unavailable(f"PostgreSQL denies it to this role: {reason}; nothing was written")


def _quoted(connection: sa.Connection, *names: str) -> list[str]:
    return [connection.dialect.identifier_preparer.quote(it) for it in names]
