"""The background worker of a process that serves a memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from kemem.memory import AsyncMemory

_JOBS_SECONDS = 5.0  # seconds between two runs of the outbox
_FLUSH_SECONDS = 10.0  # seconds between two flushes
_GRACE = 1.0  # seconds that work in progress gets at the end

log = structlog.get_logger("kemem")


@asynccontextmanager
async def background_worker(
    memory: AsyncMemory, *flushes: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Run jobs of the outbox and the flushes at intervals; close the memory at the end."""
    stopping = asyncio.Event()

    async def write() -> None:
        for flush in flushes:
            await flush()

    workers = [
        asyncio.create_task(_repeat(memory.run_jobs, "jobs", _JOBS_SECONDS, stopping)),
        asyncio.create_task(_repeat(write, "writing the journal", _FLUSH_SECONDS, stopping)),
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
    """Repeat some work until the worker stops."""
    while not stopping.is_set():
        await _attempt(work, name)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), pause)


async def _attempt(work: Callable[[], Awaitable[object]], name: str) -> None:
    try:
        await work()
    except Exception as error:  # the store may be away for a while; the next time it may answer
        log.warning(f"{name} failed", kind=type(error).__name__)
