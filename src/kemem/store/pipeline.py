"""Connections to PostgreSQL on which statements do not wait for each other's answers.

They are sent one after the other and carried out in that order; an answer is waited for when its
rows are read, or at the end of the transaction. So what needs no answer costs no round trip, and
statements that are all executed before the rows of the first are read cost one together. An error
is raised by whichever statement is waited for next. Changes of several tables can become one
statement.
"""

import re
import selectors
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine.cursor import CursorFetchStrategy

from kemem.errors import Unavailable

T = TypeVar("T")

# A key of meta and an execution option: rows are on several servers, by the number of their space.
DISTRIBUTED = "distributed"
_PIPELINE = "pipeline"  # what a connection of the pool remembers its own under
_DEFERRED = "deferred"  # and the changes that it has not been sent yet
_UNREAD = {"unread": True}  # an execution option: nobody looks at the answer
_NAME = re.compile(r"(?<!%)%\(")  # where a bound name begins
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)  # needs no descriptor
_FLOAT = 701  # the only type of a column that SQLAlchemy asks about, to load what is no integer


class _Later(CursorFetchStrategy):
    """Rows that are waited for when they are read; the statement tells which columns they have."""

    __slots__ = ("alternate_cursor_description",)

    def __init__(self, columns: Any) -> None:
        names = [column.name for column in columns]
        self.alternate_cursor_description = [(it, _FLOAT, *(None,) * 5) for it in names]


def pipeline(engine: sa.Engine, *, keeps_plans: bool) -> None:
    """Let the connections of an engine be used by `transaction`.

    If it keeps the plans of statements, those with the execution option `replan` have none.
    """
    engine.dialect.supports_server_side_cursors = False  # the driver has none in a pipeline
    if keeps_plans:
        sa.event.listen(engine, "do_execute", _execute)
    sa.event.listen(engine, "before_execute", lambda connection, *_: send(connection))
    sa.event.listen(engine, "after_cursor_execute", _after_execute)
    sa.event.listen(engine, "checkout", _check)
    sa.event.listen(engine, "handle_error", _note_loss)
    sa.event.listen(engine, "close", lambda driver, record: _leave(engine, driver, record))


@contextmanager
def transaction(engine: sa.Engine, *begin: str) -> Iterator[sa.Connection]:
    """A transaction that begins with these statements and is committed at the end of the block.

    Of a statement that changes rows, the `rowcount` is known only if it has the execution option
    `preserve_rowcount`, for which it is waited.
    """
    with engine.connect() as connection:
        if _PIPELINE not in connection.info:
            driver: Any = connection.connection.driver_connection
            manager = driver.pipeline()
            connection.info[_PIPELINE] = (manager, manager.__enter__())
        connection.info[_DEFERRED] = []
        try:
            for statement in begin:
                connection.exec_driver_sql(statement, execution_options=_UNREAD)
            yield connection
            _commit(connection)
        except BaseException:
            try:
                connection.rollback()
            except sa.exc.DBAPIError:  # of a statement that nobody has waited for
                connection.invalidate()
            raise


def _commit(connection: sa.Connection) -> None:
    send(connection)
    try:
        # Not by the driver, which cannot tell inside a pipeline whether it has begun.
        connection.exec_driver_sql("COMMIT")
    except sa.exc.DBAPIError as error:
        if not error.connection_invalidated:
            raise
        doubt = "PostgreSQL was lost while it committed: a write is there wholly or not at all"
        raise Unavailable(doubt) from None
    connection.commit()


class _Bound(NamedTuple):
    """A value that a statement has under a key, and where it comes from."""

    key: str
    part: int
    name: str
    default: Any
    process: Callable[[Any], Any] | None


_Together = tuple[str, Sequence[_Bound]]  # as a driver takes it
_known: WeakKeyDictionary[sa.Dialect, dict[tuple[Any, ...], _Together]] = WeakKeyDictionary()


def _together(statements: tuple[Any, ...], dialect: sa.Dialect) -> _Together:
    """One change, or several as one statement."""
    parts, bound = [], []
    for number, statement in enumerate(statements):
        compiled = statement.compile(dialect=dialect)
        parts.append(_NAME.sub(f"%({number}_", str(compiled)))
        for name, value in compiled.params.items():
            process = compiled._bind_processors.get(name)
            bound.append(_Bound(f"{number}_{name}", number, name, value, process))
    if len(parts) == 1:
        return parts[0], bound
    named = [f"part{number} AS ({part})" for number, part in enumerate(parts)]
    return f"WITH {', '.join(named)} SELECT", bound


def defer(
    connection: sa.Connection, table: sa.Table, statement: sa.Executable, values: Mapping[str, Any]
) -> None:
    """Change rows of a table before the next statement is executed, or the transaction committed.

    What is deferred becomes one statement: no part sees what another one changes, foreign keys are
    checked after all of them, and a table that is changed a second time begins the next one. Where
    rows are distributed, each change stays a statement, as one must not lead to several servers.
    The statement is kept, and must not be made for each call.
    """
    if _PIPELINE not in connection.info:
        connection.execute(statement, values)
        return
    is_distributed = DISTRIBUTED in connection.get_execution_options()
    if is_distributed or any(table is it for it, _, _ in connection.info[_DEFERRED]):
        send(connection)
    connection.info[_DEFERRED].append((table, statement, values))


def send(connection: sa.Connection) -> None:
    """Execute what was deferred."""
    if not connection.info.get(_DEFERRED):
        return
    deferred, connection.info[_DEFERRED] = connection.info[_DEFERRED], []
    statements, known = (
        tuple(it for _, it, _ in deferred),
        _known.setdefault(connection.dialect, {}),
    )
    if statements not in known:
        known[statements] = _together(statements, connection.dialect)
    sql, bound = known[statements]
    parameters = {}
    for key, part, name, default, process in bound:
        value = deferred[part][2].get(name, default)
        parameters[key] = process(value) if process else value
    connection.exec_driver_sql(sql, parameters, execution_options=_UNREAD)


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


def _execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Have a statement planned for its values alone if that is requested."""
    if not context.execution_options.get("replan"):
        return False
    cursor.execute(statement, parameters, prepare=False)
    return True


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
    with _Selector() as selector:
        selector.register(driver.fileno(), selectors.EVENT_READ)
        if selector.select(0):
            raise sa.exc.InvalidatePoolError


def _leave(engine: sa.Engine, driver: Any, record: Any) -> None:
    manager, _ = record.info.pop(_PIPELINE, (None, None))
    if manager is not None:
        with suppress(engine.dialect.loaded_dbapi.Error):  # a connection that is broken
            manager.__exit__(None, None, None)
