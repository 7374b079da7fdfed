"""The process that serves a memory, whatever the protocol: its log and its background worker."""

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog

from kemem.errors import StoreMoved, Unavailable
from kemem.memory import AsyncMemory
from kemem.ports.turns import QUIET
from kemem.serve.telemetry.seldom import seldom
from kemem.settings import Settings
from kemem.sync import Memory

_JOBS_SECONDS = 5.0  # seconds between two runs of the outbox,
_QUIET = QUIET / 1_000_000  # or so many after one that did something
_FLUSH_SECONDS = 10.0  # seconds between two flushes
_GRACE = 1.0  # seconds that work in progress gets at the end

_TALK = ("I moved to Porto last week.", "我上周搬到了杭州。")
_QUESTIONS = ("Where do I live now?", "我现在住在哪里？")

log = structlog.get_logger("kemem")


def configure_logs(level: str) -> None:
    """Log from `level` on, libraries included, one JSON object a line on standard error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    details = (structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"))
    as_json = structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[*details, as_json],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    formatter = structlog.stdlib.ProcessorFormatter
    chain: Any = [formatter.remove_processors_meta, as_json]
    others = logging.StreamHandler(sys.stderr)
    others.setFormatter(formatter(processors=chain, foreign_pre_chain=details))
    logging.basicConfig(level=number, handlers=[others], force=True)
    logging.getLogger("mcp").setLevel(logging.WARNING)  # below, it shows what is sent
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # and this the addresses of webhooks


@asynccontextmanager
async def background_worker(
    memory: AsyncMemory, *flushes: Callable[[], Awaitable[None]]
) -> AsyncIterator[Callable[[], None]]:
    """Run jobs of the outbox and the flushes at intervals; close the memory at the end.

    Yields a function that makes it run jobs at once.
    """
    stopping, has_jobs = asyncio.Event(), asyncio.Event()
    project = memory.settings.project
    whose = f" of project {project}" if project else ""

    async def write() -> None:
        for flush in flushes:
            await flush()

    async def repeat(work: _Attempts, pause: float, wake: asyncio.Event) -> None:
        while not stopping.is_set():
            done = await work()
            with suppress(TimeoutError):  # what was done may have left a job that waits for quiet
                await asyncio.wait_for(wake.wait(), min(pause, _QUIET) if done else pause)
            if wake is has_jobs:
                wake.clear()

    run_jobs = _Attempts(partial(memory.run_jobs, debounce=True), f"jobs{whose}")
    journal = _Attempts(write, f"writing the journal{whose}")
    workers = [
        asyncio.create_task(repeat(run_jobs, _JOBS_SECONDS, has_jobs)),
        asyncio.create_task(repeat(journal, _FLUSH_SECONDS, stopping)),
    ]
    try:
        yield has_jobs.set
    finally:
        stopping.set()
        has_jobs.set()
        await asyncio.wait(workers, timeout=_GRACE)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await journal()
        await memory.close()


class _Attempts:
    """Work that is tried again and again; it is said once that it fails, and that it goes on."""

    def __init__(self, work: Callable[[], Awaitable[object]], name: str) -> None:
        self._work, self._name = work, name
        self._is_failing = False

    async def __call__(self) -> object:
        was_failing, self._is_failing = self._is_failing, False
        try:
            done = await self._work()
        except Exception as error:  # the store may be away for a while; the next time it may answer
            self._is_failing = True
            if isinstance(error, StoreMoved):
                seldom.warn_moved(error)
            elif not was_failing:
                reason = {"reason": error.message} if isinstance(error, Unavailable) else {}
                log.warning(f"{self._name} failed", kind=type(error).__name__, **reason)
            return None
        if was_failing:
            log.warning(f"{self._name} succeeded again")
        return done


@contextmanager
def warming_up(settings: Settings) -> Iterator[Callable[[], None]]:
    """Yields a function that starts a thread to do once what first requests would wait for.

    That takes seconds: modules are imported, the embedding model is loaded, patterns and statements
    are compiled. The thread adds and searches as users do, in a store of its own, which it removes.
    """
    stopping = threading.Event()
    thread = threading.Thread(target=_add_and_search, args=(settings, stopping))
    try:
        yield thread.start
    finally:
        stopping.set()
        if thread.ident is not None:  # it was started
            thread.join()


def _add_and_search(settings: Settings, stopping: threading.Event) -> None:
    alone: dict[str, Any] = {"llm": "none", "reranker": "none", "neo4j_url": None}
    alone |= {"database_url": None, "database_replica_url": None}
    if settings.embedder != "local":
        alone["embedder"] = "none"  # a server of models is asked only for what users say
    try:
        with TemporaryDirectory() as folder:
            own = settings.model_copy(update={**alone, "data_dir": Path(folder)})
            with Memory(settings=own) as memory:
                for said in _TALK:
                    if not stopping.is_set():
                        memory.add(said, user_id="warm-up")
                for question in _QUESTIONS:
                    if not stopping.is_set():
                        memory.search(question, user_id="warm-up")
        # What is loaded by now stays: to look through it for garbage would take 50 ms each time.
        gc.collect()
        gc.freeze()
    except Exception as error:  # a full disk, say: the server answers all the same
        log.warning("warming up failed", kind=type(error).__name__)
