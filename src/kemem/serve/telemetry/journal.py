"""What a server writes to the journal: traces of recalls, runs of benchmarks, votes on hits."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from itertools import groupby
from secrets import token_hex
from typing import Annotated, Any, Literal, NamedTuple

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kemem.errors import InvalidArgument, StoreMoved, plain_reason
from kemem.memory import AsyncMemory
from kemem.recall import Account, Recalled, Step
from kemem.records import Line, Micros
from kemem.records.privacy import ContentPolicy
from kemem.records.times import to_micros
from kemem.runtime import system_clock
from kemem.serve.telemetry.metrics import DAY, HOUR
from kemem.serve.telemetry.seldom import seldom
from kemem.text.ids import MAX_ID
from kemem.text.personal import masked

TRACE, MAX_TRACES = "trace", 2_000  # the kind of line, and how many are kept
RUN, MAX_RUNS = "run", 10_000
VOTE, MAX_VOTES = "vote", 20_000
MAX_TEXT = 2_000  # characters
_BACKLOG = 200  # traces that a slow store may be behind before further ones are dropped

Name = Annotated[str, Field(min_length=1, max_length=64)]
Figure = Annotated[float, Field(allow_inf_nan=False)]

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
        route = (request_in_progress.get() or {}).get("route")
        place = str(route.path) if route else self._route
        line = to_line(account, self._last, place, self._memory.settings.content_policy)
        task = asyncio.create_task(self._write(line))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Wait for what is being written; once an hour erase what is old or too much."""
        await asyncio.gather(*self._writing)
        now = self._clock()
        if self._trimmed is None or now - self._trimmed >= HOUR:
            keep = MAX_TRACES if self._days else 0
            await self._memory.journal.trim(TRACE, before=now - self._days * DAY, keep=keep)
            self._trimmed = now

    async def _write(self, line: Line) -> None:
        try:
            await self._memory.journal.note([line])
        except StoreMoved as error:
            seldom.warn_moved(error)
        except Exception as error:  # the store may be away: a trace is worth no failure
            log.warning("a trace was lost", kind=type(error).__name__)


def to_line(account: Account, ts: Micros, route: str, policy: ContentPolicy) -> Line:
    """A recall as a line of the journal; what the policy keeps out of the store is masked."""
    result, scope = account.result, account.scope
    words = {
        "question": result.question[:MAX_TEXT],
        "reason": result.reason[:MAX_TEXT],
        # What rules write retells memories, which the keys name; a model's words are its own.
        "summary": result.search_summary[:MAX_TEXT] if result.by == "llm" else None,
        "follow_up": result.follow_up_question if result.needs_more_info else None,
        "steps": [_step(step, result) for step in result.trace],
    }
    body = {
        **masked(words, policy),
        "route": route,
        "way": account.way,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "by": result.by,
        "seconds": round(account.seconds, 6),
        "completed": result.completed,
        "confidence": result.confidence,
        "problems": list(result.problems),
        "windows": list(result.limits.windows),
        "evidence": [[it.memory_key, round(it.score, 4)] for it in result.evidence],
        "shown": None if account.shown is None else list(account.shown),
    }
    return Line(TRACE, f"{ts}-{token_hex(4)}", ts, body, scope.user_id or "")


def _step(step: Step, result: Recalled) -> dict[str, Any]:
    arguments = dict(step.arguments)
    query, question = arguments.get("query"), result.question
    if result.by == "rules" and query != question and str(query).startswith(question):
        arguments["query"] = f"{question} …"  # what follows are the words of memories
    if step.tool == "handoff":
        for name in ("reason", "search_summary", "relevant_memory_keys"):
            arguments.pop(name, None)  # they stand in the trace once
    names = ("tool", "success", "started", "seconds", "cached")
    return {
        **{name: getattr(step, name) for name in names},
        "round": step.iteration,
        "arguments": arguments,
        "outcome": step.outcome[:MAX_TEXT],
        "keys": list(step.keys),
    }


class Run(BaseModel):
    """What one run of a benchmark measured on a set of questions, or on one category of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: str  # RFC 3339
    name: Name  # of what was measured: "search", "recall"
    set: Name
    language: Literal["zh", "en"]
    category: Name = "all"
    n: int = Field(ge=1)  # questions
    metrics: dict[Name, Figure] = Field(min_length=1, max_length=20)  # {"recall@10": 0.81}
    version: str = Field("", max_length=64)
    settings: dict[str, Any] = Field(default_factory=dict, max_length=20)

    @property
    def ts(self) -> Micros:
        """When it was made."""
        return to_micros(self.at, "at")


class Vote(BaseModel):
    """What somebody thinks of one hit of a search."""

    model_config = ConfigDict(frozen=True)

    query: str = Field(min_length=1, max_length=MAX_TEXT)
    memory_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    vote: Literal["up", "down"]
    user_id: str = Field("", max_length=MAX_ID)
    rank: int = Field(ge=1, le=1_000)
    score: float = Field(0.0, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict, max_length=20)

    @property
    def mode(self) -> str:
        """The mode of the search."""
        return str(self.settings.get("mode", "hybrid"))

    @property
    def settings_text(self) -> str:
        """The settings of the search as one line; its limit changes no rank and is left out."""
        rest = sorted((name, it) for name, it in self.settings.items() if name != "mode")
        return ", ".join([self.mode, *(f"{name}={it}" for name, it in rest if name != "limit")])


_Runs = TypeAdapter(list[Run])


def parse_runs(text: str | bytes) -> list[Run]:
    """The runs of a file: a JSON list of them."""
    try:
        runs = _Runs.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidArgument(f"{field}{plain_reason(first)}") from None
    for run in runs:
        to_micros(run.at, "at")
    return runs


async def save_runs(memory: AsyncMemory, runs: Sequence[Run]) -> None:
    """Write runs to the journal; idempotent, as the same run again is the same line."""
    lines = [Line(RUN, _digest(run.model_dump_json()), run.ts, run.model_dump()) for run in runs]
    await memory.journal.note(lines)
    await memory.journal.trim(RUN, keep=MAX_RUNS)


async def read_runs(memory: AsyncMemory) -> list[Run]:
    """All runs, newest first."""
    lines = await memory.journal.lines(RUN, limit=MAX_RUNS)
    return [Run.model_validate(dict(line.body)) for line in lines]


def metrics_of(runs: Iterable[Run]) -> list[str]:
    """The names of all metrics, the most frequent first."""
    counts = Counter(sorted(name for run in runs for name in run.metrics))
    return [name for name, _ in counts.most_common()]


def latest(runs: Iterable[Run], metric: str) -> list[tuple[Run, float | None]]:
    """Of `runs`, which are newest first, the newest of each set and category, and its difference
    to the one before, if any.
    """

    def subject(run: Run) -> tuple[str | bool, ...]:
        return run.language, run.set, run.name, run.category != "all", run.category

    rows: list[tuple[Run, float | None]] = []
    measured = sorted((run for run in runs if metric in run.metrics), key=subject)
    for _, (newest, *older) in groupby(measured, subject):
        change = newest.metrics[metric] - older[0].metrics[metric] if older else None
        rows.append((newest, change))
    return rows


async def save_vote(memory: AsyncMemory, vote: Vote, now: Micros) -> None:
    """Write a vote to the journal; another one on the same hit replaces it."""
    same = vote.model_dump_json(include={"query", "memory_id", "user_id", "settings"})
    await memory.journal.note([Line(VOTE, _digest(same), now, vote.model_dump(), vote.user_id)])
    await memory.journal.trim(VOTE, keep=MAX_VOTES)


async def read_votes(memory: AsyncMemory) -> list[tuple[Micros, Vote]]:
    """All votes with their times, newest first."""
    lines = await memory.journal.lines(VOTE, limit=MAX_VOTES)
    return [(line.ts, Vote.model_validate(dict(line.body))) for line in lines]


class Opinion(NamedTuple):
    """How many votes there are of each kind on a subject: a day, a rank, a query."""

    subject: Any
    up: int = 0
    down: int = 0

    @property
    def n(self) -> int:
        return self.up + self.down

    @property
    def share(self) -> float:
        """Of those that were up."""
        return self.up / self.n if self.n else 0.0


def opinions(
    votes: Iterable[tuple[Micros, Vote]], subject: Callable[[Micros, Vote], Hashable]
) -> list[Opinion]:
    """The votes counted by their subjects, the newest first."""
    counts: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
    for ts, vote in votes:
        counts[subject(ts, vote)][vote.vote] += 1
    return [Opinion(key, count["up"], count["down"]) for key, count in counts.items()]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
