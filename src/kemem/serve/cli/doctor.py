"""Checks of settings, store and models, each with advice where something is wrong."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import AliasChoices, SecretStr
from rich.cells import cell_len
from rich.text import Text

from kemem.chat.probe import NOT_ASKED, RecallWay, ToolProbe, settled_way
from kemem.errors import KeMemError, shown_address
from kemem.memory import AsyncMemory
from kemem.ports import Embedder
from kemem.ports.faults import OPENAI
from kemem.records import Health, Matrix
from kemem.records.batch import Job
from kemem.runtime import measure_replica, open_embedder, open_llm
from kemem.serve.cli.language import ErrorPhrase, Phrase, t
from kemem.settings import (
    CONFIG_FILE,
    OF_THE_PROCESS,
    Settings,
    shown_model,
    shown_url,
    unknown_variables,
)
from kemem.sync import Memory

SENTENCES = ("我不吃辣", "I can't eat spicy food")
LEAST_DISK = 256 << 20  # bytes
_PREFIX = "KEMEM_"
_WIDTH = max(map(len, Settings.model_fields))
_JOBS = 1000  # as many as one call gives
DEFAULT = "default"  # the source of a setting that nobody chose
NOTHING = Phrase("")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, fit to be shown, and where it came from."""

    name: str
    value: str | int | None
    source: str

    def __rich__(self) -> Text:
        value = "-" if self.value in (None, "") else self.value
        return Text.assemble(f"{self.name:<{_WIDTH}} {value}  ", (t(self.source), "dim"))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was found and, only where it is wrong, what to do."""

    name: str
    found: Phrase
    advice: Phrase = NOTHING

    @property
    def healthy(self) -> bool:
        return not self.advice

    def __rich__(self) -> Text:
        state = (t("ok"), "green") if self.healthy else (t("wrong"), "bold red")
        head = Text.assemble(state, " " * (6 - cell_len(state[0])), f"{self.name:<12} ")
        advice = f"\n{'':<19}→ {t(self.advice)}" if self.advice else ""
        return head.append(t(self.found) + advice)


def show_settings(settings: Settings, flags: frozenset[str]) -> list[Setting]:
    """Every setting with its source; secrets are masked."""
    variables = {name.upper() for name, value in os.environ.items() if value}
    rows = []
    overridden = settings.of_process.projects.get(settings.project or "", {})
    for name, field in Settings.model_fields.items():
        if settings.project and name in OF_THE_PROCESS:
            continue  # who looks after one project need not know of others
        alias = field.validation_alias  # it may be the variable of another program
        choices = alias.choices if isinstance(alias, AliasChoices) else (f"{_PREFIX}{name}",)
        variable = next((it for it in (str(it).upper() for it in choices) if it in variables), None)
        if name in overridden:
            source = "project"
        elif name in flags:
            source = "flag"
        elif name not in settings.model_fields_set or getattr(settings, name) is None:
            source = DEFAULT
        elif variable is None:
            source = CONFIG_FILE
        else:
            own = variable.startswith(_PREFIX)
            source = "environment" if own else f"environment ({variable})"
        rows.append(Setting(name, _shown(getattr(settings, name), name), source))
    return rows


def examine(settings: Settings) -> list[Check]:
    """Every check, in the order in which one would look."""
    # A misspelt variable would be ignored without a word; a misspelt line of the file is not.
    names = Check("settings", Phrase("all names are known"))
    if unknown := unknown_variables():
        found = Phrase("unknown: {names}", names=", ".join(unknown))
        names = Check("settings", found, Phrase("correct or remove the names"))
    return [
        names,
        *(_directory(settings.data_dir) if settings.database_url is None else ()),
        *_store(settings),
        _embedder(settings),
        *_services(settings),
        _chat(settings),
    ]


def _shown(value: object, name: str) -> str | int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, dict):  # projects, which may hold secrets
        return ", ".join(sorted(value))
    match name:
        case "database_url" | "database_replica_url":
            return shown_url(str(value))
        case "llm_base_url" | "neo4j_url":
            return shown_address(str(value))
        case "embedder" | "reranker":
            return shown_model(str(value))
        case _:
            return str(value)


def _directory(directory: Path) -> list[Check]:
    """The directory of the embedded store, or the one that it would be created in."""
    there = next(it for it in (directory, *directory.absolute().parents) if it.exists())
    free = shutil.disk_usage(there).free
    full = Phrase("free some space; writes fail when the disk is full")
    advice = NOTHING if free >= LEAST_DISK else full
    disk = Check("disk", Phrase("{size} GiB free", size=f"{free / 2**30:.1f}"), advice)
    if not there.is_dir():
        found, advice = Phrase("{path} is a file", path=there), Phrase("choose another --data-dir")
        return [Check("directory", found, advice), disk]
    if not os.access(there, os.W_OK | os.X_OK):
        advice = Phrase("make it writable for this user, or choose another --data-dir")
        return [Check("directory", Phrase("{path} is not writable", path=there), advice), disk]
    if there == directory:
        return [Check("directory", Phrase("{path} is writable", path=directory)), disk]
    return [Check("directory", Phrase("{path} is created on first use", path=directory)), disk]


def _store(settings: Settings) -> list[Check]:
    """The store and its jobs."""
    if not has_store(settings):
        return [Check("store", Phrase("nothing is stored yet"))]
    try:
        with Memory(settings=only_store(settings)) as memory:
            health = memory.health()
            jobs = memory.jobs(_JOBS)
    except KeMemError as error:
        advice = Phrase("follow the message, or choose another store: --data-dir, --database-url")
        return [Check("store", ErrorPhrase(error.message), advice)]
    names = ("backend", "schema_version", "messages", "notes", "vectors")
    found = Phrase(
        "{backend}, schema {schema_version}, messages: {messages}, notes: {notes}, "
        "vectors: {vectors}",
        **{name: getattr(health, name) for name in names},
    )
    return [Check("store", found), *_replica(settings), _jobs(health, jobs)]


def _replica(settings: Settings) -> Iterator[Check]:
    """Whether the replica, if there is one, can be read from."""
    url = settings.database_replica_url
    if url is None:
        return
    advice = Phrase("mend the cause or remove the setting; until then, the primary is read")
    try:
        seconds = measure_replica(settings)
    except KeMemError as error:
        names = {"address": shown_url(url), "error": ErrorPhrase(error.message)}
        yield Check("replica", Phrase("{address} is not read from: {error}", **names), advice)
    else:
        names = {"address": shown_url(url), "seconds": f"{seconds:.1f}"}
        yield Check("replica", Phrase("{address} follows, {seconds} s behind", **names))


def _jobs(health: Health, jobs: list[Job]) -> Check:
    """The jobs that wait or have failed."""
    counts = {"pending": health.pending_jobs, "failed": health.failed_jobs}
    found = Phrase("{pending} pending, {failed} failed", **counts)
    if running := [job.progress for job in jobs if job.progress]:
        done, total = (sum(it[name] for it in running) for name in ("done", "total"))
        rows = {"done": done, "total": total}
        found = Phrase("{jobs}; new vectors: {done} of {total} rows", jobs=found, **rows)
    if health.oldest_error:
        found = Phrase("{jobs}; {error}", jobs=found, error=health.oldest_error)
    kinds = {job.kind for job in jobs if job.state == "failed"}
    if not health.failed_jobs:
        return Check("jobs", found)
    if kinds and kinds <= {"embed", "reembed"}:
        return Check("jobs", found, Phrase("mend the cause, then run: kemem reindex"))
    advice = Phrase("see them with: kemem jobs; mend the cause, then run: kemem retry --all")
    return Check("jobs", found, advice)


def only_store(settings: Settings) -> Settings:
    """The settings without models, graph database and replica."""
    none = {"embedder": "none", "llm": "none", "neo4j_url": None, "database_replica_url": None}
    return settings.model_copy(update=none)


def _embedder(settings: Settings) -> Check:
    """Load or call the model and let it compare the same sentence in two languages."""
    embedder = open_embedder(settings)
    if embedder is None:
        return Check("embedder", Phrase("none: messages are found by their words only"))
    started = time.perf_counter()
    try:
        first, second = asyncio.run(_vectors(embedder))
    except Exception as error:  # a model's code: whatever it raises is a finding
        reason = getattr(error, "message", f"{type(error).__name__}: {error}")
        again = Phrase("install KeMem again; until then, words answer")
        mend = Phrase("mend the cause; until then, words answer")
        found = Phrase("{name} does not work: {reason}", name=embedder.name, reason=reason)
        return Check("embedder", found, again if settings.embedder == "local" else mend)
    seconds = time.perf_counter() - started
    similarity = float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))
    found = Phrase(
        "{name}, {count} dimensions, ready in {seconds} s, {pair}",
        name=embedder.name,
        count=len(first),
        seconds=f"{seconds:.1f}",
        pair="“{}” ~ “{}”: {:.2f}".format(*SENTENCES, similarity),
    )
    return Check("embedder", found)


async def _vectors(embedder: Embedder) -> Matrix:
    """The vectors of both sentences; connections are closed."""
    try:
        return await embedder.embed(SENTENCES, purpose="passage")
    finally:
        if close := getattr(embedder, "close", None):
            await close()


def _chat(settings: Settings) -> Check:
    """How a chat model is told what is recalled; it is not asked whether it handles tools."""
    if not settings.has_llm:
        return Check("chat", Phrase("none: a chat needs an LLM"))
    address = settings.llm_base_url or OPENAI

    async def found() -> RecallWay:
        async with AsyncMemory(settings=only_store(settings)) as memory:
            return await ToolProbe(memory).way(address, settings.llm_model)

    way = settled_way(settings, address)
    try:
        way = way or (asyncio.run(found()) if has_store(settings) else NOT_ASKED)
    except KeMemError:  # what is wrong with the store stands above
        way = NOT_ASKED
    if way.name == "call":
        found_ = Phrase("call: the model gets recalls as a call of a tool; {why}", why=way.reason)
    else:
        found_ = Phrase("note: the model gets recalls in its instructions; {why}", why=way.reason)
    return Check("chat", found_)


def has_store(settings: Settings) -> bool:
    """Whether there is a store to open; a directory that does not exist yet is left so."""
    return settings.database_url is not None or settings.data_dir.exists()


def _services(settings: Settings) -> Iterator[Check]:
    """Which models and graph database would be called; they are not, as that may cost money."""
    model = open_llm(settings, None)
    if model is None:
        yield Check("llm", Phrase("none: rules extract notes"))
    else:
        address = shown_address(settings.llm_base_url or OPENAI)
        found = {"name": model.name, "address": address, "key": _key(settings.llm_api_key)}
        yield Check("llm", Phrase("{name} at {address}, {key}; it was not called", **found))
    if settings.reranker == "none":
        yield Check("reranker", Phrase("none: hits stay in the order of the search"))
    elif settings.reranker == "local":
        yield Check("reranker", Phrase("local: the network that comes with the package"))
    else:
        found = {"name": shown_model(settings.reranker), "key": _key(settings.reranker_api_key)}
        yield Check("reranker", Phrase("{name}, {key}; it was not called", **found))
    if settings.neo4j_url is None:
        yield Check("neo4j", Phrase("none: the graph is in the store only"))
    else:
        name, default = settings.neo4j_database, Phrase("its default database")
        parts = {
            "address": shown_address(settings.neo4j_url),
            "database": Phrase("database {name}", name=name) if name else default,
            "user": settings.neo4j_user,
        }
        yield Check("neo4j", Phrase("{address}, {database}, as {user}; it was not called", **parts))


def _key(key: SecretStr | None) -> Phrase:
    return Phrase("with a key") if key else Phrase("without a key")
