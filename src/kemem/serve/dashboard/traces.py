"""Recall traces in the dashboard: what each recall did, and what of it got into a prompt."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import Line, Micros, Note
from kemem.results import Item
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.memories import SUGGESTED, link_to
from kemem.serve.dashboard.page import page
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.http.routing import Memory
from kemem.serve.telemetry.traces import TRACE
from kemem.text.ids import check_id

HOME = "/dashboard/traces"
PAGE = 50
LOOKED_UP = 60  # memories of a trace whose texts and links are shown
WIDTH = 160  # of the timeline
_DIGITS = 16  # of a time in microseconds

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of a recall, and its place on the timeline."""

    step: Mapping[str, Any]
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Known:
    """A memory that a trace names, as it is now."""

    text: str
    link: str
    kind: str
    changed: bool  # since the recall


@router.get(HOME)
async def list_traces(request: Request, memory: Memory) -> Response:
    """A page of recalls, newest first, of all users or of one."""
    fields = Fields(request.query_params)
    user_id = fields.text("user_id")
    if user_id is not None:
        check_id(user_id, "user_id")
    found = await memory.journal.lines(
        TRACE, until=_cursor(fields), user_id=user_id, limit=PAGE + 1
    )
    users = await memory.users(limit=SUGGESTED)
    return page(
        request,
        "traces.html",
        lines=found[:PAGE],
        user_id=user_id,
        user_ids=sorted({entry.id for entry in users.items if entry.id}),
        next_cursor=found[PAGE - 1].ts if len(found) > PAGE else None,
        days=memory.settings.trace_days,
    )


@router.get(HOME + "/{trace_id}")
async def show_trace(request: Request, trace_id: str, memory: Memory) -> Response:
    """One recall: its steps in time, its evidence, what it handed over."""
    line = await _found(trace_id, memory)
    body = line.body
    keys = [key for key, _ in body["evidence"]]
    keys += [key for step in body["steps"] for key in step["keys"]]
    tried = urlencode({"query": body["question"], "user_id": line.user_id})
    return page(
        request,
        "traces_one.html",
        line=line,
        stages=list(_stages(line)),
        width=WIDTH,
        known=await _known(line, keys, memory),
        playground=f"/dashboard/playground?{tried}",
    )


async def _found(trace_id: str, memory: AsyncMemory) -> Line:
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
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _stages(line: Line) -> Iterable[Stage]:
    """The steps on a line that is as long as the recall; in the gaps a model thought."""
    whole = max(line.body["seconds"], 1e-6)
    begun = line.ts - whole * 1e6
    for step in line.body["steps"]:
        share = min(1.0, step["seconds"] / whole)
        start = min(1 - share, max(0.0, (step["started"] - begun) / 1e6 / whole))
        yield Stage(step, round(WIDTH * start, 1), max(2.0, round(WIDTH * share, 1)))


async def _known(line: Line, keys: Iterable[str], memory: AsyncMemory) -> dict[str, Known]:
    """The memories of a trace that are still there."""
    handle = memory
    if line.user_id:
        handle = memory.for_user(line.user_id, agent_id=line.body["agent_id"], sensitive=True)
    known: dict[str, Known] = {}
    for key in [*dict.fromkeys(keys)][:LOOKED_UP]:
        try:
            known[key] = _as_known(await handle.get(key), line.ts)
        except NotFound:  # erased since, and the trace has no copy of it
            continue
    return known


def _as_known(item: Item, at: Micros) -> Known:
    changed = isinstance(item.row, Note) and item.row.updated > at
    return Known(item.memory, link_to(item), item.kind, changed)
