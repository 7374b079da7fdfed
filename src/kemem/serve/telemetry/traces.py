"""Traces: what each recall of a server did, as a line of the journal."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from secrets import token_hex
from typing import Any

import structlog

from kemem.memory import AsyncMemory
from kemem.recall import Account, Recalled, Step
from kemem.records import Line, Micros
from kemem.runtime import system_clock
from kemem.serve.telemetry.metrics import DAY, HOUR

TRACE = "trace"  # the kind of line
KEPT = 2_000  # traces

_BACKLOG = 200  # traces that a slow store may be behind before further ones are dropped
_MAX_TEXT = 2_000  # characters

request_in_progress: ContextVar[Mapping[str, Any] | None] = ContextVar(
    "request_in_progress", default=None
)

log = structlog.get_logger("kemem")


class Traces:
    """Writes what recalls did to the journal of a memory; no recall waits for it or fails by it.

    A trace names memories by their keys and does not quote them; only a model that decides on the
    steps may do so, in its own words. It is written as the recall ends, so that erasing the user
    afterwards erases it as well.
    """

    def __init__(
        self, memory: AsyncMemory, route: str = "", clock: Callable[[], Micros] = system_clock
    ) -> None:
        self._memory = memory
        self._route = route  # where no request says it
        self._days = memory.settings.trace_days
        self._clock = clock
        self._writing: set[asyncio.Task[None]] = set()
        self._last: Micros = 0
        self._trimmed: Micros | None = None
        if self._days:
            memory.runtime.on_recall.append(self.take)

    def take(self, account: Account) -> None:
        """Begin to write a trace; where too many wait for the store, this one is dropped."""
        if len(self._writing) >= _BACKLOG:
            log.warning("a trace was dropped: the store is slow")
            return
        self._last = max(self._clock(), self._last + 1)  # each its own time, which pages go by
        line = to_line(account, self._last, _route() or self._route)
        task = asyncio.create_task(self._write(line))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Wait for what is being written; once an hour erase what is old or too much."""
        await asyncio.gather(*self._writing)
        now = self._clock()
        if self._trimmed is None or now - self._trimmed >= HOUR:
            keep = KEPT if self._days else 0
            await self._memory.journal.trim(TRACE, before=now - self._days * DAY, keep=keep)
            self._trimmed = now

    async def _write(self, line: Line) -> None:
        try:
            await self._memory.journal.note([line])
        except Exception as error:  # the store may be away: a trace is worth no failure
            log.warning("a trace was lost", kind=type(error).__name__)


def to_line(account: Account, ts: Micros, route: str) -> Line:
    """A recall as the journal keeps it."""
    found, scope = account.result, account.scope
    body = {
        "question": found.question[:_MAX_TEXT],
        "route": route,
        "way": account.way,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "by": found.by,
        "seconds": round(account.seconds, 6),
        "completed": found.completed,
        "confidence": found.confidence,
        "reason": found.reason[:_MAX_TEXT],
        # What rules write retells memories, which the keys name; a model's words are its own.
        "summary": found.search_summary[:_MAX_TEXT] if found.by == "llm" else None,
        "follow_up": found.follow_up_question if found.needs_more_info else None,
        "problems": list(found.problems),
        "windows": list(found.limits.windows),
        "evidence": [[it.memory_key, round(it.score, 4)] for it in found.evidence],
        "shown": None if account.shown is None else list(account.shown),
        "steps": [_step(step, found) for step in found.trace],
    }
    return Line(TRACE, f"{ts}-{token_hex(4)}", ts, body, scope.user_id or "")


def _step(step: Step, found: Recalled) -> dict[str, Any]:
    arguments = dict(step.arguments)
    query, asked = arguments.get("query"), found.question
    if found.by == "rules" and query != asked and str(query).startswith(asked):
        arguments["query"] = f"{asked} …"  # what follows are the words of memories
    if step.tool == "handoff":
        for name in ("reason", "search_summary", "relevant_memory_keys"):
            arguments.pop(name, None)  # they stand in the trace once
    return {
        "tool": step.tool,
        "round": step.iteration,
        "arguments": arguments,
        "success": step.success,
        "outcome": step.outcome[:_MAX_TEXT],
        "keys": list(step.keys),
        "started": step.started,
        "seconds": step.seconds,
        "cached": step.cached,
    }


def _route() -> str:
    """The route of the request that is being answered."""
    route = (request_in_progress.get() or {}).get("route")
    return str(route.path) if route else ""
