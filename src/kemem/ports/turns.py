"""Replies that somebody waits for, to which background calls of a model give way."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class Turns:
    """Turns of chats that wait for the model, and the background work that may be in their way."""

    def __init__(self) -> None:
        self._waiting = 0
        self._work: asyncio.Task[None] | None = None
        self._interrupted = False

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for a reply."""
        return self._waiting > 0

    @contextmanager
    def reply(self) -> Iterator[None]:
        """A reply of the model, before which background work is interrupted."""
        self._waiting += 1
        if self._work is not None:
            self._interrupted = True
            self._work.cancel()
        try:
            yield
        finally:
            self._waiting -= 1

    async def run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do background work; False where a reply has interrupted it."""
        self._interrupted = False
        self._work = asyncio.create_task(work)
        try:
            await self._work
        except asyncio.CancelledError:
            if self._interrupted and self._work.cancelled():
                return False
            self._work.cancel()
            raise
        finally:
            self._work = None
        return True
