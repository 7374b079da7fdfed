"""The journal in the dashboard: traces of recalls, benchmarks over time, and votes on hits."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import Line, Micros
from kemem.results import Item
from kemem.runtime import system_clock
from kemem.serve.dashboard import page as pages
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.flash import MESSAGES
from kemem.serve.dashboard.page import DashboardRoute, page
from kemem.serve.dashboard.users import unknown_owner
from kemem.serve.http.errors import NOT_FOUND, invalid_values
from kemem.serve.http.routing import Memory
from kemem.serve.telemetry import journal
from kemem.text.ids import check_id

TRACES, QUALITY, PLAYGROUND = (f"/dashboard/{name}" for name in ("traces", "quality", "playground"))
PAGE = 50  # traces
READ = 60  # memories of a trace whose texts and links are shown
WIDTH = 120  # of the timeline
LINES = 6  # of one chart: as many as there are colours
DAYS = 30
WORST = 20  # questions
_MAX_DIGITS = 16  # of a time in microseconds
# What python -m bench.truth measures, in both languages; other metrics go by their own names.
TRUTH = {
    "first_hit": ("First hit right", "首条即正确"),
    "within_three": ("Right within three hits", "前三条内正确"),
    "current_before_stale": ("Current before stale", "现状排在过时之前"),
    "recall_first": ("First evidence right", "首条证据正确"),
    "recall_any": ("Evidence holds the answer", "证据中有答案"),
    "confident": ("Confident when it knows", "知道时有把握"),
    "says_unknown": ("Says when it does not know", "不知道时会说不知道"),
    "confidence_auc": ("Tells known from unknown (AUC)", "分得清知与不知（AUC）"),
}

router = APIRouter(route_class=DashboardRoute)


@router.get(TRACES)
async def list_traces(request: Request, memory: Memory) -> Response:
    """A page of recalls, newest first, of all users or of one."""
    fields = Fields(request.query_params)
    user_id, cursor = fields.text("user_id"), fields.text("cursor")
    if user_id is not None:
        check_id(user_id, "user_id")
    if cursor is not None and not _is_time(cursor):
        raise InvalidArgument(f"cursor must be that of a page, not {cursor!r:.80}", field="cursor")
    until = None if cursor is None else int(cursor)
    lines = await memory.journal.lines(journal.TRACE, until=until, user_id=user_id, limit=PAGE + 1)
    return page(
        request,
        "traces.html",
        lines=lines[:PAGE],
        user_id=user_id,
        unknown=None if lines else await unknown_owner(user_id, None, memory),
        user_ids=await pages.suggested_users(memory),
        next_cursor=lines[PAGE - 1].ts if len(lines) > PAGE else None,
        days=memory.settings.trace_days,
    )


@router.get(TRACES + "/{trace_id}")
async def show_trace(request: Request, trace_id: str, memory: Memory) -> Response:
    """One recall: its steps in time, its evidence, what it handed over."""
    at = trace_id.partition("-")[0]  # an id begins with its time
    if not _is_time(at):
        raise NotFound(NOT_FOUND)
    lines = await memory.journal.lines(journal.TRACE, since=int(at), until=int(at) + 1)
    line = next((line for line in lines if line.id == trace_id), None)
    if line is None:
        raise NotFound(NOT_FOUND)
    # The steps with their place and width on a timeline; in the gaps a model was thinking.
    whole, steps = max(line.body["seconds"], 1e-6), []
    for step in line.body["steps"]:
        share = min(1.0, step["seconds"] / whole)
        start = min(1 - share, max(0.0, 1 - (line.ts - step["started"]) / 1e6 / whole))
        steps.append((step, round(WIDTH * start, 1), max(2.0, round(WIDTH * share, 1))))
    again = pages.address(PLAYGROUND, {"query": line.body["question"], "user_id": line.user_id})
    memories = await _memories(line, memory)
    values: dict[str, Any] = {"line": line, "steps": steps, "width": WIDTH, "memories": memories}
    return page(request, "traces_one.html", **values, playground=again)


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


async def _memories(line: Line, memory: AsyncMemory) -> dict[str, Item]:
    """The memories of a trace that are still there, as they are now."""
    handle, body = memory, line.body
    if line.user_id:
        handle = memory.for_user(line.user_id, agent_id=body["agent_id"], sensitive=True)
    keys = [key for key, _ in body["evidence"]]
    keys += [key for step in body["steps"] for key in step["keys"]]
    items: dict[str, Item] = {}
    for key in [*dict.fromkeys(keys)][:READ]:
        with suppress(NotFound):  # erased since, and the trace has no copy of it
            item = await handle.get(key)
            items |= {} if item.withdrawn else {key: item}
    return items


@router.get(QUALITY)
async def show_quality(request: Request, memory: Memory) -> Response:
    """Runs of benchmarks, each kind by one metric, and the report of all votes."""
    runs, fields = await journal.read_runs(memory), Fields(request.query_params)
    names = journal.metrics_of(runs)
    asks = names and fields.text("metric")
    chosen = fields.one_of("metric", tuple(names), "") if asks else ""
    evidence, truth = [it for it in names if it not in TRUTH], [it for it in TRUTH if it in names]
    benchmarks = []
    for metrics, usual in ((evidence, "recall@10"), (truth, "first_hit")):
        if metrics:
            metric = next(it for it in (chosen, usual, metrics[0]) if it in metrics)
            charts = {it: _over_time(runs, metric, it) for it in ("zh", "en")}
            benchmarks.append((metrics, metric, charts, journal.latest(runs, metric)))
    votes = await journal.read_votes(memory)
    queries = journal.opinions(votes, lambda _, it: (it.query, it.user_id, it.mode))
    worst = sorted((it for it in queries if it.down), key=lambda it: (-it.down, it.up))
    by_day = {it.subject: it for it in journal.opinions(votes, lambda ts, _: _day(ts))}
    last = [_day(system_clock()) - timedelta(days=before) for before in reversed(range(DAYS))]
    opinions = [by_day.get(day, journal.Opinion(day)) for day in last]  # also where there are none
    ranks = journal.opinions(votes, lambda _, it: it.rank)
    settings = journal.opinions(votes, lambda _, it: it.settings_text)
    return page(
        request,
        "quality.html",
        benchmarks=benchmarks,
        truth=TRUTH,
        all=journal.Opinion("all", sum(it.up for it in queries), sum(it.down for it in queries)),
        days=[(it.subject.timestamp(), it.up, it.down) for it in opinions],
        ranks=sorted(ranks, key=lambda it: it.subject),
        settings=sorted(settings, key=lambda it: -it.n),
        worst=[(it, _playground(*it.subject)) for it in worst[:WORST]],
    )


@router.post(QUALITY + "/votes")
async def vote(request: Request, memory: Memory) -> Response:
    """Keep what somebody thinks of a hit; again, and it replaces what they thought before."""
    fields = Fields(await request.form())
    names = ("query", "memory_id", "user_id", "vote", "rank", "score")
    texts = {name: text[: journal.MAX_TEXT] for name in names if (text := fields.text(name))}
    if "user_id" in texts:
        check_id(texts["user_id"], "user_id")
    settings = fields.mapping("settings") or {}
    try:
        cast = journal.Vote.model_validate({**texts, "settings": settings})
    except ValidationError as error:
        raise invalid_values(error.errors(include_url=False), [journal.Vote]) from None
    await journal.save_vote(memory, cast, system_clock())
    if cast.user_id:  # it counts for the questions of this user
        with suppress(NotFound):  # erased since it was shown
            await memory.feedback(cast.memory_id, cast.vote, cast.query, cast.user_id)
    if pages.is_fragment(request):
        message = pages.translator(request)(*MESSAGES[f"voted_{cast.vote}"])
        return page(request, "quality_vote.html", message=message)
    address = _playground(cast.query, cast.user_id, cast.mode)
    return pages.done(request, address, f"voted_{cast.vote}")


def _over_time(runs: Sequence[journal.Run], metric: str, language: str) -> dict[str, Any] | None:
    """A line for each set of a language, as a chart takes them; None where there is nothing."""
    lines: dict[str, dict[Micros, float]] = {}
    for run in reversed(runs):
        if run.language == language and run.category == "all" and metric in run.metrics:
            lines.setdefault(f"{run.set} · {run.name}", {})[run.ts] = run.metrics[metric]
    times = sorted({ts for values in lines.values() for ts in values})
    series = [
        {"label": label, "values": [values.get(ts) for ts in times]}
        for label, values in sorted(lines.items())[:LINES]
    ]
    return {"x": [ts / 1e6 for ts in times], "series": series} if lines else None


def _day(ts: Micros) -> datetime:
    """When the day of a time began, in the server's time zone."""
    return datetime.fromtimestamp(ts / 1e6).replace(hour=0, minute=0, second=0, microsecond=0)


def _playground(query: str, user_id: str, mode: str) -> str:
    """Where a question can be asked again."""
    return pages.address(PLAYGROUND, {"query": query, "user_id": user_id, "mode": mode})
