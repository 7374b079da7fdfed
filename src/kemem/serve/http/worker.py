"""Later work, done by whatever process serves a memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from kemem.memory import AsyncMemory

_PAUSE = 5.0  # seconds between two looks for work
_NOTED = 10.0  # seconds between two writes of what was counted
_GRACE = 1.0  # seconds that work in progress gets at the end

log = structlog.get_logger("kemem")


@asynccontextmanager
async def working(
    memory: AsyncMemory, *flushes: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Do what waits in the outbox, flush what was noted, and at the end close the memory."""
    stopping = asyncio.Event()

    async def write() -> None:
        for flush in flushes:
            await flush()

    workers = [
        asyncio.create_task(_repeat(memory.run_jobs, "jobs", _PAUSE, stopping)),
        asyncio.create_task(_repeat(write, "writing the journal", _NOTED, stopping)),
    ]
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait(workers, timeout=_GRACE)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await _attempt(write, "writing the journal")
        await memory.close()


async def _repeat(
    work: Callable[[], Awaitable[object]], name: str, pause: float, stopping: asyncio.Event
) -> None:
    """Work again and again until the end."""
    while not stopping.is_set():
        await _attempt(work, name)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), pause)


async def _attempt(work: Callable[[], Awaitable[object]], name: str) -> None:
    try:
        await work()
    except Exception as error:  # the store may be away for a while; the next time it may answer
        log.warning(f"{name} failed", kind=type(error).__name__)
