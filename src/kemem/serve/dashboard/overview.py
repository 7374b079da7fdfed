"""Overview: how much there is, and how the server does."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from kemem.assemble import system_clock
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, Health, Micros
from kemem.results import Census
from kemem.serve.dashboard import figures
from kemem.serve.dashboard.figures import SPANS, Span
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.page import language_of, page, translator
from kemem.serve.http.routing import Memory
from kemem.serve.telemetry.metrics import DAY, Metrics, Point

_DAYS = 30  # of the chart of growth

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Survey:
    """What takes a while to find out."""

    health: Health
    census: Census
    days: list[Point]


async def survey(memory: AsyncMemory, metrics: Metrics) -> Survey:
    """Count everything, and read how it grew."""
    now = system_clock()
    days = await metrics.series(now - _DAYS * DAY, now, DAY)
    return Survey(await memory.health(), await memory.census(), days)


@router.get("/dashboard")
async def overview(
    request: Request, memory: Memory, span: Annotated[str, Query()] = "1h"
) -> Response:
    """The first page."""
    return page(request, "overview.html", **await _figures(request, memory, span))


@router.get("/dashboard/figures")
async def overview_figures(
    request: Request, memory: Memory, span: Annotated[str, Query()] = "1h"
) -> Response:
    """What changes on the first page: htmx asks for it again and again."""
    return page(request, "_figures.html", **await _figures(request, memory, span))


async def _figures(request: Request, memory: AsyncMemory, name: str) -> dict[str, Any]:
    if name not in SPANS:
        raise InvalidArgument(f"span must be one of {', '.join(SPANS)}, not {name!r:.80}")
    span, metrics = SPANS[name], request.app.state.metrics
    now = system_clock()
    points = await metrics.series(now - span.length, now, span.step)
    whole = figures.total(points)
    found: Survey | None = await request.app.state.survey.get()
    operations = figures.asked_for(whole)
    return {
        "span": span,
        "spans": SPANS,
        "survey": found,
        "kinds": NOTE_KINDS,
        "operations": operations,
        "failed": sum(tally.errors for tally in operations.values()),
        "asked": sum(tally.n for tally in operations.values()),
        "llm": whole.operations[figures.LLM],
        "counts": whole.counts,
        "hit_rates": figures.hit_rates(whole.counts),
        "leaks": list(request.app.state.leaks),
        "charts": _charts(request, points, found.days if found else [], span, now),
    }


def _charts(
    request: Request, points: list[Point], days: list[Point], span: Span, now: Micros
) -> dict[str, figures.Chart]:
    t = translator(language_of(request))
    named = (t("Adds", "写入"), t("Searches", "检索"), t("Failures", "失败"))
    return {
        "rates": figures.rates(points, span, now, named),
        "latencies": figures.latencies(points, figures.asked_for(figures.total(points))),
        "tokens": figures.tokens(points, (t("Prompt", "输入"), t("Completion", "输出"))),
        "growth": figures.growth(days, (t("Messages", "消息"), t("Notes", "记忆"))),
    }
