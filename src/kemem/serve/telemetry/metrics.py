"""Metrics: one set of counters, which /metrics exposes and the journal keeps by the minute."""

import asyncio
import secrets
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Generic, TypeVar

import structlog

from kemem.chat import LeakCounts
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.ports import Reply
from kemem.records import Line, Micros
from kemem.records.times import DAY as DAY
from kemem.records.times import HOUR as HOUR
from kemem.records.times import MINUTE as MINUTE
from kemem.runtime import system_clock

CHEAP = 1.0  # seconds: a value that takes no longer is computed each time

_KINDS = {"metric": MINUTE, "metric.hour": HOUR, "metric.day": DAY}  # of lines: what each covers
_DAYS_KEPT = 1_830  # lines: five years
_BACKLOG = 120  # minutes that wait for a store that is away; older ones are dropped
_ALL_LINES = 1_000_000  # more than are ever kept
_MAX_POINTS = 5_000
_SCRAPE_SECONDS = 5.0  # that a scrape waits for a count of all rows
_REST = 20  # times its own duration an expensive value is kept: it costs 5 % of the time at most

_METHODS = frozenset(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])
# Each bound is about a fifth above the last, so that a percentile is off by a tenth at most; those
# that /metrics exposes are among them, so that its buckets are exact sums of these.
_STEPS = (1.2, 1.45, 1.75, 2.1, 2.5, 3.0, 3.55, 4.2, 5.0, 6.0, 7.1, 8.4, 10.0)
_BOUNDS = (1e-4, *(float(f"{step}e{power}") for power in range(-4, 3) for step in _STEPS))

# Operation, route, method and status, the last three empty for what is no request. They come from
# the routes, never from what callers send.
Labels = tuple[str, str, str, int]
T = TypeVar("T")

log = structlog.get_logger("kemem")


@dataclass(slots=True)
class Timing:
    """How often an operation was done, how often it failed, and a histogram of its seconds."""

    n: int = 0
    errors: int = 0
    seconds: float = 0.0  # of all together
    buckets: Counter[int] = field(default_factory=Counter)  # by the index of their bound

    @property
    def mean(self) -> float | None:
        """Seconds on average; None where nothing was done."""
        return self.seconds / self.n if self.n else None

    def percentile(self, share: float) -> float | None:
        """The seconds within which a share was done, by its bucket; None where nothing was done."""
        count = 0
        for bucket in sorted(self.buckets):
            count += self.buckets[bucket]
            if count >= share * self.n:
                last = len(_BOUNDS) - 1
                return sqrt(_BOUNDS[max(0, bucket - 1)] * _BOUNDS[min(last, bucket)])
        return None

    def add(self, seconds: float, failed: bool) -> None:
        """Count one more."""
        self.merge(Timing(1, failed, seconds, Counter([bisect_left(_BOUNDS, seconds)])))

    def merge(self, other: "Timing") -> None:
        """Add the counts of another."""
        self.n += other.n
        self.errors += other.errors
        self.seconds += other.seconds
        self.buckets.update(other.buckets)

    def within(self, seconds: float) -> int:
        """How many took no longer than one of the bounds."""
        return sum(n for at, n in self.buckets.items() if at <= bisect_left(_BOUNDS, seconds))


@dataclass(slots=True)
class Point:
    """The counts from one time on, for a minute or as long as a step is."""

    ts: Micros
    operations: defaultdict[str, Timing] = field(default_factory=lambda: defaultdict(Timing))
    counts: Counter[str] = field(default_factory=Counter)  # llm.prompt_tokens, cache.search.hits
    gauges: dict[str, int] = field(default_factory=dict)  # messages, notes, jobs.failed; the last

    def merge(self, later: "Point") -> None:
        """Add a later point."""
        for name, timing in later.operations.items():
            self.operations[name].merge(timing)
        self.counts.update(later.counts)
        self.gauges.update(later.gauges)

    def to_line(self, kind: str, id_: str) -> Line:
        """The point as a line of the journal."""
        operations = {
            name: [it.n, it.errors, round(it.seconds, 6), [*it.buckets.items()]]
            for name, it in self.operations.items()
        }
        body = {"operations": operations, "counts": dict(self.counts), "gauges": dict(self.gauges)}
        return Line(kind, id_, self.ts, body)


def _merge_lines(lines: Iterable[Line], step: Micros) -> dict[Micros, Point]:
    """The lines of each step as one point, oldest first."""
    points: dict[Micros, Point] = {}
    for line in sorted(lines, key=lambda line: line.ts):
        point = Point(line.ts, counts=line.body["counts"], gauges=line.body["gauges"])
        for name, (n, errors, seconds, buckets) in line.body["operations"].items():
            point.operations[name] = Timing(n, errors, seconds, Counter(dict(buckets)))
        at = line.ts // step * step
        points.setdefault(at, Point(at)).merge(point)
    return points


class StaleWhileRevalidate(Generic[T]):
    """A value that is served stale while a new one is computed in the background.

    An expensive value is computed only as often as 5 % of the time allows.
    """

    def __init__(
        self,
        compute: Callable[[], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        patience: float = 0.4,
    ) -> None:
        self._compute = compute
        self._clock = clock
        self._patience = patience  # seconds that a reader waits for a new value
        self._next = float("-inf")  # when a new value may be computed
        self._running: asyncio.Task[None] | None = None
        self.last: T | None = None

    async def get(self) -> T | None:
        """The newest value; None while the first is being computed, or where that failed."""
        if self._running is None and self._clock() >= self._next:
            self._running = asyncio.create_task(self._revalidate())
        if self._running is not None:
            await asyncio.wait([self._running], timeout=self._patience)
        return self.last

    async def _revalidate(self) -> None:
        start = self._clock()
        try:
            self.last = await self._compute()
        except Exception as error:  # the store may be away for a while: the last value is shown
            log.warning("figures could not be computed", kind=type(error).__name__)
        finally:
            seconds = self._clock() - start
            self._next = self._clock() + (_REST * seconds if seconds > CHEAP else 0)
            self._running = None


class Metrics:
    """The counters of one process; the journal adds up all processes that share the store."""

    def __init__(
        self,
        memory: AsyncMemory,
        leaks: LeakCounts | None = None,
        clock: Callable[[], Micros] = system_clock,
    ) -> None:
        self.memory = memory
        self.leaks = leaks
        self.health = StaleWhileRevalidate(memory.health, patience=_SCRAPE_SECONDS)
        self.llm_failures = 0  # since the last reply that was of use
        self._clock = clock
        self._recent: defaultdict[Labels, Timing] = defaultdict(Timing)  # in no minute yet
        self._total: defaultdict[Labels, Timing] = defaultdict(Timing)  # since the start
        self._tokens: Counter[str] = Counter()  # since the start
        self._counted: Counter[str] = Counter()  # what the minutes have of tokens, caches, leaks
        self._minutes: dict[Micros, Point] = {}  # not written yet, or not for the last time
        self._written: list[Line] = []
        self._folded: int | None = None  # the hour in which old lines were last folded
        self._process = secrets.token_hex(4)
        self._lock = asyncio.Lock()

    def count_request(
        self, route: str, operation: str, method: str, status: int, seconds: float
    ) -> None:
        """Count one answered request."""
        labels = (operation, route, method if method in _METHODS else "other", status)
        self._recent[labels].add(seconds, failed=status >= 500)

    def count(self, operation: str, seconds: float, failed: bool = False) -> None:
        """Count one operation that was not a request."""
        self._recent[operation, "", "", 0].add(seconds, failed)

    def count_reply(self, seconds: float, is_of_use: bool, reply: Reply | None) -> None:
        """Count a reply of the LLM as the operation "llm", with its tokens, also by model."""
        self.count("llm", seconds, failed=not is_of_use)
        self.llm_failures = 0 if is_of_use else self.llm_failures + 1
        if reply is not None:
            model = f"model.{self.memory.settings.llm_model}"
            self._tokens[f"{model}.replies"] += 1
            for name in ("prompt_tokens", "completion_tokens"):
                self._tokens[f"llm.{name}"] += getattr(reply, name)
                self._tokens[f"{model}.{name}"] += getattr(reply, name)

    def total(self) -> Mapping[Labels, Timing]:
        """All counts since the start."""
        self._advance()
        return self._total

    async def flush(self) -> None:
        """Write the counts; while the store is away they wait for the next time."""
        async with self._lock:
            point = self._advance()
            if not point.gauges and (health := await self.health.get()):
                point.gauges = {
                    "messages": health.messages,
                    "notes": health.notes,
                    "vectors": health.vectors,
                    "jobs.pending": health.pending_jobs,
                    "jobs.failed": health.failed_jobs,
                }
            lines = [
                it.to_line("metric", f"m/{at // MINUTE}/{self._process}")
                for at, it in self._minutes.items()
                if it.operations or it.counts or it.gauges
            ]
            if lines != self._written:
                await self.memory.journal.note(lines)
                self._written = lines
            for at in [at for at in self._minutes if at < point.ts]:
                del self._minutes[at]
            if self._folded != point.ts // HOUR:
                await self._fold(point.ts)
                self._folded = point.ts // HOUR

    async def series(self, since: Micros, until: Micros, step: Micros = MINUTE) -> list[Point]:
        """A point for each step from `since` to before `until`, also where nothing was done.

        Of what is older than two days there are hours, older than ninety days, days: where steps
        are finer, all of an hour or day is in the step in which it begins.
        """
        if step < MINUTE or not 0 <= until - since <= step * _MAX_POINTS:
            raise InvalidArgument(
                f"a series has up to {_MAX_POINTS} steps of a minute or more, not steps of "
                f"{step!r} µs from {since!r} to {until!r}",
                field="step",
            )
        await self.flush()
        first = since // step * step
        lines: list[Line] = []
        # The finest are read first: what is folded meanwhile is seen twice rather than not at all.
        read = partial(self.memory.journal.lines, since=first, until=until, limit=_ALL_LINES)
        for kind, size in _KINDS.items():
            coarser = await read(kind)
            covered = {line.ts for line in coarser}
            lines = [line for line in lines if line.ts // size * size not in covered] + coarser
        points = _merge_lines(lines, step)
        return [points.get(at, Point(at)) for at in range(first, until, step)]

    def _advance(self) -> Point:
        """Put what was counted since the last time into the point of this minute."""
        minute = self._clock() // MINUTE * MINUTE
        point = self._minutes.setdefault(minute, Point(minute))
        for labels, timing in self._recent.items():
            self._total[labels].merge(timing)
            point.operations[labels[0]].merge(timing)
        self._recent.clear()
        counted = self._tokens + Counter({"leaks": self.leaks.total if self.leaks else 0})
        for cache in self.memory.caches:
            counted[f"cache.{cache.name}.hits"] = cache.hits
            counted[f"cache.{cache.name}.misses"] = cache.misses
        point.counts.update(counted - self._counted)
        self._counted = counted
        for old in sorted(self._minutes)[:-_BACKLOG]:
            del self._minutes[old]
        return point

    async def _fold(self, now: Micros) -> None:
        """Replace minutes that are two days old by hours, and old hours by days.

        Idempotent: before the border there are all the lines of an hour or none, so that every
        process writes the same, and a fold that was interrupted is done again.
        """
        journal = self.memory.journal
        for fine, coarse, letter, step, kept in (
            ("metric", "metric.hour", "h", HOUR, 2 * DAY),
            ("metric.hour", "metric.day", "d", DAY, 90 * DAY),
        ):
            border = (now - kept) // step * step
            lines = await journal.lines(fine, until=border, limit=_ALL_LINES)
            points = _merge_lines(lines, step).values()
            await journal.note([it.to_line(coarse, f"{letter}/{it.ts // step}") for it in points])
            await journal.trim(fine, before=border)
        await journal.trim("metric.day", keep=_DAYS_KEPT)
