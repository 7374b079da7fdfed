"""New stores start as copies of one: SQLite takes longer to make the tables than most tests run."""

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex

from kemem.store.migrate import read_meta
from kemem.store.sqlite import Sqlite

open_store = Sqlite.open  # which makes the tables itself


@cache
def _image() -> tuple[bytes, str]:
    """The file of an empty store, as the store itself makes it, and the secret in it."""
    with tempfile.TemporaryDirectory() as folder:
        made = Sqlite(Path(folder))
        open_store(made)
        with made.reading() as connection:
            secret = read_meta(connection)["secret"]
        made.close()
        return made.path.read_bytes(), secret


def _open_copy(self: Sqlite, *, moving: bool = False) -> None:
    """Open a store; one that is not there yet is a copy with a secret of its own."""
    folder = self.path.parent
    if not self.path.exists() and os.access(folder.parent, os.W_OK):
        with suppress(OSError):  # the store itself says what is wrong
            image, secret = _image()
            folder.mkdir(mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder) as copy:
                copy.write(image.replace(secret.encode(), token_hex(32).encode()))
                copy.flush()
                os.chmod(copy.name, 0o644)
                os.link(copy.name, self.path)  # at once, and only if nobody else was faster
    open_store(self, moving=moving)


def share_empty_store() -> None:
    """Let every store of this process that is to be made be such a copy."""
    Sqlite.open = _open_copy  # type: ignore[method-assign]
