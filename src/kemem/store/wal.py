"""The write-ahead log of SQLite, which keeps the old pages of a file until it is truncated."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

_PATIENCE = 10.0  # seconds
_STEP = 0.05


def truncate_log(path: Path, is_ready: Callable[[], bool]) -> None:
    """Empty the log once the writer has let removed words go; a reader in the way puts it off."""
    until = time.monotonic() + _PATIENCE
    while not is_ready() and time.monotonic() < until:
        time.sleep(_STEP)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
