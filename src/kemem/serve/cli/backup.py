"""The commands that back up and restore: everything in one file."""

from pathlib import Path
from typing import Annotated

import typer

from kemem.serve.cli.terminal import (
    AsJson,
    DatabaseUrl,
    DataDir,
    output,
    print_json,
    progress,
    settings_in_force,
)
from kemem.snapshot import Backup
from kemem.sync import Memory


def backup(
    to: Annotated[
        Path | None, typer.Option(help="A new file, or a directory, if not the one of backups.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write everything, workspaces too, to one file."""
    settings = settings_in_force(data_dir, database_url)
    with Memory(settings=settings) as memory, progress("Backing up", None):
        made = memory.backup(None if to is None else to.expanduser().absolute())
    _show(made, as_json)


def restore(
    path: Annotated[Path, typer.Argument(help="As kemem backup shows it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Replace everything, workspaces too, by what a backup holds."""
    settings = settings_in_force(data_dir, database_url)
    if not yes:
        typer.confirm(
            "What is stored now will be replaced by the backup. Go on?", abort=True, err=True
        )
    here = path.expanduser().absolute()
    with Memory(settings=settings) as memory, progress("Restoring", None):
        restored = memory.restore(here if here.exists() else path)
    _show(restored, as_json)


def _show(found: Backup, as_json: bool) -> None:
    if as_json:
        print_json(found.to_dict())
        return
    output.print(found.path)
    counts = f"messages: {found.messages}, notes: {found.notes}, files: {found.files}"
    output.print(f"{counts}, bytes: {found.size}")
