"""Overview, system and jobs: figures, settings, storage, backups, tokens and later work."""

import asyncio
import platform
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.datastructures import ImmutableMultiDict

from kemem import __version__
from kemem.errors import InvalidArgument, NotFound
from kemem.imports.service import ImportState
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, Micros
from kemem.records.batch import Job
from kemem.records.times import to_micros
from kemem.runtime import system_clock
from kemem.serve.cli.doctor import examine, show_settings
from kemem.serve.dashboard.backups import LISTED, SYSTEM, backups_in, files_in
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page, translator
from kemem.serve.dashboard.users import find_entry
from kemem.serve.http.auth import Authenticator
from kemem.serve.http.responses import to_json
from kemem.serve.http.routing import Memory
from kemem.serve.rpc.methods import MemoryTools
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE, Metrics, Point, Timing
from kemem.settings import parse_prices
from kemem.text.ids import check_id

JOBS = "/dashboard/jobs"
SPANS = {"1h": (HOUR, MINUTE), "24h": (DAY, 10 * MINUTE), "30d": (30 * DAY, 4 * HOUR)}  # and steps
STEPS = (MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 4 * HOUR, DAY, 7 * DAY, 30 * DAY)
POINTS = 200  # of a chart
LONGEST = 1_830 * DAY  # that figures are kept
ADDS = ("add_memories", "store_messages")
SEARCHES = ("search_memories", "lexical_search", "semantic_search", "hybrid_search", "recall")
_NOT_ASKED = frozenset(["none", "healthz", "readyz", "metrics", "root", "llm"])
_DAYS = 30  # of the chart of growth
_LINES = 5  # of the chart of latencies

_LONGEST = 366  # days that a token is good for
_PACKAGES = ("fastapi", "jinja2", "mcp", "openai", "sqlalchemy", "uvicorn")
_JOBS, _MAX_JOBS = 200, 20_000  # of a page, and that are read to be sorted

Chart = dict[str, Any]  # what app.js draws

router = APIRouter(route_class=DashboardRoute)


async def survey(memory: AsyncMemory, metrics: Metrics) -> dict[str, Any]:
    """What takes a while to find out: counts of everything, and how it grew."""
    now = system_clock()
    days = await metrics.series(now - _DAYS * DAY, now, DAY)
    return {"health": await memory.health(), "census": await memory.census(), "days": days}


class Range(NamedTuple):
    """The times that figures are shown of."""

    span: str  # one of SPANS, or custom
    since: Micros
    until: Micros
    step: Micros
    query: Mapping[str, str]  # that asks for it again


def time_range(fields: Fields, now: Micros) -> Range:
    """A span that ends now, or one between two times; the step is the finest of 200 or fewer."""
    since, until = fields.datetime("since"), fields.datetime("until")
    if since is None and until is None:
        span = fields.one_of("span", tuple(SPANS), "1h")
        return Range(span, now - SPANS[span][0], now, SPANS[span][1], {"span": span})
    last = now if until is None else min(now, to_micros(until, "until"))
    first = last - DAY if since is None else to_micros(since, "since")
    if not 0 < last - first <= LONGEST:
        problem = f"since must be before until, by {LONGEST // DAY} days at most"
        raise InvalidArgument(f"{problem}, not {fields.text('since')!r:.40}", field="since")
    step = next(step for step in STEPS if (last - first) / step <= POINTS)
    query = {it: text for it in ("since", "until") if (text := fields.text(it))}
    return Range("custom", first, last, step, query)


@router.get("/dashboard")
async def overview(request: Request) -> Response:
    """The first page."""
    fields = Fields(request.query_params)
    try:
        return page(request, "overview.html", **await _figures(request, fields))
    except InvalidArgument as problem:  # a range that cannot be shown
        figures = await _figures(request, Fields(ImmutableMultiDict()))
        return page(request, "overview.html", **figures, **refusal(problem, fields))


@router.get("/dashboard/figures")
async def overview_figures(request: Request) -> Response:
    """What changes on the first page: htmx polls it."""
    fields = Fields(request.query_params)
    return page(request, "_figures.html", **await _figures(request, fields))


async def _figures(request: Request, fields: Fields) -> dict[str, Any]:
    now, state = system_clock(), request.app.state
    chosen = time_range(fields, now)
    points = await state.metrics.series(chosen.since, chosen.until, chosen.step)
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
        "range": chosen,
        "survey": stored,
        "kinds": NOTE_KINDS,
        "operations": operations,
        "failed": sum(timing.errors for timing in operations.values()),
        "requests": sum(timing.n for timing in operations.values()),
        "llm": total.operations["llm"],
        "has_llm": state.memory.settings.has_llm,
        "counts": total.counts,
        "usage": usage(total.counts, parse_prices(state.memory.settings.llm_prices)),
        "hit_rates": hit_rates(total.counts),
        "leaks": list(state.leaks),
        "start": await first_steps(request),
        "charts": {
            "rates": rates(points, chosen.step, chosen.until, counted),
            "latencies": latencies(points, operations),
            "tokens": chart(points, tokens),
            "growth": growth(stored["days"] if stored else [], grown),
        },
    }


async def first_steps(request: Request) -> dict[str, Any]:
    """What the commands need that add a first message to this memory."""
    state, settings = request.app.state, request.app.state.memory.settings
    options, arguments = " --database-url URL", "database_url=URL"  # it may hold a password
    if settings.database_url is None:
        place = str(settings.data_dir)
        options, arguments = f" --data-dir {shlex.quote(place)}", f"data_dir={place!r}"
    return {
        "url": f"{request.url.scheme}://{request.url.netloc}",
        "needs_key": await state.authenticator.requires_credentials(),
        "options": options,
        "python": arguments,
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


class Usage(NamedTuple):
    """What one model was used for, and what it cost; None where its price is not known."""

    model: str
    replies: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None


def usage(counts: Counter[str], prices: Mapping[str, tuple[float, float]]) -> list[Usage]:
    """The use of each model, the most used first; prices are those of a million tokens."""
    names = {key.removeprefix("model.").rpartition(".")[0] for key in counts if key[:6] == "model."}
    used = []
    for name in names:
        kinds = ("replies", "prompt_tokens", "completion_tokens")
        replies, prompt, completion = (counts[f"model.{name}.{kind}"] for kind in kinds)
        cost = None
        if name in prices:
            cost = (prompt * prices[name][0] + completion * prices[name][1]) / 1e6
        used.append(Usage(name, replies, prompt, completion, cost))
    return sorted(used, key=lambda it: (-it.prompt_tokens - it.completion_tokens, it.model))


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


@router.get(SYSTEM)
async def system(request: Request, memory: Memory) -> Response:
    """Everything about this server."""
    return await _system(request, memory)


@router.get(SYSTEM + "/checks")
async def checks(request: Request, memory: Memory) -> Response:
    """What the doctor finds; it loads the embedder, which takes a while."""
    results = await asyncio.to_thread(examine, memory.settings)
    return page(request, "system_checks.html", checks=results)


@router.get(SYSTEM + "/dump")
async def dump(request: Request, memory: Memory) -> Response:
    """Knowledge and the files of workspaces as a JSON file."""
    fields = Fields(request.query_params)
    named = fields.text("agent_id")
    agent = check_id(named or memory.settings.rpc_agent, "agent_id")
    if named and await find_entry(None, named, memory) is None:
        problem = NotFound(f"no agent {named!r:.80}", field="agent_id")
        return await _system(request, memory, **refusal(problem, fields))
    data = (await MemoryTools(memory, agent).dump())["data"]
    headers = {"Content-Disposition": 'attachment; filename="kemem.json"'}
    return Response(to_json(data), headers=headers, media_type="application/json")


@router.post(SYSTEM + "/token")
async def mint_token(request: Request, memory: Memory) -> Response:
    """A token that is bound to one user, shown this once."""
    authenticator: Authenticator = request.app.state.authenticator
    fields = Fields(await request.form())
    try:
        user = check_id(fields.text("user_id") or "", "user_id")
        days = fields.integer("days", _LONGEST, 30)
    except InvalidArgument as problem:
        return await _system(request, memory, **refusal(problem, fields))
    sensitive, project = fields.text("sensitive") == "true", request.app.state.project
    token = authenticator.issue_token(user, days * 86_400, sensitive=sensitive, project=project)
    return await _system(request, memory, minted={"token": token, "user_id": user, "days": days})


async def _system(request: Request, memory: AsyncMemory, **values: Any) -> Response:
    settings, state = memory.settings, request.app.state
    survey, files = await state.survey.get(), None
    if settings.database_url is None:
        files = await asyncio.to_thread(files_in, settings.data_dir)
    packages = {name: version(name) for name in _PACKAGES}
    own = {"KeMem": __version__, "Python": platform.python_version()}
    return page(
        request,
        "system.html",
        settings=show_settings(settings, state.flags),
        versions=own | packages,
        survey=survey,
        files=files,
        places=memory.places,
        backups=await asyncio.to_thread(backups_in, memory.places.backups, LISTED),
        has_key=state.authenticator.has_key,
        keys=await state.keys.list(state.project),
        mints=state.authenticator.issues_tokens,
        longest=_LONGEST,
        **{"minted": None} | values,
    )


@router.get(JOBS)
async def list_jobs(request: Request, memory: Memory) -> Response:
    """A page of the jobs: failed ones first, then in the order of their age."""
    start = Fields(request.query_params).integer("cursor", _MAX_JOBS, 1) - 1
    deps = await memory.runtime.deps()
    jobs = await deps.store.jobs(_MAX_JOBS)
    imports = {it.id: it for it in await memory.imports.states()}
    jobs.sort(key=lambda job: job.state != "failed")  # a stable sort
    end = start + _JOBS
    return page(
        request,
        "jobs.html",
        jobs=jobs[start:end],
        next_cursor=end + 1 if end < len(jobs) else None,
        health=await request.app.state.metrics.health.get() or await memory.health(),
        progress_of=partial(progress_of, imports=imports),
    )


def progress_of(job: Job, imports: Mapping[str, ImportState]) -> tuple[int, int] | None:
    """How much of how much a job has done: rows, or bytes of an import; None where none is kept."""
    if job.progress:
        return job.progress["done"], job.progress["total"]
    if state := imports.get(job.job_id):
        return state.read, state.size
    return None


@router.post(JOBS + "/retry")
async def retry_all(request: Request, memory: Memory) -> Response:
    """Let every job that was given up be tried again."""
    return done(request, JOBS, "jobs_retried", count=await memory.retry_jobs())


@router.post(JOBS + "/{job_id}/retry")
async def retry_job(request: Request, job_id: str, memory: Memory) -> Response:
    """Let a job be tried again now."""
    await memory.retry_job(job_id)
    return done(request, JOBS, "jobs_retried", count=1)
