"""The meter: what a server does, counted in memory, written to the journal, and read as points."""

import asyncio
import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kemem.assemble import system_clock
from kemem.chat.counts import LeakCounts
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.ports import Reply
from kemem.recall import Caches
from kemem.records import Line, Micros

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_BY_MINUTE, _BY_HOUR, _BY_DAY = "metric", "metric.hour", "metric.day"  # kinds of lines
_MINUTES_KEPT = 48 * HOUR
_HOURS_KEPT = 90 * DAY
_DAYS_KEPT = 1_830  # lines: five years
_WAITING = 120  # minutes that a store may be away before the oldest are let go
_ALL = 1_000_000  # lines: more than are ever kept
_MOST_POINTS = 5_000

_SHORTEST = 0.0001  # seconds: the upper end of the first bucket
_PER_OCTAVE = 4  # buckets between a time and its double, so that a percentile is off by 9 % at most
_LONGEST = 88  # the last bucket: beyond seven minutes


@dataclass(slots=True)
class Tally:
    """How often something was done, how often it failed, and how long it took."""

    n: int = 0
    errors: int = 0
    seconds: float = 0.0  # of all together
    buckets: Counter[int] = field(default_factory=Counter)

    @property
    def mean(self) -> float | None:
        """Seconds on average; None where nothing was done."""
        return self.seconds / self.n if self.n else None

    def percentile(self, share: float) -> float | None:
        """The seconds within which a share was done, by its bucket; None where nothing was done."""
        wanted, seen = share * self.n, 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return float(_SHORTEST * 2 ** ((bucket - 0.5) / _PER_OCTAVE))
        return None

    def add(self, seconds: float, failed: bool) -> None:
        """Count one more."""
        self.n += 1
        self.errors += failed
        self.seconds += seconds
        self.buckets[_bucket(seconds)] += 1

    def merge(self, other: "Tally") -> None:
        """Count what another has counted."""
        self.n += other.n
        self.errors += other.errors
        self.seconds += other.seconds
        self.buckets.update(other.buckets)


@dataclass(slots=True)
class Point:
    """What was done from one time on, for a minute or as long as a step is."""

    ts: Micros
    operations: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    counts: Counter[str] = field(default_factory=Counter)  # llm.prompt_tokens, cache.search.hits
    gauges: dict[str, int] = field(default_factory=dict)  # messages, notes, jobs.failed; the last

    def merge(self, later: "Point") -> None:
        """Add what came later."""
        for name, tally in later.operations.items():
            self.operations[name].merge(tally)
        self.counts.update(later.counts)
        self.gauges.update(later.gauges)

    def to_line(self, kind: str, id_: str) -> Line:
        """The point as it is kept."""
        operations = {
            name: [it.n, it.errors, round(it.seconds, 6), [*it.buckets.items()]]
            for name, it in self.operations.items()
        }
        body = {"operations": operations, "counts": dict(self.counts), "gauges": dict(self.gauges)}
        return Line(kind, id_, self.ts, body)


def _to_point(line: Line) -> Point:
    point = Point(line.ts, counts=Counter(line.body["counts"]), gauges=dict(line.body["gauges"]))
    for name, (n, errors, seconds, buckets) in line.body["operations"].items():
        point.operations[name] = Tally(n, errors, seconds, Counter(dict(buckets)))
    return point


def _bucket(seconds: float) -> int:
    """The number of the bucket that a time falls into; each is a fifth longer than the last."""
    if seconds <= _SHORTEST:
        return 0
    return min(_LONGEST, math.ceil(math.log2(seconds / _SHORTEST) * _PER_OCTAVE))


class Meter:
    """Counts of one process; what others have noted in the same store is read with its own."""

    def __init__(
        self, clock: Callable[[], Micros] = system_clock, leaks: LeakCounts | None = None
    ) -> None:
        self._clock = clock
        self._leaks = leaks
        self._process = secrets.token_hex(4)
        self._minutes: dict[Micros, Point] = {}  # not written yet, or not for the last time
        self._unwritten: set[Micros] = set()
        self._seen: Counter[str] = Counter()  # of what counts by itself, since the start
        self._folded: int | None = None  # the hour in which old lines were last folded
        self._turn = asyncio.Lock()

    def count(self, operation: str, seconds: float, failed: bool = False) -> None:
        """Count one operation that has ended."""
        self._now().operations[operation].add(seconds, failed)

    def count_reply(self, seconds: float, is_of_use: bool, reply: Reply | None) -> None:
        """Count a reply of the LLM as the operation "llm", with its tokens."""
        self.count("llm", seconds, failed=not is_of_use)
        if reply is not None:
            self.add("llm.prompt_tokens", reply.prompt_tokens)
            self.add("llm.completion_tokens", reply.completion_tokens)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a sum of this minute."""
        self._now().counts[name] += amount

    async def flush(self, memory: AsyncMemory) -> None:
        """Write what was counted; what a store that is away does not take waits for next time."""
        async with self._turn:
            now = self._clock()
            minute = now // MINUTE * MINUTE
            if minute not in self._minutes or not self._minutes[minute].gauges:
                await self._look(memory)
            self._catch_up(memory.caches)
            await self._write(memory, minute)
            if self._folded != now // HOUR:
                await _fold(memory, now)
                self._folded = now // HOUR

    async def series(
        self, memory: AsyncMemory, since: Micros, until: Micros, step: Micros = MINUTE
    ) -> list[Point]:
        """A point for each step from `since` to before `until`, also where nothing was done.

        Of what is older than two days there are hours, older than ninety days, days: where steps
        are finer, all of an hour or day is in the step in which it begins.
        """
        if step < MINUTE or not 0 <= until - since <= step * _MOST_POINTS:
            raise InvalidArgument(
                f"a series has up to {_MOST_POINTS} steps of a minute or more, not steps of "
                f"{step!r} µs from {since!r} to {until!r}",
                field="step",
            )
        await self.flush(memory)
        first = since // step * step
        points = {at: Point(at) for at in range(first, until, step)}
        lines = await _read(memory, first, until)
        for line in sorted(lines, key=lambda line: line.ts):
            points[line.ts // step * step].merge(_to_point(line))
        return list(points.values())

    async def _write(self, memory: AsyncMemory, minute: Micros) -> None:
        """Note the minutes that have changed, and let go of those that are over."""
        due = [self._minutes[at] for at in sorted(self._unwritten)]
        self._unwritten.clear()  # what is counted while the store writes is due again
        if due:
            lines = [it.to_line(_BY_MINUTE, f"m/{it.ts // MINUTE}/{self._process}") for it in due]
            try:
                await memory.journal.note(lines)
            except BaseException:
                self._unwritten.update(it.ts for it in due)
                raise
        for at in self._minutes.keys() - self._unwritten:
            if at < minute:
                del self._minutes[at]

    def _now(self) -> Point:
        """The point of this minute."""
        minute = self._clock() // MINUTE * MINUTE
        self._unwritten.add(minute)
        point = self._minutes.get(minute)
        if point is None:
            point = self._minutes[minute] = Point(minute)
            for old in sorted(self._minutes)[:-_WAITING]:
                del self._minutes[old]
                self._unwritten.discard(old)
        return point

    async def _look(self, memory: AsyncMemory) -> None:
        """Note how much there is."""
        health = await memory.health()
        self._now().gauges = {
            "messages": health.messages,
            "notes": health.notes,
            "vectors": health.vectors,
            "jobs.pending": health.pending_jobs,
            "jobs.failed": health.failed_jobs,
        }

    def _catch_up(self, caches: Caches) -> None:
        """Add what caches and guards have counted since the last time."""
        seen = Counter({"leaks": self._leaks.total if self._leaks else 0})
        for cache in caches:
            seen[f"cache.{cache.name}.hits"] = cache.hits
            seen[f"cache.{cache.name}.misses"] = cache.misses
        for name, more in (seen - self._seen).items():
            self.add(name, more)
        self._seen = seen


async def _fold(memory: AsyncMemory, now: Micros) -> None:
    """Put hours in the place of minutes that are two days old, and days in that of old hours.

    Before a border there are all the lines of an hour or none, so that whoever folds it, and
    however often, writes the same; a fold that was interrupted is done again.
    """
    journal = memory.journal
    for fine, coarse, letter, step, kept in (
        (_BY_MINUTE, _BY_HOUR, "h", HOUR, _MINUTES_KEPT),
        (_BY_HOUR, _BY_DAY, "d", DAY, _HOURS_KEPT),
    ):
        border = (now - kept) // step * step
        old = await journal.lines(fine, until=border, limit=_ALL)
        points = _merged(map(_to_point, old), step)
        await journal.note([it.to_line(coarse, f"{letter}/{it.ts // step}") for it in points])
        await journal.trim(fine, before=border)
    await journal.trim(_BY_DAY, keep=_DAYS_KEPT)


def _merged(points: Iterable[Point], step: Micros) -> list[Point]:
    """Points of each step as one, oldest first."""
    by_step: dict[Micros, Point] = {}
    for point in sorted(points, key=lambda point: point.ts):
        at = point.ts // step * step
        by_step.setdefault(at, Point(at)).merge(point)
    return list(by_step.values())


async def _read(memory: AsyncMemory, since: Micros, until: Micros) -> list[Line]:
    """The lines of a time, each moment once.

    The finest are read first: what is folded meanwhile is seen twice rather than not at all.
    """
    found: list[Line] = []
    for kind, step in ((_BY_MINUTE, MINUTE), (_BY_HOUR, HOUR), (_BY_DAY, DAY)):
        coarser = await memory.journal.lines(kind, since=since, until=until, limit=_ALL)
        covered = {line.ts for line in coarser}
        found = [line for line in found if line.ts // step * step not in covered] + coarser
    return found
