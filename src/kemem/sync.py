"""Memory: the blocking mirror of AsyncMemory, over one event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kemem.errors import Unavailable
from kemem.memory import AsyncMemory, Time
from kemem.ports import Embedder
from kemem.settings import Settings
from kemem.types import Health, Hit, Ingested, Job, Message, Messages, Micros, Page

T = TypeVar("T")


class Memory:
    """AsyncMemory for code that does not await; it also works inside a running event loop.

    memory = Memory()
    memory.ingest("我不吃辣", user_id="u_1")
    print(memory.hybrid_search("火锅", user_id="u_1"))
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        database_url: str | None = None,
        embedder: Embedder | None = None,
        settings: Settings | None = None,
        clock: Callable[[], Micros] | None = None,
    ) -> None:
        self._memory = AsyncMemory(
            data_dir=data_dir,
            database_url=database_url,
            embedder=embedder,
            settings=settings,
            clock=clock,
        )
        self._portal = _Portal()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._memory.settings

    def ingest(
        self,
        messages: Messages,
        user_id: str,
        *,
        agent_id: str = "default",
        session_id: str = "default",
    ) -> Ingested:
        return self._portal.call(
            self._memory.ingest(messages, user_id, agent_id=agent_id, session_id=session_id)
        )

    def messages(
        self,
        user_id: str,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> Page[Message]:
        return self._portal.call(
            self._memory.messages(user_id, since, until, role, page_size, cursor)
        )

    def lexical_search(
        self,
        query_text: str,
        user_id: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> Page[Hit]:
        return self._portal.call(
            self._memory.lexical_search(
                query_text,
                user_id,
                since=since,
                until=until,
                role=role,
                page_size=page_size,
                cursor=cursor,
            )
        )

    def semantic_search(
        self,
        query_text: str | None = None,
        user_id: str | None = None,
        *,
        query_embedding: Sequence[float] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        top_k: int = 20,
        min_score: float | None = None,
    ) -> list[Hit]:
        return self._portal.call(
            self._memory.semantic_search(
                query_text,
                user_id,
                query_embedding=query_embedding,
                since=since,
                until=until,
                role=role,
                top_k=top_k,
                min_score=min_score,
            )
        )

    def hybrid_search(
        self,
        query_text: str,
        user_id: str,
        limit: int = 10,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> list[Hit]:
        return self._portal.call(
            self._memory.hybrid_search(
                query_text,
                user_id,
                limit,
                since,
                until,
                role,
                agent_id=agent_id,
                session_id=session_id,
            )
        )

    def neighbors(
        self, message_id: str, user_id: str, before: int = 20, after: int = 0
    ) -> list[Message]:
        return self._portal.call(self._memory.neighbors(message_id, user_id, before, after))

    def run_jobs(self) -> int:
        return self._portal.call(self._memory.run_jobs())

    def jobs(self, limit: int = 100) -> list[Job]:
        return self._portal.call(self._memory.jobs(limit))

    def reindex(self) -> int:
        return self._portal.call(self._memory.reindex())

    def health(self) -> Health:
        return self._portal.call(self._memory.health())

    def close(self) -> None:
        self._portal.close(self._memory.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Portal:
    """An event loop in a daemon thread, started with the first call."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns."""
        with self._turn:  # until the work is handed over: a loop that has closed would lose it
            if self._closed:
                work.close()
                raise Unavailable("this memory is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="kemem-portal", daemon=True
                )
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("this memory was closed before the call ended") from None
        except BaseException:
            future.cancel()  # interrupted while waiting: the work must not go on by itself
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the last work and stop the loop; later calls are refused, another close waits."""
        with self._turn:
            loop, self._loop, self._closed = self._loop, None, True
            if loop is None or self._thread is None:
                return
            try:
                asyncio.run_coroutine_threadsafe(_wind_down(loop, last()), loop).result()
            finally:
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join()
                loop.close()


async def _wind_down(loop: asyncio.AbstractEventLoop, last: Coroutine[Any, Any, None]) -> None:
    """Do the last work and end what still runs, so that nothing is destroyed half way."""
    await last
    others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_default_executor()
