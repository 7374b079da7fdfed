"""The audit log: who did what to whose data, in the journal; written in batches, read in pages."""

import asyncio
import csv
import getpass
import io
import json
import re
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from secrets import token_hex
from typing import Any, Literal

import structlog

from kemem.errors import InvalidArgument, KeMemError, StoreMoved
from kemem.journal import AsyncJournal
from kemem.ports.lines import AUDIT
from kemem.records import Line, Micros, Page
from kemem.records.audit import AuditEvent, Result
from kemem.records.batch import Batch
from kemem.records.times import DAY, HOUR
from kemem.runtime import open_store, system_clock
from kemem.serve.telemetry.seldom import seldom
from kemem.settings import Settings
from kemem.text.ids import check_id

Format = Literal["jsonl", "csv"]
COLUMNS = (  # of a CSV
    *("at", "actor_type", "actor_id", "actor_name", "interface", "operation", "result", "error"),
    *("user_id", "agent_id", "record_ids", "count", "address", "id"),
)
STORE_FILE = "kemem.db"  # of the embedded store
MOST_IDS = 10  # of records that a line names
_AT_ONCE = (  # how operations begin that are written before their response ends
    *("user.erase", "user.export", "key.create", "key.revoke", "token.", "backup.", "store."),
    *("webhook.", "auth.sign_in"),
)
_BACKLOG = 10_000  # lines that wait for a store that is away
MOST_READ = 1_000  # lines of one page
_READ, _SCANNED = 1_000, 50_000  # lines that are read at once, and for one page
_CURSOR = re.compile(r"(\d{1,16})-[0-9a-f]{8}")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run

log = structlog.get_logger("kemem")


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(files(__package__).joinpath("audit.toml").read_text("utf-8"))


@cache
def _names() -> dict[str, str]:
    groups = _table().values()
    return {name: it for group in groups for it, names in group.items() for name in names}


def operation_of(name: str) -> str:
    """What a route, command or method does.  "mem0_add" -> "memory.add" """
    return _names().get(name, name)


def operations() -> list[str]:
    """All operations that have a name of their own."""
    return [operation for group in _table().values() for operation in group]


def is_recorded(level: str, operation: str, is_write: bool) -> bool:
    """Whether the settings record an operation; reads across users and exports count as writes."""
    return level == "all" or (level == "writes" and (is_write or operation in _table()["reads"]))


def result_of(status: int) -> Result:
    """How a request or command ended, by its status; 0 is none."""
    return "ok" if status < 400 else "refused" if status < 500 else "failed"


class AuditLog:
    """Writes events to a journal: those that matter most at once, the others within seconds."""

    def __init__(
        self,
        journal: AsyncJournal,
        settings: Settings,
        clock: Callable[[], Micros] = system_clock,
    ) -> None:
        self._journal, self._clock = journal, clock
        self._level, self._days = settings.audit, settings.audit_days
        self._lines: list[Line] = []
        self._lock = asyncio.Lock()
        self._last: Micros = 0
        self._trimmed: Micros | None = None

    def wants(self, operation: str, is_write: bool) -> bool:
        """Whether an operation is recorded."""
        return is_recorded(self._level, operation, is_write)

    async def write(self, event: AuditEvent) -> None:
        """Record an event; it fails nobody, whatever becomes of the store."""
        self._last = max(self._clock(), self._last + 1)  # each its own time, which pages go by
        self._lines.append(event.to_line(AUDIT, self._last, f"{self._last}-{token_hex(4)}"))
        if event.operation.startswith(_AT_ONCE):
            try:
                await self._write()
            except StoreMoved as error:
                seldom.warn_moved(error)
            except KeMemError as error:
                log.warning("audit lines wait for the store", kind=type(error).__name__)

    async def flush(self) -> None:
        """Write what waits; once an hour erase what is older than the settings say."""
        await self._write()
        now = self._clock()
        if self._days and (self._trimmed is None or now - self._trimmed >= HOUR):
            await self._journal.trim(AUDIT, before=now - self._days * DAY)
            self._trimmed = now

    async def _write(self) -> None:
        async with self._lock:
            lines, self._lines = self._lines, []
            if not lines:
                return
            try:
                await self._journal.note(lines)
            except BaseException:  # also if it is cancelled: the same lines again change nothing
                waiting = [*lines, *self._lines]
                self._lines = waiting[-_BACKLOG:]
                if len(waiting) > _BACKLOG:
                    lost = len(waiting) - _BACKLOG
                    log.error("audit lines were lost: the store is away", lines=lost)
                raise


async def record_command(
    settings: Settings,
    name: str,
    arguments: Mapping[str, Any],
    error: KeMemError | None,
    made: Sequence[str] = (),
) -> None:
    """Record a command of this machine's user that has ended, if it is one of the table.

    The line names the records that the arguments name, and those that the command made.
    """
    operation, is_write = operation_of(name), operation_of(name) in _table()["writes"]
    is_there = settings.database_url is not None or (settings.data_dir / STORE_FILE).exists()
    if operation == name or not is_there or not is_recorded(settings.audit, operation, is_write):
        return
    ids = [str(it) for key, it in arguments.items() if key.endswith("_id") and it]
    ids += made
    event = AuditEvent(
        operation=operation,
        result=result_of(0 if error is None else error.status),
        interface="command",
        actor_type="command",
        actor_id=_local_user(),
        user_id="" if operation == "audit.read" else valid_id(arguments.get("user")) or "",
        agent_id=valid_id(arguments.get("agent")),
        record_ids=tuple(ids[:MOST_IDS]),
        count=len(ids),
        error=None if error is None else error.code,
    )
    try:
        store = open_store(settings)
        try:
            now = system_clock()
            line = event.to_line(AUDIT, now, f"{now}-{token_hex(4)}")
            await store.apply(Batch(journal=(line,)))
        finally:
            await store.close()
    except KeMemError as failure:
        log.warning("a command is missing in the audit log", kind=type(failure).__name__)


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        return ""


def valid_id(value: object) -> str | None:
    """A value that can be an id of a user, agent or record; None of any other."""
    try:
        return check_id(value, "id")
    except InvalidArgument:
        return None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which events to read; None is any."""

    user_id: str | None = None
    actor: str | None = None  # an id or a name
    operation: str | None = None  # or the part before its dot
    since: Micros | None = None  # inclusive
    until: Micros | None = None  # exclusive

    def __post_init__(self) -> None:
        parts = {part for it in operations() for part in (it, it.partition(".")[0])}
        if self.operation is not None and self.operation not in parts:
            known = ", ".join(operations())
            reason = (
                f"operation must be one of {known}, or its first part, not {self.operation!r:.80}"
            )
            raise InvalidArgument(reason, field="operation")

    def admits(self, event: AuditEvent) -> bool:
        """Whether an event is one of these, by what the store does not look at."""
        if self.actor is not None and self.actor not in (event.actor_id, event.actor_name):
            return False
        return self.operation is None or f"{event.operation}.".startswith(f"{self.operation}.")


async def read_events(
    journal: AsyncJournal, chosen: AuditFilter, limit: int = 100, cursor: str | None = None
) -> Page[AuditEvent]:
    """A page of events, newest first. One may be short, where few of very many lines fit."""
    if not 1 <= limit <= MOST_READ:
        raise InvalidArgument(f"limit must be 1-{MOST_READ}, not {limit}", field="limit")
    events, last, scanned = list[AuditEvent](), cursor, 0
    while scanned < _SCANNED:
        at = _time_of(last)
        until = chosen.until if at is None else min(at + 1, chosen.until or at + 1)
        lines = await journal.lines(
            AUDIT, since=chosen.since, until=until, user_id=chosen.user_id, limit=_READ
        )
        for line in lines:
            if last is not None and line.ts == at and line.id <= last:  # of equal times, by id
                continue
            event = AuditEvent.of(line)
            if chosen.admits(event):
                events.append(event)
            if len(events) > limit:
                return Page(tuple(events[:limit]), events[limit - 1].id)
        if len(lines) < _READ:
            return Page(tuple(events))
        last, scanned = lines[-1].id, scanned + len(lines)
    return Page(tuple(events), last)


def _time_of(cursor: str | None) -> Micros | None:
    """The time of the line that a cursor is the id of."""
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        reason = f"cursor must be that of a page, not {cursor!r:.80}"
        raise InvalidArgument(reason, field="cursor")
    return int(match[1])


async def exported(journal: AsyncJournal, chosen: AuditFilter, form: Format) -> AsyncIterator[str]:
    """All events that a filter admits, newest first, as pieces of a file."""
    cursor = None
    if form == "csv":
        yield _row(COLUMNS)
    while True:
        page = await read_events(journal, chosen, MOST_READ, cursor)
        shown = [event.to_dict() for event in page.items]
        if form == "jsonl":
            yield "".join(json.dumps(it, ensure_ascii=False) + "\n" for it in shown)
        else:
            yield "".join(_row([_cell(it[name]) for name in COLUMNS]) for it in shown)
        cursor = page.next_cursor
        if cursor is None:
            return


def _cell(value: object) -> str:
    """A value as a spreadsheet shows it, which runs no formula."""
    text = " ".join(value) if isinstance(value, list) else "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _row(cells: list[str] | tuple[str, ...]) -> str:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue()
