"""Memory: the blocking mirror of AsyncMemory, over one event loop in a thread of its own."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from copy import copy
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kemem.errors import Conflict, KeMemError, Unavailable
from kemem.fork import ProcessBound
from kemem.hooks import Stage
from kemem.memory import AsyncMemory
from kemem.ports import Embedder, GraphMirror, Reranker, Store, VectorIndex
from kemem.records import Micros
from kemem.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _blocking(
    method: Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Memory, P], T]":
    """The same method, waiting for its end."""

    def wait(self: "Memory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(method(self._memory, *args, **kwargs))

    return functools.update_wrapper(wait, method)


class Memory:
    """AsyncMemory for code that does not await; it also works inside a running event loop.

    memory = Memory()
    memory.add("我不吃辣", user_id="u_1")
    print(memory.search("火锅", user_id="u_1"))
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        database_url: str | None = None,
        store: Store | None = None,
        vectors: VectorIndex | None = None,
        graph: GraphMirror | None = None,
        embedder: Embedder | None = None,
        llm: object = None,
        reranker: Reranker | None = None,
        settings: Settings | None = None,
        clock: Callable[[], Micros] | None = None,
    ) -> None:
        self._memory = AsyncMemory(
            data_dir=data_dir,
            database_url=database_url,
            store=store,
            vectors=vectors,
            graph=graph,
            embedder=embedder,
            llm=llm,
            reranker=reranker,
            settings=settings,
            clock=clock,
        )
        self._portal = Portal()
        self._is_handle = False

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._memory.settings

    def for_user(
        self,
        user_id: str,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        sensitive: bool = False,
    ) -> Self:
        """A handle that is bound to one user: no argument of any call leads to another's data.

        It sees no sensitive notes and messages unless that is granted, by `sensitive`.
        """
        handle = copy(self)
        handle._memory = self._memory.for_user(
            user_id, agent_id=agent_id, session_id=session_id, sensitive=sensitive
        )
        handle._is_handle = True
        return handle

    def process(
        self, function: F, *, name: str | None = None, stage: Stage = "before", timeout: float = 5.0
    ) -> F:
        """Register a function of your own; see AsyncMemory.process."""
        return self._memory.process(function, name=name, stage=stage, timeout=timeout)

    ingest = _blocking(AsyncMemory.ingest)
    messages = _blocking(AsyncMemory.messages)
    lexical_search = _blocking(AsyncMemory.lexical_search)
    semantic_search = _blocking(AsyncMemory.semantic_search)
    hybrid_search = _blocking(AsyncMemory.hybrid_search)
    neighbors = _blocking(AsyncMemory.neighbors)
    add = _blocking(AsyncMemory.add)
    learn = _blocking(AsyncMemory.learn)
    search = _blocking(AsyncMemory.search)
    get = _blocking(AsyncMemory.get)
    sources = _blocking(AsyncMemory.sources)
    get_all = _blocking(AsyncMemory.get_all)
    update = _blocking(AsyncMemory.update)
    delete = _blocking(AsyncMemory.delete)
    delete_all = _blocking(AsyncMemory.delete_all)
    history = _blocking(AsyncMemory.history)
    generation = _blocking(AsyncMemory.generation)
    recall = _blocking(AsyncMemory.recall)
    extract = _blocking(AsyncMemory.extract)
    graph = _blocking(AsyncMemory.graph)
    summarize = _blocking(AsyncMemory.summarize)
    context = _blocking(AsyncMemory.context)
    checkpoint = _blocking(AsyncMemory.checkpoint)
    restore_checkpoint = _blocking(AsyncMemory.restore_checkpoint)
    end_session = _blocking(AsyncMemory.end_session)
    forget = _blocking(AsyncMemory.forget)
    forgotten = _blocking(AsyncMemory.forgotten)
    agents = _blocking(AsyncMemory.agents)
    users = _blocking(AsyncMemory.users)
    sessions = _blocking(AsyncMemory.sessions)
    session = _blocking(AsyncMemory.session)
    notes = _blocking(AsyncMemory.notes)
    run_jobs = _blocking(AsyncMemory.run_jobs)
    jobs = _blocking(AsyncMemory.jobs)
    retry_job = _blocking(AsyncMemory.retry_job)
    retry_jobs = _blocking(AsyncMemory.retry_jobs)
    reindex = _blocking(AsyncMemory.reindex)
    workspaces = _blocking(AsyncMemory.workspaces)
    backup = _blocking(AsyncMemory.backup)
    restore = _blocking(AsyncMemory.restore)
    health = _blocking(AsyncMemory.health)
    census = _blocking(AsyncMemory.census)

    def close(self) -> None:
        """Let go of files and connections; a handle closes nothing."""
        if not self._is_handle:
            self._portal.close(self._memory.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Portal(ProcessBound):
    """An event loop in a daemon thread, started with the first call."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns."""
        try:
            self.use()
            if threading.current_thread() is self._thread:
                raise Conflict(
                    "a hook called Memory from Memory's own event loop; use AsyncMemory there"
                )
        except KeMemError:
            work.close()
            raise
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
        if self.is_forked:  # the thread and the loop are the parent's
            return
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
