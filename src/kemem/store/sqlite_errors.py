"""Errors of SQLite in plain words, without internals."""

from pathlib import Path

import sqlalchemy as sa

from kemem.errors import Unavailable
from kemem.store.migrate import was_moved

_REASONS = {  # by the beginning of SQLite's name
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "the store is read-only",
    "SQLITE_CANTOPEN": "the store cannot be opened",
    "SQLITE_BUSY": "another process holds the store",
    "SQLITE_IOERR": "reading or writing the disk failed",
}


def explain(error: sa.exc.DBAPIError, path: Path) -> Unavailable:
    """What a driver's error means for the store in a file."""
    name = getattr(error.orig, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return Unavailable(f"the store {path} is damaged or not a KeMem store; restore a backup")
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return was_moved(str(error.orig))
    for prefix, reason in _REASONS.items():
        if name.startswith(prefix):
            return Unavailable(f"{reason}: {path}; nothing was written")
    return Unavailable(f"the store did not answer ({name or type(error.orig).__name__})")
