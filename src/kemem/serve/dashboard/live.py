"""Live pages: server-sent events tell a page that jobs or imports have changed."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request, Response

from kemem.memory import AsyncMemory
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.page import DashboardRoute
from kemem.serve.http.responses import Emit, EventStream
from kemem.serve.http.routing import Memory

PATH = "/dashboard/events"
TICK = 0.5  # seconds between two looks at the store
LOOKS = 60  # of one connection; a browser connects again by itself
JOBS = 200  # that are watched

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def follow(request: Request, memory: Memory) -> Response:
    """An event "changed" whenever jobs or imports have changed; the page then loads them again."""
    of = Fields(request.query_params).one_of("of", ("jobs", "imports"), "jobs")
    read = read_imports if of == "imports" else read_jobs
    return EventStream(partial(watch, partial(read, memory)))


async def read_jobs(memory: AsyncMemory) -> object:
    """What the page of jobs shows, to be compared."""
    return await memory.jobs(JOBS), await memory.imports.states()


async def read_imports(memory: AsyncMemory) -> object:
    """What the page of imports shows, to be compared."""
    return await memory.imports.states()


async def watch(read: Callable[[], Awaitable[object]], emit: Emit, tick: float = TICK) -> None:
    """Look at a state again and again, and tell of each change.

    The first event says that a page is followed: one that connects again may have missed a change.
    """
    before = await read()
    emit("following", {})
    for _ in range(LOOKS):
        await asyncio.sleep(tick)
        now = await read()
        if now != before:
            emit("changed", {})
            before = now
