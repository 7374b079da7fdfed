"""Replies that somebody waits for, to which background calls of a model give way."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

from kemem.records import Micros, Scope

QUIET: Micros = 3_000_000  # since the last message of a session, before a model is asked about it


class Place:
    """A place in the queue of one session's turns."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._is_held = False

    async def wait(self, seconds: float) -> None:
        """Until the turns before this one have ended, or so long: one may never be read on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                self._is_held = await self._lock.acquire()

    def leave(self) -> None:
        """Let the next turn begin."""
        if self._is_held:
            self._is_held = False
            self._lock.release()


class Turns:
    """Turns of chats that wait for the model, and the background work that may be in their way."""

    def __init__(self) -> None:
        self._waiting = 0
        self._work: set[asyncio.Task[None]] = set()
        self._interrupted: set[asyncio.Task[None]] = set()
        self._sessions: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()

    def place(self, session: Scope) -> Place:
        """A place behind the turns of a session that have begun or wait in this process."""
        return Place(self._sessions.setdefault(session, asyncio.Lock()))

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for a reply."""
        return self._waiting > 0

    @contextmanager
    def reply(self) -> Iterator[None]:
        """A reply of the model, before which background work is interrupted."""
        self._waiting += 1
        for task in self._work - self._interrupted:
            self._interrupted.add(task)
            task.cancel()
        try:
            yield
        finally:
            self._waiting -= 1

    async def run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do background work; False where a reply has interrupted it."""
        task = asyncio.create_task(work)
        self._work.add(task)
        try:
            await task
        except asyncio.CancelledError:
            if task in self._interrupted and task.cancelled():
                return False
            task.cancel()
            raise
        finally:
            self._work.discard(task)
            self._interrupted.discard(task)
        return True
