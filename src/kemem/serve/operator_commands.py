"""Commands for those who run a memory: later work, derived data, and what is wrong."""

import asyncio
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import structlog
import typer
from rich.text import Text

from kemem.errors import Unavailable
from kemem.serve.doctor import examine, retry_failed, show_settings
from kemem.serve.session_shapes import JobItem, job_item
from kemem.serve.terminal import (
    AsJson,
    DatabaseUrl,
    DataDir,
    output,
    plain,
    print_json,
    progress,
    settings_in_force,
)
from kemem.sync import Memory

log = structlog.get_logger("kemem")


def reindex(data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Derive the words and vectors of all messages and notes again."""
    started = time.monotonic()
    with (
        Memory(settings=settings_in_force(data_dir, database_url)) as memory,
        progress("Deriving words and vectors", None),
    ):
        memory.reindex()
        health = memory.health()
    seconds = time.monotonic() - started
    counts = f"messages: {health.messages}, notes: {health.notes}, vectors: {health.vectors}"
    output.print(f"{counts}, seconds: {seconds:.1f}")
    if health.oldest_error and health.vectors < health.messages + health.notes:
        raise Unavailable(f"some vectors could not be derived: {health.oldest_error}")


def jobs(
    limit: Annotated[int, typer.Option(help="Most jobs to show.", min=1, max=1000)] = 100,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Show the work that waits or has failed."""
    with Memory(settings=settings_in_force(data_dir, database_url)) as memory:
        items = [job_item(job) for job in memory.jobs(limit)]
    if as_json:
        print_json({"items": items})
        return
    if not items:
        output.print("No work waits.")
    for item in items:
        output.print(_job_text(item))


def work(
    once: Annotated[bool, typer.Option("--once", help="Do what is due now and stop.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Do the work that waits, beside a server or alone, until stopped."""
    settings = settings_in_force(data_dir, database_url)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), Memory(settings=settings) as memory:
        _print_done(memory.run_jobs())
        while not once:
            time.sleep(interval)
            try:
                _print_done(memory.run_jobs())
            except Unavailable as error:  # the store may be away for a while
                log.warning("jobs failed", reason=error.message)


def retry(
    job_id: Annotated[
        str | None, typer.Argument(metavar="JOB_ID", help="As kemem jobs shows it.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every job that was given up.")] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a job that was given up be tried again, or all of them."""
    if (job_id is None) != every:
        raise typer.BadParameter("name one, or give --all instead", param_hint="JOB_ID")
    settings = settings_in_force(data_dir, database_url)
    if job_id is None:
        output.print(f"{asyncio.run(retry_failed(settings))} to be tried again")
        return
    with Memory(settings=settings) as memory:
        output.print(_job_text(job_item(memory.retry_job(job_id))))


def doctor(
    as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None
) -> None:
    """Say what is configured and healthy, and what to do where it is not."""
    settings = settings_in_force(data_dir, database_url)
    given = {"data_dir": data_dir, "database_url": database_url}
    flags = frozenset(name for name, value in given.items() if value is not None)
    shown, checks = show_settings(settings, flags), examine(settings)
    healthy = all(check.healthy for check in checks)
    if as_json:
        found = [{"healthy": check.healthy, **asdict(check)} for check in checks]
        print_json({"healthy": healthy, "settings": [asdict(it) for it in shown], "checks": found})
    else:
        output.print(*shown, *checks, sep="\n")
    if not healthy:
        raise typer.Exit(1)


def _print_done(count: int) -> None:
    if count:
        output.print(f"{count} done")
        sys.stdout.flush()


def _job_text(job: JobItem) -> Text:
    """A job to be read: id, kind, state, how often it was tried, when it is due; its error."""
    tried = f"{job['attempts']} tried"
    line = f"{job['id']}  {job['kind']:<7}  {job['state']:<7}  {tried}  due {job['due']}"
    return Text(f"{line}\n      {plain(job['error'])}" if job["error"] else line)
