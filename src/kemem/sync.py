"""Memory: the blocking mirror of AsyncMemory, over one event loop in a thread of its own."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from copy import copy
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kemem.errors import Conflict, KeMemError, Unavailable
from kemem.fork import ProcessBound
from kemem.hooks import Stage
from kemem.memory import AsyncMemory
from kemem.ontology import AsyncOntology
from kemem.ports import Embedder, GraphMirror, Reranker, Store, VectorIndex
from kemem.privacy import AsyncPrivacy
from kemem.records import Micros
from kemem.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M")
F = TypeVar("F", bound=Callable[..., Any])


def blocking(
    method: Callable[Concatenate[M, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The same method, waiting for its end: of a class that has a `_memory` and a `_portal`."""

    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            work = method(self._memory, *args, **kwargs)
        except TypeError as error:  # wrong arguments: nothing of a coroutine has run yet
            own = f"{type(self).__name__}.{method.__name__}"
            raise TypeError(str(error).replace(method.__qualname__, own, 1)) from None
        done: T = self._portal.call(work)
        return done

    functools.update_wrapper(wait, method)
    wait.__qualname__ = method.__qualname__.removeprefix("Async")
    return wait


class Memory:
    """AsyncMemory for blocking code; it also works inside a running event loop.

    memory = Memory()
    memory.add("我不吃辣", user_id="u_1")
    print(memory.search("火锅", user_id="u_1"))
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        database_url: str | None = None,
        project: str | None = None,
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
            project=project,
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
    def privacy(self) -> "Privacy":
        """What is kept of one user: an inventory, an export, erasing with a receipt."""
        return Privacy(self._memory.privacy, self._portal)

    @property
    def ontology(self) -> "Ontology":
        """Own types of notes, entities and relations; not on a handle."""
        return Ontology(self._memory.ontology, self._portal)

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

    def for_agent(self, agent_id: str) -> Self:
        """A handle that is bound to one agent: it reaches all users of that agent and no other."""
        handle = copy(self)
        handle._memory = self._memory.for_agent(agent_id)
        handle._is_handle = True
        return handle

    def process(
        self, function: F, *, name: str | None = None, stage: Stage = "before", timeout: float = 5.0
    ) -> F:
        """Register a function of your own; see AsyncMemory.process."""
        return self._memory.process(function, name=name, stage=stage, timeout=timeout)

    ingest = blocking(AsyncMemory.ingest)
    messages = blocking(AsyncMemory.messages)
    lexical_search = blocking(AsyncMemory.lexical_search)
    semantic_search = blocking(AsyncMemory.semantic_search)
    hybrid_search = blocking(AsyncMemory.hybrid_search)
    neighbors = blocking(AsyncMemory.neighbors)
    add = blocking(AsyncMemory.add)
    learn = blocking(AsyncMemory.learn)
    search = blocking(AsyncMemory.search)
    get = blocking(AsyncMemory.get)
    sources = blocking(AsyncMemory.sources)
    get_all = blocking(AsyncMemory.get_all)
    update = blocking(AsyncMemory.update)
    delete = blocking(AsyncMemory.delete)
    delete_all = blocking(AsyncMemory.delete_all)
    history = blocking(AsyncMemory.history)
    profile = blocking(AsyncMemory.profile)
    generation = blocking(AsyncMemory.generation)
    recall = blocking(AsyncMemory.recall)
    feedback = blocking(AsyncMemory.feedback)
    extract = blocking(AsyncMemory.extract)
    graph = blocking(AsyncMemory.graph)
    summarize = blocking(AsyncMemory.summarize)
    context = blocking(AsyncMemory.context)
    checkpoint = blocking(AsyncMemory.checkpoint)
    restore_checkpoint = blocking(AsyncMemory.restore_checkpoint)
    end_session = blocking(AsyncMemory.end_session)
    forget = blocking(AsyncMemory.forget)
    forgotten = blocking(AsyncMemory.forgotten)
    ended = blocking(AsyncMemory.ended)
    reopen = blocking(AsyncMemory.reopen)
    agents = blocking(AsyncMemory.agents)
    configure = blocking(AsyncMemory.configure)
    users = blocking(AsyncMemory.users)
    sessions = blocking(AsyncMemory.sessions)
    session = blocking(AsyncMemory.session)
    notes = blocking(AsyncMemory.notes)
    run_jobs = blocking(AsyncMemory.run_jobs)
    jobs = blocking(AsyncMemory.jobs)
    retry_job = blocking(AsyncMemory.retry_job)
    retry_jobs = blocking(AsyncMemory.retry_jobs)
    reindex = blocking(AsyncMemory.reindex)
    workspaces = blocking(AsyncMemory.workspaces)
    backup = blocking(AsyncMemory.backup)
    restore = blocking(AsyncMemory.restore)
    health = blocking(AsyncMemory.health)
    census = blocking(AsyncMemory.census)

    def close(self) -> None:
        """Let go of files and connections; a handle closes nothing."""
        if not self._is_handle:
            self._portal.close(self._memory.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class UserCalls:
    """One user's memory behind an interface that has both blocking and async methods.

    All work of a `Memory` runs on its own event loop, whoever waits for it. An `AsyncMemory`
    belongs to the loop that uses it: only async methods can be called.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        user_id: str,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        self._portal = memory._portal if isinstance(memory, Memory) else None
        self.memory = bind(
            memory._memory if isinstance(memory, Memory) else memory, user_id, agent_id, session_id
        )

    def block(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, for code that does not await."""
        if self._portal is None:
            work.close()
            raise Conflict("pass a kemem.Memory to call methods that block: this is an AsyncMemory")
        return self._portal.call(work)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, for code that awaits."""
        return await (work if self._portal is None else self._portal.wait(work))


def bind(
    memory: AsyncMemory, user_id: str, agent_id: str | None = None, session_id: str | None = None
) -> AsyncMemory:
    """A handle for one user and agent, "default" where none is named; it widens no other handle."""
    bound = memory.scope
    return memory.for_user(
        user_id,
        agent_id=agent_id if agent_id is not None else bound.agent_id or "default",
        session_id=session_id,
        sensitive=bound.is_bound and bound.sensitive,
    )


class Privacy:
    """AsyncPrivacy for code that does not await."""

    def __init__(self, privacy: AsyncPrivacy, portal: "Portal") -> None:
        self._memory, self._portal = privacy, portal

    inventory = blocking(AsyncPrivacy.inventory)
    export = blocking(AsyncPrivacy.export)
    erase = blocking(AsyncPrivacy.erase)


class Ontology:
    """AsyncOntology for code that does not await."""

    def __init__(self, ontology: AsyncOntology, portal: "Portal") -> None:
        self._memory, self._portal = ontology, portal

    get = blocking(AsyncOntology.get)
    stored = blocking(AsyncOntology.stored)
    set = blocking(AsyncOntology.set)
    counts = blocking(AsyncOntology.counts)


class Portal(ProcessBound):
    """An event loop in a daemon thread, started with the first call."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns."""
        future = self._start(work)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("this memory was closed before the call ended") from None
        except BaseException:
            future.cancel()  # interrupted while waiting: the work must not go on by itself
            raise

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, awaited from another event loop, which goes on meanwhile."""
        return await asyncio.wrap_future(self._start(work))

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
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
            return asyncio.run_coroutine_threadsafe(work, self._loop)

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
