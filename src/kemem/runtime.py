"""The store and the models behind a memory: opened with the first call, closed once."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from reprlib import repr as shown
from typing import Any, cast
from urllib.parse import urlsplit

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from kemem.add.edit import Policy
from kemem.add.embed import learn_width, prepare
from kemem.errors import InvalidArgument, Unavailable
from kemem.fork import ProcessBound
from kemem.ports import (
    LLM,
    Deps,
    Embedder,
    GraphMirror,
    OnReply,
    Reply,
    Reranker,
    Store,
    VectorIndex,
)
from kemem.ports.ontology import CurrentOntology
from kemem.ports.turns import Turns
from kemem.records import Micros, Note
from kemem.records.batch import Batch, Use
from kemem.results import Hit
from kemem.settings import Settings, split_url
from kemem.webhooks.deliveries import Deliveries

BACKENDS = "kemem.backends"  # entry points by URL scheme: functions from Settings to a Store
_PORTS: dict[str, type] = {
    **{"store": Store, "vectors": VectorIndex, "graph": GraphMirror},
    **{"embedder": Embedder, "reranker": Reranker},
}
_DAY = 86_400.0  # seconds
_LEARN_PAUSE = 60.0  # seconds until a model that failed is asked for its width again
_COUNTED_HITS = 10  # the first hits of a search count as uses
_MAX_COUNTS = 10_000  # notes with counts that wait to be written

counts_hits = ContextVar("counts_hits", default=True)  # off while an operator tries a search

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class Backends:
    """Objects that an application passes instead of settings; they win over settings."""

    store: Store | None = None
    vectors: VectorIndex | None = None
    graph: GraphMirror | None = None
    embedder: Embedder | None = None
    llm: object = None
    reranker: Reranker | None = None
    clock: Callable[[], Micros] | None = None

    def __post_init__(self) -> None:
        for name, port in _PORTS.items():
            backend = getattr(self, name)
            needs = [it for it in (*vars(port), *port.__annotations__) if not it.startswith("_")]
            # The class first: a property may load a model.
            lacks = [it for it in needs if not hasattr(type(backend), it)]
            lacks = [it for it in lacks if not hasattr(backend, it)]
            if backend is not None and lacks:
                problem = f"be a {port.__name__}, with {', '.join(lacks)}"
                raise InvalidArgument(f"{name} must {problem}, not {shown(backend)}", field=name)
        if self.clock is not None and not callable(self.clock):
            reason = f"clock must be a function of microseconds, not {shown(self.clock)}"
            raise InvalidArgument(reason, field="clock")


class HitCounter:
    """How often notes are found, counted in memory and written by later work, never by a search.

    A crash loses the counts that were not written yet.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._is_failing = False  # which is said once

    def count(self, hits: Iterable[Hit]) -> None:
        """Count the first hits of a search; at most `_MAX_COUNTS` notes wait to be written."""
        for hit in list(hits)[:_COUNTED_HITS] if counts_hits.get() else ():
            key = (hit.row.agent_id, hit.row.user_id, hit.row.id)
            if isinstance(hit.row, Note) and (
                key in self._counts or len(self._counts) < _MAX_COUNTS
            ):
                self._counts[key] += 1

    async def flush(self, deps: Deps) -> None:
        """Write the counts; those that cannot be written now are kept for the next time."""
        counts, self._counts = self._counts, Counter()
        now = deps.clock()
        used = tuple(Use(*key, count, now) for key, count in counts.items())
        was_failing, self._is_failing = self._is_failing, False
        try:
            if used:
                await deps.store.apply(Batch(used=used))
        except Unavailable as error:
            self._counts.update(counts)
            self._is_failing = True
            if not was_failing:
                log.warning("%s; counts of hits are kept for later", error.message)


class Runtime(ProcessBound):
    """The dependencies of a memory, shared by its handles."""

    def __init__(self, settings: Settings, backends: Backends) -> None:
        self.settings = settings
        self.policy = Policy(
            settings.forget_limit, settings.forget_below, settings.forget_half_life_days
        )
        self.hits = HitCounter()
        self.turns = Turns()  # of chats, to which jobs give way
        self.deliveries = Deliveries()  # of webhooks
        self.on_reply: list[OnReply] = []  # listeners; they may come and go at any time
        self.on_recall: list[Callable[[Any], None]] = []
        self._backends = backends
        self._lock = asyncio.Lock()
        self._deps: Deps | None = None
        self._closed = False
        self._is_prepared = False
        self._may_learn_at = 0.0
        self._forgot_at: float | None = None

    async def deps(self) -> Deps:
        """The dependencies; the first call opens the store."""
        self.use()
        if self._deps and not self._closed:
            return self._deps
        async with self._lock:
            if self._closed:
                raise Unavailable("this memory is closed")
            if self._deps is None:
                deps = await asyncio.to_thread(open_deps, self.settings, self._backends)
                self._deps = replace(deps, on_reply=self.replied)
                await _recall_width(self._deps)
        return self._deps

    def replied(self, seconds: float, usable: bool, reply: Reply | None) -> None:
        """Call the listeners with a reply of the LLM."""
        for listener in self.on_reply:
            listener(seconds, usable, reply)

    def recalled(self, report: Any, callback: Callable[[Any], None] | None) -> None:
        """Call the listeners with a recall that has ended, then the callback of its handle."""
        for listener in (*self.on_recall, *filter(None, [callback])):
            listener(report)

    async def prepared(self, *, learn: bool = False) -> Deps:
        """The dependencies for work that makes vectors: the embedding model is recorded first.

        With `learn` a model of unknown width is asked for it; others wait for its first answer.
        """
        deps = await self.deps()
        if not self._is_prepared:
            if learn and time.monotonic() >= self._may_learn_at:
                try:
                    await learn_width(deps)
                except Unavailable as error:
                    log.warning("%s; vectors follow later", error.message)
                    self._may_learn_at = time.monotonic() + _LEARN_PAUSE
            self._is_prepared = await prepare(deps)
        return deps

    def open_chat_client(self) -> Any:
        """A client of the package openai for the server of the settings."""
        from kemem.backends.client import open_client

        key, seconds = self.settings.llm_api_key, self.settings.llm_timeout_seconds
        key_text = key.get_secret_value() if key else None
        return open_client(self.settings.llm_base_url, key_text, timeout=seconds, max_retries=1)

    def forgetting_is_due(self) -> bool:
        """Whether a day has passed since this was last asked and true."""
        now = time.monotonic()
        due = self._forgot_at is None or now - self._forgot_at >= _DAY
        self._forgot_at = now if due else self._forgot_at
        return due

    async def close(self) -> None:
        """Close files and connections, for good; objects that were passed in stay open."""
        if self.is_forked:  # connections and threads are the parent's
            return
        async with self._lock:
            was_closed, self._closed = self._closed, True
            if self._deps is None or was_closed:
                return
            await self.deliveries.close()
            await self.hits.flush(self._deps)
            if self._deps.graph and self._backends.graph is None:
                await self._deps.graph.close()
            if self._backends.store is None:
                await self._deps.store.close()
            for name in ("llm", "embedder", "reranker"):
                close = getattr(getattr(self._deps, name), "close", None)
                if close and getattr(self._backends, name) is None:
                    await close()


def open_deps(settings: Settings, backends: Backends) -> Deps:
    """The dependencies that settings name; objects passed in win. Opens the store last."""
    embedder = backends.embedder or open_embedder(settings)
    return Deps(
        llm=open_llm(settings, backends.llm),
        embedder=embedder,
        previous=open_previous(embedder),
        graph=backends.graph or open_graph(settings),
        vectors=backends.vectors,
        reranker=backends.reranker or open_reranker(settings),
        reads=backends.reranker is None and settings.reranker == "local",
        clock=backends.clock or system_clock,
        llm_timeout=settings.llm_timeout_seconds,
        llm_context=settings.llm_context_tokens,
        ontology=CurrentOntology(settings.ontology),
        store=backends.store or open_store(settings),
    )


def system_clock() -> Micros:
    """Now, in UTC microseconds."""
    return time.time_ns() // 1000


def open_llm(settings: Settings, client: object) -> LLM | None:
    """The LLM that a client object speaks to, or the one that settings name; None without."""
    timeout = settings.llm_timeout_seconds
    if client is not None:
        from kemem.backends.llm import as_llm

        return as_llm(client, settings.llm_model, timeout)
    if not settings.has_llm:
        return None
    from kemem.backends.llm import OpenAILLM

    key = settings.llm_api_key
    return OpenAILLM.connect(
        base_url=settings.llm_base_url,
        api_key=key.get_secret_value() if key else None,
        model=settings.llm_model,
        timeout=timeout,
    )


def open_graph(settings: Settings) -> GraphMirror | None:
    """The graph database beside the store, if there is one."""
    if settings.neo4j_url is None:
        return None
    from kemem.backends.neo4j import Neo4jGraph

    password = settings.neo4j_password
    return Neo4jGraph.connect(
        settings.neo4j_url,
        settings.neo4j_user,
        password.get_secret_value() if password else "",
        settings.neo4j_database,
    )


def open_store(settings: Settings) -> Store:
    """The database of the settings, created or migrated as needed."""
    # A process may serve all projects: together they keep within the setting.
    cache_bytes = (settings.vector_cache_mb << 20) // (1 + len(settings.of_process.projects))
    if settings.database_url is None:
        from kemem.store.sqlite import Sqlite
        from kemem.store.store import SqlStore

        return SqlStore(Sqlite(settings.data_dir), cache_bytes)
    url = _database_url(settings.database_url, "database_url")
    scheme = url.get_backend_name()
    if scheme == "postgresql":
        from kemem.store.postgres import Postgres
        from kemem.store.replica import Replica
        from kemem.store.store import SqlStore

        limits = (settings.database_connections, settings.database_timeout_seconds)
        if settings.database_replica_url is None:
            return SqlStore(Postgres(url, *limits), cache_bytes)
        standby = _database_url(settings.database_replica_url, "database_replica_url")
        return SqlStore(Postgres(url, *limits), cache_bytes, lambda: Replica(url, standby, *limits))
    for plugin in entry_points(group=BACKENDS, name=scheme):
        return cast(Store, plugin.load()(settings))
    installed = [f"{each.name}://" for each in entry_points(group=BACKENDS)]
    raise InvalidArgument(
        f"database_url must begin with {' or '.join(['postgresql://', *installed])}, "
        f"not {scheme}://; for SQLite set data_dir instead",
        field="database_url",
    )


async def check_place(settings: Settings) -> None:
    """Unavailable where the store cannot be used: a directory is wrong now or never.

    A server may be away for a while; of one that answers it is asked whether the store was moved.
    """
    if settings.database_url is None:
        await open_store(settings).close()
        return
    url = _database_url(settings.database_url, "database_url")
    if url.get_backend_name() == "postgresql":
        from kemem.store.postgres import check_moved

        check_moved(url)


def measure_replica(settings: Settings) -> float | None:
    """How many seconds the replica of the settings is behind; None without one.

    Unavailable where it cannot be read from.
    """
    if settings.database_url is None or settings.database_replica_url is None:
        return None
    from kemem.store.replica import measure_delay

    url = _database_url(settings.database_url, "database_url")
    return measure_delay(url, _database_url(settings.database_replica_url, "database_replica_url"))


def _database_url(text: str, field: str) -> URL:
    try:
        return make_url(text)
    except ArgumentError:
        raise InvalidArgument(f"{field} is not a URL", field=field) from None


def open_embedder(settings: Settings) -> Embedder | None:
    """The embedder of the settings; its model is loaded or called on first use."""
    kind, _, model = settings.embedder.partition(":")
    match kind:
        case "local":
            from kemem.backends.local import LocalEmbedder

            return LocalEmbedder()
        case "fastembed":
            from kemem.backends.fastembed import FastEmbedder

            return FastEmbedder(model)
        case "openai":
            from kemem.backends.endpoint import Endpoint
            from kemem.backends.openai_embedder import OpenAIEmbedder

            model, url = split_url(model)
            key = _embedder_key(settings, url)
            endpoint = Endpoint(url, "/embeddings", api_key=key, setting="KEMEM_EMBEDDER_API_KEY")
            return OpenAIEmbedder(model, endpoint, settings.embedder_timeout_seconds)
        case _:
            return None


def open_previous(embedder: Embedder | None) -> Embedder | None:
    """The embedder that comes with the package, where another is in use: it can be asked always.

    A store may have vectors of it that are to be replaced.
    """
    if embedder is None:
        return None
    from kemem.backends.local import LocalEmbedder

    return None if embedder.name == LocalEmbedder.name else LocalEmbedder()


def open_reranker(settings: Settings) -> Reranker | None:
    """The reranker of the settings, called on first use; None without."""
    model, url = split_url(settings.reranker)
    if url is None:
        return None
    from kemem.backends.endpoint import Endpoint
    from kemem.backends.reranker import HttpReranker

    key = settings.reranker_api_key
    secret = key.get_secret_value() if key else None
    endpoint = Endpoint(url, api_key=secret, setting="KEMEM_RERANKER_API_KEY")
    return HttpReranker(model, endpoint)


def _embedder_key(settings: Settings, url: str | None) -> str | None:
    """The embedder's key, or that of the LLM where both are on one server: no other may see it."""
    own, other = (it and urlsplit(it)[:2] for it in (url, settings.llm_base_url))
    key = settings.embedder_api_key or (settings.llm_api_key if own == other else None)
    return key.get_secret_value() if key else None


async def _recall_width(deps: Deps) -> None:
    """Let the store tell how wide the vectors of a model are, if it had that model before."""
    embedder = deps.embedder
    if embedder and not embedder.width and (model := (await deps.store.info()).model):
        embedder.width = model.width if model.name == embedder.name else 0
