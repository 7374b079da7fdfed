"""Points of the metrics as figures and charts."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kemem.records import Micros
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE, Point, Timing

ADDS = frozenset(["add_memories", "store_messages"])
SEARCHES = frozenset(
    ["search_memories", "lexical_search", "semantic_search", "hybrid_search", "recall"]
)
LLM = "llm"
_NOT_ASKED = frozenset(["none", "healthz", "readyz", "metrics", "root", LLM])
_LINES = 5  # of a chart that compares operations

Chart = dict[str, Any]  # what app.js draws


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time up to now, and the steps in which it is shown."""

    name: str
    length: Micros
    step: Micros


SPANS = {
    span.name: span
    for span in (
        Span("1h", HOUR, MINUTE),
        Span("24h", DAY, 10 * MINUTE),
        Span("30d", 30 * DAY, 4 * HOUR),
    )
}


def total(points: Iterable[Point]) -> Point:
    """All points as one."""
    whole = Point(0)
    for point in points:
        whole.merge(point)
    return whole


def asked_for(point: Point) -> dict[str, Timing]:
    """The operations that applications asked for, most frequent first."""
    wanted = {
        name: tally
        for name, tally in point.operations.items()
        if name not in _NOT_ASKED and not name.startswith("dashboard.")
    }
    return dict(sorted(wanted.items(), key=lambda pair: (-pair[1].n, pair[0])))


def together(point: Point, names: Iterable[str]) -> Timing:
    """Some operations as one."""
    whole = Timing()
    for name in names:
        if name in point.operations:
            whole.merge(point.operations[name])
    return whole


def hit_rates(counts: Counter[str]) -> dict[str, float | None]:
    """The share of lookups that each cache answered; None where there were none."""
    names = sorted({key.split(".")[1] for key in counts if key.startswith("cache.")})
    rates: dict[str, float | None] = {}
    for name in names:
        hits, misses = counts[f"cache.{name}.hits"], counts[f"cache.{name}.misses"]
        rates[name] = hits / (hits + misses) if hits + misses else None
    return rates


def rates(points: Sequence[Point], span: Span, now: Micros, labels: Sequence[str]) -> Chart:
    """Adds, searches and failures of each minute."""

    def minutes(point: Point) -> float:
        """How much of the step is over."""
        return max(MINUTE, min(span.step, now - point.ts)) / MINUTE

    def failed(point: Point) -> int:
        return sum(tally.errors for tally in asked_for(point).values())

    return chart(
        points,
        {
            labels[0]: lambda point: together(point, ADDS).n / minutes(point),
            labels[1]: lambda point: together(point, SEARCHES).n / minutes(point),
            labels[2]: lambda point: failed(point) / minutes(point),
        },
    )


def latencies(points: Sequence[Point], names: Iterable[str], share: float = 0.95) -> Chart:
    """The milliseconds within which a share of each operation was done."""

    def within(name: str) -> Callable[[Point], float | None]:
        def milliseconds(point: Point) -> float | None:
            found = together(point, [name]).percentile(share)
            return None if found is None else round(found * 1000, 3)

        return milliseconds

    lines = {name: within(name) for name in list(names)[:_LINES]}
    return chart(points, lines, unit="ms")


def tokens(points: Sequence[Point], labels: Sequence[str]) -> Chart:
    """Tokens that went to the model, and those that came from it."""
    return chart(
        points,
        {
            labels[0]: lambda point: point.counts["llm.prompt_tokens"],
            labels[1]: lambda point: point.counts["llm.completion_tokens"],
        },
    )


def growth(points: Sequence[Point], labels: Sequence[str]) -> Chart:
    """How many messages and notes there were at the end of each day that was watched."""
    seen = [point for point in points if point.gauges]
    return chart(
        seen,
        {
            labels[0]: lambda point: point.gauges.get("messages"),
            labels[1]: lambda point: point.gauges.get("notes"),
        },
    )


def chart(
    points: Sequence[Point],
    lines: dict[str, Callable[[Point], float | None]],
    unit: str = "",
    kind: str = "line",
) -> Chart:
    """What app.js draws: a line for each label, its values by time."""
    return {
        "x": [point.ts // 1_000_000 for point in points],
        "series": [
            {"label": label, "values": [value(point) for point in points]}
            for label, value in lines.items()
        ],
        "unit": unit,
        "kind": kind,
    }
