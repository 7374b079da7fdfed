"""Recall traces in the dashboard: what each recall did, and what of it got into a prompt."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import Line, Micros
from kemem.results import Item
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.memories import link_to, suggested_users
from kemem.serve.dashboard.page import DashboardRoute, page
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.http.routing import Memory
from kemem.serve.telemetry.journal import TRACE
from kemem.text.ids import check_id

HOME = "/dashboard/traces"
PAGE = 50
READ = 60  # memories of a trace whose texts and links are shown
WIDTH = 160  # of the timeline
_MAX_DIGITS = 16  # of a time in microseconds

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def list_traces(request: Request, memory: Memory) -> Response:
    """A page of recalls, newest first, of all users or of one."""
    fields = Fields(request.query_params)
    user_id = fields.text("user_id")
    if user_id is not None:
        check_id(user_id, "user_id")
    lines = await memory.journal.lines(
        TRACE, until=_cursor(fields), user_id=user_id, limit=PAGE + 1
    )
    return page(
        request,
        "traces.html",
        lines=lines[:PAGE],
        user_id=user_id,
        user_ids=await suggested_users(memory),
        next_cursor=lines[PAGE - 1].ts if len(lines) > PAGE else None,
        days=memory.settings.trace_days,
    )


@router.get(HOME + "/{trace_id}")
async def show_trace(request: Request, trace_id: str, memory: Memory) -> Response:
    """One recall: its steps in time, its evidence, what it handed over."""
    line = await _read(trace_id, memory)
    body = line.body
    keys = [key for key, _ in body["evidence"]]
    keys += [key for step in body["steps"] for key in step["keys"]]
    query = urlencode({"query": body["question"], "user_id": line.user_id})
    return page(
        request,
        "traces_one.html",
        line=line,
        steps=list(_steps(line)),
        width=WIDTH,
        memories=await _memories(line, keys, memory),
        link_to=link_to,
        playground=f"/dashboard/playground?{query}",
    )


async def _read(trace_id: str, memory: AsyncMemory) -> Line:
    """A trace by its id, which begins with its time."""
    at = trace_id.partition("-")[0]
    if _is_time(at):
        lines = await memory.journal.lines(TRACE, since=int(at), until=int(at) + 1)
        for line in lines:
            if line.id == trace_id:
                return line
    raise NotFound(NOT_FOUND)


def _cursor(fields: Fields) -> Micros | None:
    text = fields.text("cursor")
    if text is not None and not _is_time(text):
        raise InvalidArgument(f"cursor must be that of a page, not {text!r:.80}", field="cursor")
    return None if text is None else int(text)


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _steps(line: Line) -> Iterable[tuple[Mapping[str, Any], float, float]]:
    """The steps with their place and width on a timeline; in the gaps a model was thinking."""
    whole = max(line.body["seconds"], 1e-6)
    begun = line.ts - whole * 1e6
    for step in line.body["steps"]:
        share = min(1.0, step["seconds"] / whole)
        start = min(1 - share, max(0.0, (step["started"] - begun) / 1e6 / whole))
        yield step, round(WIDTH * start, 1), max(2.0, round(WIDTH * share, 1))


async def _memories(line: Line, keys: Iterable[str], memory: AsyncMemory) -> dict[str, Item]:
    """The memories of a trace that are still there, as they are now."""
    handle = memory
    if line.user_id:
        handle = memory.for_user(line.user_id, agent_id=line.body["agent_id"], sensitive=True)
    items: dict[str, Item] = {}
    for key in [*dict.fromkeys(keys)][:READ]:
        with suppress(NotFound):  # erased since, and the trace has no copy of it
            items[key] = await handle.get(key)
    return items
