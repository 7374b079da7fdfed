"""Quality in the dashboard: what benchmarks measured over time, and what people think of hits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from kemem.assemble import system_clock
from kemem.errors import InvalidArgument
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.page import is_fragment, page
from kemem.serve.http.guarded import Memory
from kemem.serve.telemetry.runs import Run, kept_runs, latest, metrics_of
from kemem.serve.telemetry.votes import LONGEST, Asked, Opinion, Vote, day_of, keep_vote, report
from kemem.text.ids import check_id

HOME = "/dashboard/quality"
LINES = 6  # of one chart: as many as there are colours
DAYS = 30

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def show_quality(request: Request, memory: Memory) -> Response:
    """Runs of benchmarks by one metric, and the report of all votes."""
    runs = await kept_runs(memory)
    metrics = metrics_of(runs)
    usual = "recall@10" if "recall@10" in metrics else next(iter(metrics), "")
    metric = Fields(request.query_params).one_of("metric", tuple(metrics), usual) if runs else ""
    said = await report(memory)
    return page(
        request,
        "quality.html",
        metrics=metrics,
        metric=metric,
        charts={language: _over_time(runs, metric, language) for language in ("zh", "en")},
        rows=latest(runs, metric),
        said=said,
        days=_by_day(said.days, day_of(system_clock())),
        worst=[(it, _playground(it.subject)) for it in said.worst],
    )


@router.post(HOME + "/votes")
async def vote(request: Request, memory: Memory) -> Response:
    """Keep what somebody thinks of a hit; again, and it replaces what they thought before."""
    cast = _cast(Fields(await request.form()))
    await keep_vote(memory, cast, system_clock())
    if is_fragment(request):
        return page(request, "quality_vote.html", cast=cast.vote)
    return RedirectResponse(_playground(Asked(cast.query, cast.user_id, cast.mode)), 303)


def _cast(fields: Fields) -> Vote:
    """The vote of a form."""
    names = ("query", "memory_id", "user_id", "vote", "rank", "score")
    given = {name: text[:LONGEST] for name in names if (text := fields.text(name)) is not None}
    if "user_id" in given:
        check_id(given["user_id"], "user_id")
    try:
        return Vote.model_validate({**given, "settings": fields.mapping("settings") or {}})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidArgument(f"{field}: {first['msg']}", field=field) from None


def _over_time(runs: Sequence[Run], metric: str, language: str) -> dict[str, Any] | None:
    """A line for each set of a language, as a chart takes them; None where there is nothing."""
    wanted = [
        run
        for run in reversed(runs)
        if run.language == language and run.category == "all" and metric in run.metrics
    ]
    times = sorted({run.ts for run in wanted})
    lines: dict[str, dict[int, float]] = {}
    for run in wanted:
        lines.setdefault(f"{run.set} · {run.name}", {})[run.ts] = run.metrics[metric]
    series = [
        {"label": label, "values": [found.get(ts) for ts in times]}
        for label, found in sorted(lines.items())[:LINES]
    ]
    return {"x": [ts / 1e6 for ts in times], "series": series} if wanted else None


def _by_day(days: Sequence[Opinion], today: datetime) -> list[tuple[float, int, int]]:
    """Votes of each of the last days, also where there are none: its beginning, up and down."""
    cast = {it.subject: it for it in days}
    last = [today - timedelta(days=before) for before in reversed(range(DAYS))]
    opinions = [cast.get(day) or Opinion(day) for day in last]
    return [(day.timestamp(), it.up, it.down) for day, it in zip(last, opinions, strict=True)]


def _playground(asked: Asked) -> str:
    """Where a question can be asked again."""
    given = {"query": asked.query, "user_id": asked.user_id, "mode": asked.mode}
    return f"/dashboard/playground?{urlencode({k: v for k, v in given.items() if v})}"
