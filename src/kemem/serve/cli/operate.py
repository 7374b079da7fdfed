"""Commands of operators: backup and restore, checks, and what is done with a whole database."""

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.memory import AsyncMemory
from kemem.serve.cli import terminal
from kemem.serve.cli.bench import bench
from kemem.serve.cli.console import errors, output
from kemem.serve.cli.doctor import DEFAULT, Check, examine, show_settings
from kemem.serve.cli.help import Group
from kemem.serve.cli.language import Phrase, t
from kemem.serve.cli.terminal import Common, Yes, progress, register
from kemem.serve.rpc.command import dump
from kemem.serve.telemetry.journal import parse_runs, save_runs
from kemem.settings import shown_url
from kemem.snapshot import Backup, Places

PLACE = "A directory of an embedded store, or the URL of a PostgreSQL."


def backup(
    common: Common,
    to: Annotated[
        Path | None,
        Option("--path", "--to", help="A new file, or a directory other than that of backups."),
    ] = None,
) -> None:
    """Write everything, workspaces too, to one file.

    $ kemem backup --path kemem-backup.json
    """
    with common.open() as memory, progress(t("Backing up")):
        made = memory.backup(None if to is None else to.expanduser().absolute())
    _print_backup(common, made)


def restore(
    common: Common,
    path: Annotated[Path, Argument(help="The file, as kemem backup shows it.")],
    yes: Yes = False,
) -> None:
    """Replace everything, workspaces too, by a backup.

    $ kemem restore kemem-backup.json
    """
    here = path.expanduser().absolute()
    place = here if here.exists() else Places.choose(common.settings).backups / path
    if not place.exists():
        raise NotFound(f"there is no backup {str(path)!r:.200}")
    if not yes:
        question = t("What is stored now will be replaced by the backup. Go on?")
        typer.confirm(question, abort=True, err=True)
    with common.open() as memory, progress(t("Restoring")):
        restored = memory.restore(place)
    _print_backup(common, restored)


def _print_backup(common: Common, backup: Backup) -> None:
    names = ("messages", "notes", "files")
    counts = {**{name: getattr(backup, name) for name in names}, "bytes": backup.size}
    common.print(backup.to_dict(), str(backup.path), terminal.counts_text(counts))


def reindex(common: Common) -> None:
    """Rebuild the word index and the vectors of everything.

    $ kemem reindex
    """
    started = time.monotonic()
    with common.open() as memory, progress(t("Rebuilding words and vectors")):
        memory.reindex()
        health = memory.health()
    counts = {"messages": health.messages, "notes": health.notes, "vectors": health.vectors}
    common.print_counts(counts, time.monotonic() - started)
    if health.oldest_error and health.vectors < health.messages + health.notes:
        reason = t("some vectors could not be derived: {error}", error=health.oldest_error)
        raise Unavailable(reason)


def doctor(
    common: Common,
    verbose: Annotated[
        bool, Option("-v", "--verbose", help="Show settings that are defaults, too.")
    ] = False,
) -> None:
    """Check settings, store and models, and say what to do.

    $ kemem doctor
    """
    options = {"data_dir": common.data_dir, "database_url": common.database_url}
    flags = frozenset(name for name, value in options.items() if value is not None)
    with progress(t("Examining")):
        settings, checks = show_settings(common.settings, flags), examine(common.settings)
        if common.settings.database_url and all(it.healthy for it in checks if it.name == "store"):
            checks.append(_vector_indexes(common.settings.database_url))
    problems = [check for check in checks if not check.healthy]
    report = {
        "healthy": not problems,
        "settings": [asdict(setting) for setting in settings],
        "checks": [{"healthy": check.healthy, **asdict(check)} for check in checks],
    }
    several = t("{count} problems:", count=len(problems))
    verdict = {0: t("Healthy."), 1: t("1 problem:")}.get(len(problems), several)
    fine = [check for check in checks if check.healthy]
    chosen = [it for it in settings if verbose or it.source != DEFAULT]
    common.print(report, Text(verdict, style="bold"), *problems, "", *fine, "", *chosen)
    if problems:
        raise typer.Exit(1)


def _vector_indexes(url: str) -> Check:
    """Which large spaces have a vector index; without one they are searched all the same."""
    from kemem import admin

    state = admin.index_state(url)
    values = {"version": state.pgvector, "large": state.large, "indexed": state.indexed}
    found = Phrase("pgvector {version}, large spaces: {large}, with an index: {indexed}", **values)
    if not state.can_index:
        found = Phrase("{state}; indexes need pgvector 0.8 or newer", state=found)
    elif state.indexed < state.large:
        found = Phrase("{state}; to build them: kemem admin index", state=found)
    return Check("vectors", found)


def move(
    source: Annotated[str, Option("--from", metavar="PLACE", help=PLACE)],
    destination: Annotated[str, Option("--to", metavar="PLACE", help="An empty one of these.")],
    as_json: terminal.AsJson = False,
    yes: terminal.Yes = False,
) -> None:
    """Move a store to another database while it is in use.

    $ kemem move --from ~/.kemem --to postgresql://kemem@db/kemem
    """
    from kemem import admin

    def report(done: admin.Pass | admin.Progress) -> None:
        if as_json:
            return
        if isinstance(done, admin.Progress):
            state = _progress_line(done.rows, done.total, done.comparing)
        else:
            state = _pass_line(done.rows, done.spaces, done.seconds)
        output.print(t("pass {number}: {state}", number=done.number, state=state))

    def confirm() -> None:
        if not yes:
            question = t(
                "All of it is copied and verified. Switch, so that writers of the old store are "
                "refused from now on?"
            )
            typer.confirm(question, abort=True, err=True)

    try:
        with progress(t("Moving")):
            moved = admin.move(source, destination, report, confirm)
    except KeyboardInterrupt:
        errors.print(t("Interrupted. Run the same command again, it goes on from there."))
        raise
    if as_json:
        terminal.print_json(asdict(moved))
    else:
        rows = ", ".join(f"{name}: {count}" for name, count in moved.rows.items() if count)
        waited = f"{moved.seconds:.1f}"
        text = t("moved to {place}; writers waited {seconds} s", place=moved.place, seconds=waited)
        output.print(text, rows, sep="\n")


def _progress_line(rows: int, total: int, comparing: bool) -> str:
    """What a pass of a move is doing."""
    if comparing:
        return t("comparing with what was copied")
    counts = {"rows": f"{rows:,}", "total": f"{total:,}"}
    return t("copied {rows} of {total} messages, notes and vectors", **counts)


def _pass_line(rows: int, spaces: int, seconds: float) -> str:
    """What a pass of a move has done."""
    copied = t("1 row") if rows == 1 else t("{count} rows", count=f"{rows:,}")
    whose = t("1 space") if spaces == 1 else t("{count} spaces", count=f"{spaces:,}")
    values = {"rows": copied, "spaces": whose, "seconds": f"{seconds:.1f}"}
    return t("copied {rows} of {spaces}, {seconds} s", **values)


def distribute(
    common: Common,
    shards: Annotated[int, Option(help="Number of shards of each table.", min=1, max=4096)] = 32,
) -> None:
    """Spread an empty store over the servers of Citus.

    $ kemem admin distribute --database-url postgresql://kemem@db/kemem
    """
    from kemem import admin

    url = common.settings.database_url
    if url is None:
        reason = t("--database-url is required: the coordinator")
        raise InvalidArgument(reason, field="database_url")
    done = admin.distribute(url, shards)
    groups = {
        t("by space"): done.sharded,
        t("everywhere"): done.references,
        t("coordinator"): done.local,
    }
    lines = [f"{where}: {', '.join(tables)}" for where, tables in groups.items()]
    state = t("distributed") if done.is_new else t("was distributed already")
    common.print(asdict(done), f"{shown_url(url)} {state}", *lines)


def index(
    common: Common,
    memory_mb: Annotated[
        int, Option(help="Memory of the server for a build, in MB.", min=1, max=1_000_000)
    ] = 1024,
) -> None:
    """Build vector indexes for large spaces on PostgreSQL.

    $ kemem admin index --database-url postgresql://kemem@db/kemem
    """
    from kemem import admin

    url = common.settings.database_url
    if url is None:
        reason = t("--database-url is required: vector indexes are of PostgreSQL")
        raise InvalidArgument(reason, field="database_url")

    def line(done: admin.VectorIndex) -> str:
        values = {"space": done.space_no, "model": done.model_no, "rows": done.rows}
        if not done.seconds:
            return t("space {space}, model {model}: {rows} rows, index is current", **values)
        values["seconds"] = round(done.seconds)
        return t("space {space}, model {model}: {rows} rows, built in {seconds} s", **values)

    with progress(t("Indexing vectors")):
        made = admin.index_vectors(url, memory_mb)
    nothing = [] if made else [t("no space has more than 100,000 vectors; no index is needed")]
    common.print([asdict(it) for it in made], *map(line, made), *nothing)


def quality(
    common: Common,
    path: Annotated[
        Path,
        Argument(
            exists=True,
            dir_okay=False,
            help="JSON, as python -m bench.retrieval --quality writes it.",
        ),
    ],
) -> None:
    """Keep what a benchmark measured, for the dashboard.

    $ kemem admin quality runs.json
    """
    runs = parse_runs(path.read_bytes())

    async def save() -> None:
        async with AsyncMemory(settings=common.settings) as memory:
            await save_runs(memory, runs)

    asyncio.run(save())
    common.print({"kept": len(runs)}, t("{count} kept", count=len(runs)))


admin = typer.Typer(cls=Group)


@admin.callback()
def on_a_whole_database() -> None:
    """Rare operations on a whole database."""


register(admin, distribute, index)
register(admin, dump, has_json=False)
register(admin, quality, bench)
