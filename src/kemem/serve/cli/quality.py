"""The command that keeps what benchmarks measured, for the dashboard to show over time."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kemem.memory import AsyncMemory
from kemem.serve.cli.terminal import (
    AsJson,
    DatabaseUrl,
    DataDir,
    output,
    print_json,
    settings_in_force,
)
from kemem.serve.telemetry.runs import Run, keep_runs, parse_runs
from kemem.settings import Settings


def quality(
    path: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="JSON, as python -m bench.retrieval --quality writes it.",
        ),
    ],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Keep the runs of a benchmark; the same file again adds nothing."""
    settings = settings_in_force(data_dir, database_url)
    runs = parse_runs(path.read_bytes())
    asyncio.run(_keep(settings, runs))
    if as_json:
        print_json({"kept": len(runs)})
    else:
        output.print(f"{len(runs)} kept")


async def _keep(settings: Settings, runs: list[Run]) -> None:
    async with AsyncMemory(settings=settings) as memory:
        await keep_runs(memory, runs)
