"""Stale-while-revalidate: values that take long to compute, computed as often as they may cost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

T = TypeVar("T")

CHEAP = 1.0  # seconds: what takes no longer is computed each time
_REST = 20  # times its own duration an expensive value is kept: it costs 5 % of the time at most

log = structlog.get_logger("kemem")


class StaleWhileRevalidate(Generic[T]):
    """A value that is served stale while a new one is computed in the background."""

    def __init__(
        self,
        compute: Callable[[], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        patience: float = 0.4,
    ) -> None:
        self._compute = compute
        self._clock = clock
        self._patience = patience  # seconds that a reader waits for a new value
        self._next = float("-inf")  # when a new value may be computed
        self._running: asyncio.Task[None] | None = None
        self.last: T | None = None

    async def get(self) -> T | None:
        """The newest value; None while the first is being computed, or where that failed."""
        if self._running is None and self._clock() >= self._next:
            self._running = asyncio.create_task(self._revalidate())
        if self._running is not None:
            await asyncio.wait([self._running], timeout=self._patience)
        return self.last

    async def _revalidate(self) -> None:
        begun = self._clock()
        try:
            self.last = await self._compute()
        except Exception as error:  # the store may be away for a while: the last value is shown
            log.warning("figures could not be computed", kind=type(error).__name__)
        finally:
            ended = self._clock()
            taken = ended - begun
            self._next = ended + (_REST * taken if taken > CHEAP else 0)
            self._running = None
