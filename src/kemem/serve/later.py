"""Later work, done by whatever process serves a memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from kemem.memory import AsyncMemory

_PAUSE = 5.0  # seconds between two looks for work
_GRACE = 1.0  # seconds that work in progress gets at the end

log = structlog.get_logger("kemem")


@asynccontextmanager
async def working(memory: AsyncMemory) -> AsyncIterator[None]:
    """Do what waits in the outbox until the block ends, then close the memory."""
    stopping = asyncio.Event()
    worker = asyncio.create_task(_work(memory, stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait([worker], timeout=_GRACE)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await memory.close()


async def _work(memory: AsyncMemory, stopping: asyncio.Event) -> None:
    """Look for later work again and again until the end."""
    while not stopping.is_set():
        try:
            await memory.run_jobs()
        except Exception as error:  # the store may be away for a while; the next look may find it
            log.warning("jobs failed", kind=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _PAUSE)
