"""From settings to parts: the only file that knows the names of backends."""

import time
from collections.abc import Callable

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from kemem.errors import InvalidArgument
from kemem.ports import Embedder, Parts, Store
from kemem.settings import Settings
from kemem.types import Micros


def system_clock() -> Micros:
    """Now, in UTC microseconds."""
    return time.time_ns() // 1000


def assemble(
    settings: Settings, embedder: Embedder | None, clock: Callable[[], Micros] | None
) -> Parts:
    """The parts that settings name; an embedder given as an object wins. Opens the store."""
    return Parts(
        store=open_store(settings),
        embedder=embedder or open_embedder(settings),
        clock=clock or system_clock,
    )


def open_store(settings: Settings) -> Store:
    """The database of the settings, created or migrated as needed."""
    cache_bytes = settings.vector_cache_mb << 20
    if settings.database_url is None:
        from kemem.backends.sql.sqlite import Sqlite
        from kemem.backends.sql.store import SqlStore

        return SqlStore(Sqlite(settings.data_dir), cache_bytes)
    try:
        url = make_url(settings.database_url)
    except ArgumentError:
        raise InvalidArgument("database_url is not a URL", field="database_url") from None
    match url.get_backend_name():
        case "postgresql":
            from kemem.backends.sql.postgres import Postgres
            from kemem.backends.sql.store import SqlStore

            return SqlStore(Postgres(url), cache_bytes)
        case other:
            raise InvalidArgument(
                f"database_url must begin with postgresql://, not {other}://; "
                "for SQLite give data_dir instead",
                field="database_url",
            )


def open_embedder(settings: Settings) -> Embedder | None:
    """The embedder of the settings; its model is loaded on first use."""
    match settings.embedder:
        case "local":
            from kemem.backends.local import LocalEmbedder

            return LocalEmbedder()
        case "none":
            return None
