"""From settings to deps: the only file that knows the names of backends."""

import time
from collections.abc import Callable

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from kemem.errors import InvalidArgument
from kemem.ports import LLM, Deps, Embedder, GraphMirror, Reranker, Store
from kemem.records import Micros
from kemem.settings import Settings


def system_clock() -> Micros:
    """Now, in UTC microseconds."""
    return time.time_ns() // 1000


def assemble(
    settings: Settings,
    embedder: Embedder | None,
    llm: object,
    reranker: Reranker | None,
    clock: Callable[[], Micros] | None,
) -> Deps:
    """The parts that settings name; models given as objects win. Opens the store."""
    model = open_llm(settings, llm)  # before the store: what is wrong leaves nothing open
    return Deps(
        store=open_store(settings),
        embedder=embedder or open_embedder(settings),
        clock=clock or system_clock,
        llm=model,
        reranker=reranker,
        graph=open_graph(settings),
        llm_timeout=settings.llm_timeout_seconds,
    )


def open_llm(settings: Settings, given: object) -> LLM | None:
    """The model given as an object, or the one that settings name; None where there is neither."""
    timeout = settings.llm_timeout_seconds
    if given is not None:
        from kemem.backends.clients import as_llm

        return as_llm(given, settings.llm_model, timeout)
    if not settings.has_llm:
        return None
    from kemem.backends.openai import OpenAILLM

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
    cache_bytes = settings.vector_cache_mb << 20
    if settings.database_url is None:
        from kemem.store.sqlite import Sqlite
        from kemem.store.store import SqlStore

        return SqlStore(Sqlite(settings.data_dir), cache_bytes)
    try:
        url = make_url(settings.database_url)
    except ArgumentError:
        raise InvalidArgument("database_url is not a URL", field="database_url") from None
    match url.get_backend_name():
        case "postgresql":
            from kemem.store.postgres import Postgres
            from kemem.store.store import SqlStore

            return SqlStore(Postgres(url), cache_bytes)
        case other:
            raise InvalidArgument(
                f"database_url must begin with postgresql://, not {other}://; "
                "for SQLite give data_dir instead",
                field="database_url",
            )


def open_embedder(settings: Settings) -> Embedder | None:
    """The embedder of the settings; its model is loaded on first use."""
    match settings.embedder:
        case "local":
            from kemem.backends.local import LocalEmbedder

            return LocalEmbedder()
        case "none":
            return None
