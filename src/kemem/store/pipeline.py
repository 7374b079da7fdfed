"""Connections to PostgreSQL on which statements do not wait for each other's answers.

They are sent one after the other and carried out in that order; an answer is waited for when its
rows are read, or at the end of the transaction. So what needs no answer costs no round trip, and
statements that are all executed before the rows of the first are read cost one together. An error
is raised by whichever statement is waited for next.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine.cursor import CursorFetchStrategy

from kemem.errors import Unavailable

T = TypeVar("T")

_PIPELINE = "pipeline"  # what a connection of the pool remembers its own under
_UNREAD = {"unread": True}  # an execution option: nobody looks at the answer
_FLOAT = 701  # the only type of a column that SQLAlchemy asks about, to load what is no integer


class _Later(CursorFetchStrategy):
    """Rows that are waited for when they are read; the statement tells which columns they have."""

    __slots__ = ("alternate_cursor_description",)

    def __init__(self, columns: Any) -> None:
        names = [column.name for column in columns]
        self.alternate_cursor_description = [(it, _FLOAT, *(None,) * 5) for it in names]


def pipeline(engine: sa.Engine) -> None:
    """Let the connections of an engine be used by `transaction`."""
    engine.dialect.supports_server_side_cursors = False  # the driver has none in a pipeline
    sa.event.listen(engine, "after_cursor_execute", _after_execute)
    sa.event.listen(engine, "checkout", _check)
    sa.event.listen(engine, "handle_error", _note_loss)
    sa.event.listen(engine, "close", lambda driver, record: _leave(engine, driver, record))


@contextmanager
def transaction(engine: sa.Engine, *begin: sa.Executable) -> Iterator[sa.Connection]:
    """A transaction that begins with these statements and is committed at the end of the block.

    Of a statement that changes rows, the `rowcount` is known only if it has the execution option
    `preserve_rowcount`, for which it is waited.
    """
    with engine.connect() as connection:
        if _PIPELINE not in connection.info:
            driver: Any = connection.connection.driver_connection
            manager = driver.pipeline()
            connection.info[_PIPELINE] = (manager, manager.__enter__())
        try:
            for statement in begin:
                connection.execute(statement, execution_options=_UNREAD)
            yield connection
            _commit(connection)
        except BaseException:
            try:
                connection.rollback()
            except sa.exc.DBAPIError:  # of a statement that nobody has waited for
                connection.invalidate()
            raise


def _commit(connection: sa.Connection) -> None:
    try:
        # Not by the driver, which cannot tell inside a pipeline whether it has begun.
        connection.exec_driver_sql("COMMIT")
    except sa.exc.DBAPIError as error:
        if not error.connection_invalidated:
            raise
        doubt = "PostgreSQL was lost while it committed: a write is there wholly or not at all"
        raise Unavailable(doubt) from None
    connection.commit()


def retried(work: Callable[[], T]) -> T:
    """Do work in a transaction once more where the connection was lost before it committed."""
    try:
        return work()
    except sa.exc.DBAPIError as error:
        if not error.connection_invalidated:
            raise
        return work()


def _note_loss(context: Any) -> None:
    """See that a server that shuts down, or has just come up, serves no connection."""
    state = getattr(context.original_exception, "sqlstate", None) or ""
    context.is_disconnect = context.is_disconnect or state.startswith("57P")


def _after_execute(
    connection: sa.Connection,
    cursor: Any,
    statement: str,
    parameters: Any,
    context: Any,
    executemany: bool,
) -> None:
    options, compiled = context.execution_options, context.compiled
    if _PIPELINE not in connection.info or options.get("unread"):
        return
    columns = getattr(compiled, "_result_columns", ())
    if options.get("preserve_rowcount") or context.is_text or compiled is None:
        connection.info[_PIPELINE][1].sync()
    elif columns:
        context.cursor_fetch_strategy = _Later(columns)


def _check(driver: Any, record: Any, proxy: Any) -> None:
    """Replace connections that the server has closed: it has said so, without having been asked."""
    with DefaultSelector() as selector:
        selector.register(driver.fileno(), EVENT_READ)
        if selector.select(0):
            raise sa.exc.InvalidatePoolError


def _leave(engine: sa.Engine, driver: Any, record: Any) -> None:
    manager, _ = record.info.pop(_PIPELINE, (None, None))
    if manager is not None:
        with suppress(engine.dialect.loaded_dbapi.Error):  # a connection that is broken
            manager.__exit__(None, None, None)
