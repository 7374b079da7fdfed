"""What is configured, reachable and healthy, and what to do about what is not."""

import asyncio
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import SecretStr
from rich.text import Text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from kemem.assemble import open_embedder, open_store
from kemem.errors import KeMemError
from kemem.settings import CONFIG_FILE, Settings
from kemem.types import Health

SENTENCES = ("我不吃辣", "I can't eat spicy food")
LEAST_DISK = 256 << 20  # bytes
_PREFIX = "KEMEM_"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, fit to be shown, and where it came from."""

    name: str
    value: str | int | None
    source: str

    def __rich__(self) -> Text:
        value = "-" if self.value is None else self.value
        return Text.assemble(f"{self.name:<18} {value}  ", (self.source, "dim"))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was found and, only where it is wrong, what to do."""

    name: str
    found: str
    advice: str = ""

    @property
    def healthy(self) -> bool:
        return not self.advice

    def __rich__(self) -> Text:
        state = ("ok    ", "green") if self.healthy else ("wrong ", "bold red")
        advice = f"\n{'':<18} {self.advice}" if self.advice else ""
        return Text.assemble(state, f"{self.name:<12} {self.found}{advice}")


def show_settings(settings: Settings, flags: frozenset[str]) -> list[Setting]:
    """Every setting with its source; secrets are masked."""
    return [
        Setting(name, _shown(getattr(settings, name), name), _source(name, settings, flags))
        for name in Settings.model_fields
    ]


def examine(settings: Settings) -> list[Check]:
    """Every check, in the order in which one would look."""
    embedded = settings.database_url is None
    return [
        _names(),
        *(_directory(settings.data_dir) if embedded else ()),
        *_store(settings),
        _embedder(settings),
    ]


def shown_url(url: str) -> str:
    """A database URL without what is secret in it."""
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except ArgumentError:
        return "***"


def _shown(value: object, name: str) -> str | int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, SecretStr):
        return "***"
    return shown_url(str(value)) if name == "database_url" else str(value)


def _source(name: str, settings: Settings, flags: frozenset[str]) -> str:
    if name in flags:
        return "flag"
    if name not in settings.model_fields_set or getattr(settings, name) is None:
        return "default"
    return "environment" if name in _environment() else CONFIG_FILE


def _environment() -> set[str]:
    """Settings named by environment variables, as fields spell them."""
    names = (variable.upper() for variable in os.environ)
    return {name.removeprefix(_PREFIX).lower() for name in names if name.startswith(_PREFIX)}


def _names() -> Check:
    """A misspelt variable would be ignored without a word; a misspelt line of the file is not."""
    known = Settings.model_fields.keys()
    unknown = [f"{_PREFIX}{name.upper()}" for name in sorted(_environment() - known)]
    if unknown:
        return Check("settings", f"unknown: {', '.join(unknown)}", "correct or remove the names")
    return Check("settings", "all names are known")


def _directory(directory: Path) -> list[Check]:
    """The directory of the embedded store, or the one that it would be created in."""
    there = next(it for it in (directory, *directory.absolute().parents) if it.exists())
    free = shutil.disk_usage(there).free
    disk = Check(
        "disk",
        f"{free / 2**30:.1f} GiB free",
        "" if free >= LEAST_DISK else "free some space; writes fail when the disk is full",
    )
    if not there.is_dir():
        return [Check("directory", f"{there} is a file", "choose another --data-dir"), disk]
    if not os.access(there, os.W_OK | os.X_OK):
        advice = "make it writable for this user, or choose another --data-dir"
        return [Check("directory", f"{there} is not writable", advice), disk]
    found = "is writable" if there == directory else "is created on first use"
    return [Check("directory", f"{directory} {found}"), disk]


def _store(settings: Settings) -> list[Check]:
    """The store and its jobs; a directory that does not exist yet is left so."""
    if settings.database_url is None and not settings.data_dir.exists():
        return [Check("store", "nothing is stored yet")]
    try:
        health = asyncio.run(_health(settings))
    except KeMemError as error:
        advice = "follow the message, or choose another store: --data-dir, --database-url"
        return [Check("store", error.message, advice)]
    found = (
        f"{health.backend}, schema {health.schema_version}, messages: {health.messages}, "
        f"notes: {health.notes}, vectors: {health.vectors}"
    )
    return [Check("store", found), _jobs(health)]


async def _health(settings: Settings) -> Health:
    store = await asyncio.to_thread(open_store, settings)
    try:
        return await store.health()
    finally:
        await store.close()


def _jobs(health: Health) -> Check:
    found = f"{health.pending_jobs} pending, {health.failed_jobs} failed"
    if health.oldest_error:
        found += f"; {health.oldest_error}"
    if health.failed_jobs:
        return Check("jobs", found, "mend the cause, then run: kemem reindex")
    return Check("jobs", found)


def _embedder(settings: Settings) -> Check:
    """Load the model and let it compare the same sentence in two languages."""
    embedder = open_embedder(settings)
    if embedder is None:
        return Check("embedder", "none: messages are found by their words only")
    started = time.perf_counter()
    try:
        first, second = asyncio.run(embedder.embed(SENTENCES, purpose="passage"))
    except Exception as error:  # a model's code: whatever it raises is a finding
        found = f"{embedder.name} does not work: {type(error).__name__}: {error}"
        return Check("embedder", found, "install KeMem again; until then, words answer")
    seconds = time.perf_counter() - started
    similarity = float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))
    return Check(
        "embedder",
        f"{embedder.name}, {len(first)} dimensions, ready in {seconds:.1f} s, "
        f"“{SENTENCES[0]}” ~ “{SENTENCES[1]}”: {similarity:.2f}",
    )
