"""Overview: how much there is, and how the server does."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, Micros
from kemem.runtime import system_clock
from kemem.serve.dashboard.page import DashboardRoute, page, translator
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE, Metrics, Point, Timing

SPANS = {"1h": (HOUR, MINUTE), "24h": (DAY, 10 * MINUTE), "30d": (30 * DAY, 4 * HOUR)}  # and steps
ADDS = ("add_memories", "store_messages")
SEARCHES = ("search_memories", "lexical_search", "semantic_search", "hybrid_search", "recall")
_NOT_ASKED = frozenset(["none", "healthz", "readyz", "metrics", "root", "llm"])
_DAYS = 30  # of the chart of growth
_LINES = 5  # of the chart of latencies

Chart = dict[str, Any]  # what app.js draws

router = APIRouter(route_class=DashboardRoute)


async def survey(memory: AsyncMemory, metrics: Metrics) -> dict[str, Any]:
    """What takes a while to find out: counts of everything, and how it grew."""
    now = system_clock()
    days = await metrics.series(now - _DAYS * DAY, now, DAY)
    return {"health": await memory.health(), "census": await memory.census(), "days": days}


@router.get("/dashboard")
async def overview(request: Request, span: str = "1h") -> Response:
    """The first page."""
    return page(request, "overview.html", **await _figures(request, span))


@router.get("/dashboard/figures")
async def overview_figures(request: Request, span: str = "1h") -> Response:
    """What changes on the first page: htmx polls it."""
    return page(request, "_figures.html", **await _figures(request, span))


async def _figures(request: Request, span: str) -> dict[str, Any]:
    if span not in SPANS:
        raise InvalidArgument(f"span must be one of {', '.join(SPANS)}, not {span!r:.80}")
    length, step = SPANS[span]
    now, state = system_clock(), request.app.state
    points = await state.metrics.series(now - length, now, step)
    total = merged(points)
    stored = await state.survey.get()
    operations = asked_for(total)
    t = translator(request)
    tokens = {
        t("Prompt", "输入"): [point.counts["llm.prompt_tokens"] for point in points],
        t("Completion", "输出"): [point.counts["llm.completion_tokens"] for point in points],
    }
    counted = t("Adds", "写入"), t("Searches", "检索"), t("Failures", "失败")
    grown = t("Messages", "消息"), t("Notes", "记忆")
    return {
        "span": span,
        "survey": stored,
        "kinds": NOTE_KINDS,
        "operations": operations,
        "failed": sum(timing.errors for timing in operations.values()),
        "requests": sum(timing.n for timing in operations.values()),
        "llm": total.operations["llm"],
        "counts": total.counts,
        "hit_rates": hit_rates(total.counts),
        "leaks": list(state.leaks),
        "charts": {
            "rates": rates(points, step, now, counted),
            "latencies": latencies(points, operations),
            "tokens": chart(points, tokens),
            "growth": growth(stored["days"] if stored else [], grown),
        },
    }


def merged(points: Iterable[Point]) -> Point:
    """All points as one."""
    total = Point(0)
    for point in points:
        total.merge(point)
    return total


def asked_for(point: Point) -> dict[str, Timing]:
    """The operations that applications asked for, most frequent first."""
    names = (it for it in point.operations if it not in _NOT_ASKED)
    asked = {it: point.operations[it] for it in names if not it.startswith("dashboard.")}
    return dict(sorted(asked.items(), key=lambda pair: (-pair[1].n, pair[0])))


def hit_rates(counts: Counter[str]) -> dict[str, float | None]:
    """The share of lookups that each cache answered; None where there were none."""
    rates: dict[str, float | None] = {}
    for name in sorted({key.split(".")[1] for key in counts if key.startswith("cache.")}):
        hits, misses = counts[f"cache.{name}.hits"], counts[f"cache.{name}.misses"]
        rates[name] = hits / (hits + misses) if hits + misses else None
    return rates


def rates(points: Sequence[Point], step: Micros, now: Micros, labels: Sequence[str]) -> Chart:
    """Adds, searches and failures of each minute."""
    lines: dict[str, list[float]] = {label: [] for label in labels}
    for point in points:
        timings = point.operations
        counts = [sum(timings[it].n for it in names if it in timings) for names in (ADDS, SEARCHES)]
        counts.append(sum(timing.errors for timing in asked_for(point).values()))
        minutes = max(MINUTE, min(step, now - point.ts)) / MINUTE  # of the step that are over
        for label, count in zip(labels, counts, strict=True):
            lines[label].append(count / minutes)
    return chart(points, lines)


def latencies(points: Sequence[Point], names: Iterable[str], share: float = 0.95) -> Chart:
    """The milliseconds within which a share of each operation was done."""

    def milliseconds(point: Point, name: str) -> float | None:
        seconds = point.operations.get(name, Timing()).percentile(share)
        return None if seconds is None else round(seconds * 1000, 3)

    chosen = list(names)[:_LINES]
    lines = {name: [milliseconds(point, name) for point in points] for name in chosen}
    return chart(points, lines, unit="ms")


def growth(points: Iterable[Point], labels: tuple[str, str]) -> Chart:
    """How many messages and notes there were at the end of each day that has figures."""
    counted = [point for point in points if point.gauges]
    lines = {
        label: [point.gauges.get(name) for point in counted]
        for label, name in zip(labels, ("messages", "notes"), strict=True)
    }
    return chart(counted, lines)


def chart(
    points: Sequence[Point], lines: Mapping[str, Sequence[float | None]], unit: str = ""
) -> Chart:
    """What app.js draws: a line for each label, its values by time."""
    series = [{"label": label, "values": values} for label, values in lines.items()]
    return {"x": [point.ts // 1_000_000 for point in points], "series": series, "unit": unit}
