"""Figures that take a while to make."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

T = TypeVar("T")

PATIENCE = 0.4  # seconds that a page waits for new figures before it shows the last
_REST = 20  # times as long as it took, nothing new is made: at most a twentieth of the time goes

log = structlog.get_logger("kemem")


class Recent(Generic[T]):
    """A figure made anew as often as its cost allows; meanwhile the last one is shown."""

    def __init__(
        self,
        make: Callable[[], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        self._make = make
        self._clock = clock
        self._patience = patience
        self._last: T | None = None
        self._next = float("-inf")  # when a new one may be made
        self._making: asyncio.Task[None] | None = None

    async def get(self) -> T | None:
        """The newest one; None while the first is being made, or where it cannot be made."""
        if self._making is None and self._clock() >= self._next:
            self._making = asyncio.create_task(self._renew())
        if self._making is not None:
            await asyncio.wait([self._making], timeout=self._patience)
        return self._last

    async def _renew(self) -> None:
        begun = self._clock()
        try:
            self._last = await self._make()
        except Exception as error:  # the page shows what it has; the store may be away for a while
            log.warning("figures could not be made", kind=type(error).__name__)
        finally:
            ended = self._clock()
            self._next = ended + _REST * (ended - begun)
            self._making = None
