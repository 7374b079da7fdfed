"""Commands for those who run a memory: later work, derived data, and what is wrong."""

import asyncio
import json
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import structlog
import typer
from rich.text import Text

from kemem.errors import Unavailable
from kemem.serve.cli.doctor import examine, retry_failed, show_settings
from kemem.serve.cli.terminal import (
    AsJson,
    DatabaseUrl,
    DataDir,
    output,
    plain,
    print_counts,
    print_json,
    progress,
    settings_in_force,
)
from kemem.serve.http.session_schemas import JobItem, job_item
from kemem.sync import Memory

log = structlog.get_logger("kemem")


def reindex(
    as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None
) -> None:
    """Derive the words and vectors of all messages and notes again."""
    started = time.monotonic()
    with (
        Memory(settings=settings_in_force(data_dir, database_url)) as memory,
        progress("Deriving words and vectors", None),
    ):
        memory.reindex()
        health = memory.health()
    counts = {"messages": health.messages, "notes": health.notes, "vectors": health.vectors}
    print_counts(counts, as_json, seconds=time.monotonic() - started)
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
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Do the work that waits, beside a server or alone, until stopped."""
    settings = settings_in_force(data_dir, database_url)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), Memory(settings=settings) as memory:
        _print_done(_work(memory), as_json, quiet=not (once and as_json))
        while not once:
            time.sleep(interval)
            try:
                _print_done(_work(memory), as_json)
            except Unavailable as error:  # the store may be away for a while
                log.warning("jobs failed", reason=error.message)


def retry(
    job_id: Annotated[
        str | None, typer.Argument(metavar="JOB_ID", help="As kemem jobs shows it.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every job that was given up.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a job that was given up be tried again, or all of them."""
    if (job_id is None) != every:
        raise typer.BadParameter("name one, or give --all instead", param_hint="JOB_ID")
    settings = settings_in_force(data_dir, database_url)
    if job_id is None:
        count = asyncio.run(retry_failed(settings))
        if as_json:
            print_json({"retried": count})
        else:
            output.print(f"{count} to be tried again")
        return
    with Memory(settings=settings) as memory:
        item = job_item(memory.retry_job(job_id))
    if as_json:
        print_json(item)
    else:
        output.print(_job_text(item))


def doctor(
    as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None
) -> None:
    """Say what is configured and healthy, and what to do where it is not."""
    settings = settings_in_force(data_dir, database_url)
    given = {"data_dir": data_dir, "database_url": database_url}
    flags = frozenset(name for name, value in given.items() if value is not None)
    with progress("Examining", None):
        shown, checks = show_settings(settings, flags), examine(settings)
    healthy = all(check.healthy for check in checks)
    if as_json:
        found = [{"healthy": check.healthy, **asdict(check)} for check in checks]
        print_json({"healthy": healthy, "settings": [asdict(it) for it in shown], "checks": found})
    else:
        output.print(*shown, *checks, sep="\n")
    if not healthy:
        raise typer.Exit(1)


def _work(memory: Memory) -> int:
    with progress("Working", None):
        return memory.run_jobs()


def _print_done(count: int, as_json: bool, *, quiet: bool = True) -> None:
    """A line about what was done; a quiet one leaves out that it was nothing."""
    if count or not quiet:
        print(json.dumps({"done": count}) if as_json else f"{count} done", flush=True)


def _job_text(job: JobItem) -> Text:
    """A job to be read: id, kind, state, how often it was tried, when it is due; its error."""
    tried = f"{job['attempts']} tried"
    line = f"{job['id']}  {job['kind']:<7}  {job['state']:<7}  {tried}  due {job['due']}"
    return Text(f"{line}\n      {plain(job['error'])}" if job["error"] else line)
