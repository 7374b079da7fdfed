"""Overview, system and jobs: figures, settings, storage, backups, tokens and later work."""

import asyncio
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Request, Response

from kemem import __version__
from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, Micros
from kemem.runtime import system_clock
from kemem.serve.cli.doctor import examine, show_settings
from kemem.serve.dashboard.page import DashboardRoute, Fields, done, page, translator
from kemem.serve.http.auth import Authenticator
from kemem.serve.http.responses import to_json
from kemem.serve.http.routing import Memory
from kemem.serve.rpc.methods import MemoryTools
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE, Metrics, Point, Timing
from kemem.text.ids import check_id

SYSTEM, JOBS = "/dashboard/system", "/dashboard/jobs"
SPANS = {"1h": (HOUR, MINUTE), "24h": (DAY, 10 * MINUTE), "30d": (30 * DAY, 4 * HOUR)}  # and steps
ADDS = ("add_memories", "store_messages")
SEARCHES = ("search_memories", "lexical_search", "semantic_search", "hybrid_search", "recall")
_NOT_ASKED = frozenset(["none", "healthz", "readyz", "metrics", "root", "llm"])
_DAYS = 30  # of the chart of growth
_LINES = 5  # of the chart of latencies

_BACKUPS = 100  # that are listed
_LONGEST = 366  # days that a token is good for
_PACKAGES = ("fastapi", "jinja2", "mcp", "openai", "sqlalchemy", "uvicorn")
_JOBS, _MAX_JOBS = 200, 20_000  # of a page, and that are read to be sorted
_MAX_FILES = 20_000  # that are counted in one folder

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
        "has_llm": state.memory.settings.has_llm,
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


class File(NamedTuple):
    """A file or folder, and what it takes up."""

    name: str
    size: int  # bytes
    changed: Micros
    is_least: bool = False  # a folder with so many files that the rest was not counted


@router.get(SYSTEM)
async def system(request: Request, memory: Memory) -> Response:
    """Everything about this server."""
    return await _system(request, memory)


@router.get(SYSTEM + "/checks")
async def checks(request: Request, memory: Memory) -> Response:
    """What the doctor finds; it loads the embedder, which takes a while."""
    results = await asyncio.to_thread(examine, memory.settings)
    return page(request, "system_checks.html", checks=results)


@router.post(SYSTEM + "/backup")
async def back_up(request: Request, memory: Memory) -> Response:
    """Write everything to a new file in the directory of backups."""
    backup = await memory.backup()
    return done(request, SYSTEM, "backup_written", name=backup.path.name)


@router.get(SYSTEM + "/restore")
async def ask_to_restore(request: Request, memory: Memory, name: str) -> Response:
    """Ask whether everything is to be replaced."""
    backup, survey = await _backup(name, memory), await request.app.state.survey.get()
    return page(request, "system_restore.html", backup=backup, survey=survey)


@router.post(SYSTEM + "/restore")
async def restore(
    request: Request,
    memory: Memory,
    name: Annotated[str, Form()],
    typed: Annotated[str, Form()] = "",
) -> Response:
    """Put a backup in the place of everything, if its name was typed."""
    backup = await _backup(name, memory)
    if typed.strip() != backup.name:
        raise InvalidArgument(f"type the name {backup.name!r}, not {typed!r:.80}", field="typed")
    await memory.restore(backup.name)
    return done(request, SYSTEM, "backup_restored", name=backup.name)


@router.get(SYSTEM + "/dump")
async def dump(memory: Memory, agent_id: str | None = None) -> Response:
    """Knowledge and the files of workspaces as a JSON file."""
    agent = check_id(agent_id or memory.settings.rpc_agent, "agent_id")
    data = (await MemoryTools(memory, agent).dump())["data"]
    headers = {"Content-Disposition": 'attachment; filename="kemem.json"'}
    return Response(to_json(data), headers=headers, media_type="application/json")


@router.post(SYSTEM + "/token")
async def mint_token(
    request: Request,
    memory: Memory,
    user_id: Annotated[str, Form()] = "",
    days: Annotated[int, Form(ge=1, le=_LONGEST)] = 30,
    sensitive: Annotated[bool, Form()] = False,
) -> Response:
    """A token that is bound to one user, shown this once."""
    authenticator: Authenticator = request.app.state.authenticator
    user = check_id(user_id.strip(), "user_id")
    token = authenticator.issue_token(user, days * 24 * 3600, sensitive=sensitive)
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
        backups=await asyncio.to_thread(backups_in, memory.places.backups, _BACKUPS),
        has_key=state.authenticator.has_key,
        mints=state.authenticator.issues_tokens,
        longest=_LONGEST,
        **{"minted": None} | values,
    )


async def _backup(name: str, memory: AsyncMemory) -> File:
    """A backup of the list, and no other file."""
    for backup in await asyncio.to_thread(backups_in, memory.places.backups, _BACKUPS):
        if backup.name == name:
            return backup
    raise NotFound(f"there is no backup {name!r:.80}")


def files_in(directory: Path) -> list[File]:
    """What a directory holds, largest first; a missing directory is empty."""
    files = []
    for path in directory.iterdir() if directory.is_dir() else ():
        file = _file(path)
        if path.is_dir() and not path.is_symlink():
            inside = (Path(place, name) for place, _, names in os.walk(path) for name in names)
            sizes = [_file(each).size for each in islice(inside, _MAX_FILES)]
            file = File(f"{path.name}/", sum(sizes), file.changed, len(sizes) == _MAX_FILES)
        files.append(file)
    return sorted(files, key=lambda file: (-file.size, file.name))


def backups_in(directory: Path, most: int) -> list[File]:
    """The newest backups of a directory, the newest first, without unfinished ones."""
    paths = [it for it in directory.glob("[!.]*") if it.is_file() and not it.is_symlink()]
    return sorted(map(_file, paths), key=lambda file: (-file.changed, file.name))[:most]


def _file(path: Path) -> File:
    try:
        status = path.lstat()
    except OSError:  # it was removed meanwhile
        return File(path.name, 0, 0)
    return File(path.name, status.st_size, status.st_mtime_ns // 1000)


@router.get(JOBS)
async def list_jobs(request: Request, memory: Memory) -> Response:
    """A page of the jobs: failed ones first, then in the order of their age."""
    start = Fields(request.query_params).integer("cursor", _MAX_JOBS, 1) - 1
    deps = await memory.runtime.deps()
    jobs = await deps.store.jobs(_MAX_JOBS)
    jobs.sort(key=lambda job: job.state != "failed")  # a stable sort
    end = start + _JOBS
    return page(
        request,
        "jobs.html",
        jobs=jobs[start:end],
        next_cursor=end + 1 if end < len(jobs) else None,
        health=await request.app.state.metrics.health.get() or await memory.health(),
    )


@router.post(JOBS + "/retry")
async def retry_all(request: Request, memory: Memory) -> Response:
    """Let every job that was given up be tried again."""
    return done(request, JOBS, "jobs_retried", count=await memory.retry_jobs())


@router.post(JOBS + "/{job_id}/retry")
async def retry_job(request: Request, job_id: str, memory: Memory) -> Response:
    """Let a job be tried again now."""
    await memory.retry_job(job_id)
    return done(request, JOBS, "jobs_retried", count=1)
