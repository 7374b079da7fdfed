"""Commands of operators: backup and restore, checks, and what is done with a whole database."""

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from kemem.errors import InvalidArgument, Unavailable
from kemem.memory import AsyncMemory
from kemem.serve.cli import terminal
from kemem.serve.cli.doctor import examine, show_settings, shown_url
from kemem.serve.cli.terminal import Common, Yes, output, progress
from kemem.serve.telemetry.journal import parse_runs, save_runs
from kemem.snapshot import Backup

PLACE = "A directory of an embedded store, or the URL of a PostgreSQL."


def backup(
    common: Common,
    to: Annotated[
        Path | None,
        Option("--path", "--to", help="A new file, or a directory, if not the one of backups."),
    ] = None,
) -> None:
    """Write everything, workspaces too, to one file."""
    with common.open() as memory, progress("Backing up"):
        made = memory.backup(None if to is None else to.expanduser().absolute())
    _print_backup(common, made)


def restore(
    common: Common,
    path: Annotated[Path, Argument(help="As kemem backup shows it.")],
    yes: Yes = False,
) -> None:
    """Replace everything, workspaces too, by what a backup holds."""
    if not yes:
        question = "What is stored now will be replaced by the backup. Go on?"
        typer.confirm(question, abort=True, err=True)
    here = path.expanduser().absolute()
    with common.open() as memory, progress("Restoring"):
        restored = memory.restore(here if here.exists() else path)
    _print_backup(common, restored)


def _print_backup(common: Common, backup: Backup) -> None:
    counts = f"messages: {backup.messages}, notes: {backup.notes}, files: {backup.files}"
    common.print(backup.to_dict(), str(backup.path), f"{counts}, bytes: {backup.size}")


def reindex(common: Common) -> None:
    """Derive the words and vectors of all messages and notes again."""
    started = time.monotonic()
    with common.open() as memory, progress("Deriving words and vectors"):
        memory.reindex()
        health = memory.health()
    counts = {"messages": health.messages, "notes": health.notes, "vectors": health.vectors}
    common.print_counts(counts, time.monotonic() - started)
    if health.oldest_error and health.vectors < health.messages + health.notes:
        raise Unavailable(f"some vectors could not be derived: {health.oldest_error}")


def doctor(common: Common) -> None:
    """Say what is configured and healthy, and what to do where it is not."""
    options = {"data_dir": common.data_dir, "database_url": common.database_url}
    flags = frozenset(name for name, value in options.items() if value is not None)
    with progress("Examining"):
        settings, checks = show_settings(common.settings, flags), examine(common.settings)
    healthy = all(check.healthy for check in checks)
    report = {
        "healthy": healthy,
        "settings": [asdict(setting) for setting in settings],
        "checks": [{"healthy": check.healthy, **asdict(check)} for check in checks],
    }
    common.print(report, *settings, *checks)
    if not healthy:
        raise typer.Exit(1)


def move(
    source: Annotated[str, Option("--from", metavar="PLACE", help=PLACE)],
    destination: Annotated[str, Option("--to", metavar="PLACE", help="An empty one of these.")],
    as_json: terminal.AsJson = False,
    yes: terminal.Yes = False,
) -> None:
    """Move a store to another database while it is in use."""
    from kemem import admin

    def report(done: admin.Pass) -> None:
        if not as_json:
            output.print(f"copied {done.rows} rows of {done.spaces} spaces, {done.seconds:.1f} s")

    def confirm() -> None:
        if not yes:
            question = "All of it is copied and verified. Switch, so that writers of the old"
            typer.confirm(f"{question} store are refused from now on?", abort=True, err=True)

    with progress("Moving"):
        moved = admin.move(source, destination, report, confirm)
    if as_json:
        terminal.print_json(asdict(moved))
    else:
        rows = ", ".join(f"{name}: {count}" for name, count in moved.rows.items() if count)
        output.print(
            f"moved to {moved.place}; writers waited {moved.seconds:.1f} s", rows, sep="\n"
        )


def distribute(
    common: Common,
    shards: Annotated[int, Option(help="Parts of each table.", min=1, max=4096)] = 32,
) -> None:
    """Spread an empty store over the servers of a PostgreSQL with Citus."""
    from kemem import admin

    url = common.settings.database_url
    if url is None:
        raise InvalidArgument("--database-url is required: the coordinator", field="database_url")
    done = admin.distribute(url, shards)
    groups = {"by space": done.sharded, "everywhere": done.references, "coordinator": done.local}
    lines = [f"{where}: {', '.join(tables)}" for where, tables in groups.items()]
    state = "distributed" if done.is_new else "was distributed already"
    common.print(asdict(done), f"{shown_url(url)} {state}", *lines)


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
    """Keep the runs of a benchmark; the same file again adds nothing."""
    runs = parse_runs(path.read_bytes())

    async def save() -> None:
        async with AsyncMemory(settings=common.settings) as memory:
            await save_runs(memory, runs)

    asyncio.run(save())
    common.print({"kept": len(runs)}, f"{len(runs)} kept")
