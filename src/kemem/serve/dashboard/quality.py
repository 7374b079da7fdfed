"""Quality in the dashboard: what benchmarks measured over time, and what people think of hits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from kemem.errors import InvalidArgument
from kemem.records import Micros
from kemem.runtime import system_clock
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.page import DashboardRoute, is_fragment, page
from kemem.serve.http.routing import Memory
from kemem.serve.telemetry.journal import (
    MAX_TEXT,
    Opinion,
    Run,
    Vote,
    latest,
    metrics_of,
    opinions,
    read_runs,
    read_votes,
    save_vote,
)
from kemem.text.ids import check_id

HOME = "/dashboard/quality"
LINES = 6  # of one chart: as many as there are colours
DAYS = 30
WORST = 20  # questions

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def show_quality(request: Request, memory: Memory) -> Response:
    """Runs of benchmarks by one metric, and the report of all votes."""
    runs = await read_runs(memory)
    metrics = metrics_of(runs)
    usual = "recall@10" if "recall@10" in metrics else next(iter(metrics), "")
    metric = Fields(request.query_params).one_of("metric", tuple(metrics), usual) if runs else ""
    votes = await read_votes(memory)
    queries = opinions(votes, lambda _, it: (it.query, it.user_id, it.mode))
    worst = sorted((it for it in queries if it.down), key=lambda it: (-it.down, it.up))
    return page(
        request,
        "quality.html",
        metrics=metrics,
        metric=metric,
        charts={language: _over_time(runs, metric, language) for language in ("zh", "en")},
        rows=latest(runs, metric),
        all=Opinion("all", sum(it.up for it in queries), sum(it.down for it in queries)),
        days=_by_day(opinions(votes, lambda ts, _: _day(ts)), _day(system_clock())),
        ranks=sorted(opinions(votes, lambda _, it: it.rank), key=lambda it: it.subject),
        settings=sorted(opinions(votes, lambda _, it: it.settings_text), key=lambda it: -it.n),
        worst=[(it, _playground(*it.subject)) for it in worst[:WORST]],
    )


@router.post(HOME + "/votes")
async def vote(request: Request, memory: Memory) -> Response:
    """Keep what somebody thinks of a hit; again, and it replaces what they thought before."""
    cast = _cast(Fields(await request.form()))
    await save_vote(memory, cast, system_clock())
    if is_fragment(request):
        return page(request, "quality_vote.html", cast=cast.vote)
    return RedirectResponse(_playground(cast.query, cast.user_id, cast.mode), 303)


def _cast(fields: Fields) -> Vote:
    """The vote of a form."""
    names = ("query", "memory_id", "user_id", "vote", "rank", "score")
    given = {name: text[:MAX_TEXT] for name in names if (text := fields.text(name)) is not None}
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


def _day(ts: Micros) -> datetime:
    """When the day of a time began, in the server's time zone."""
    return datetime.fromtimestamp(ts / 1e6).replace(hour=0, minute=0, second=0, microsecond=0)


def _playground(query: str, user_id: str, mode: str) -> str:
    """Where a question can be asked again."""
    given = {"query": query, "user_id": user_id, "mode": mode}
    return f"/dashboard/playground?{urlencode({k: v for k, v in given.items() if v})}"
