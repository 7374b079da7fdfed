"""Commands for operators: the job queue, derived data, and what is wrong."""

import json
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import structlog
import typer
from rich.text import Text

from kemem.errors import Unavailable
from kemem.records.serialization import to_dict
from kemem.serve.cli.doctor import examine, show_settings
from kemem.serve.cli.terminal import Common, plain, progress
from kemem.sync import Memory

log = structlog.get_logger("kemem")


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


def jobs(
    common: Common,
    limit: Annotated[int, typer.Option(help="Most jobs to show.", min=1, max=1000)] = 100,
) -> None:
    """Show the work that waits or has failed."""
    with common.open() as memory:
        items = [to_dict(job) for job in memory.jobs(limit)]
    common.print({"items": items}, *(map(_job_text, items) if items else ["No work waits."]))


def work(
    common: Common,
    once: Annotated[bool, typer.Option("--once", help="Do what is due now and stop.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
) -> None:
    """Do the work that waits, beside a server or alone, until stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), common.open() as memory:
        _run_jobs(memory, common.as_json, quiet=not (once and common.as_json))
        while not once:
            time.sleep(interval)
            try:
                _run_jobs(memory, common.as_json)
            except Unavailable as error:  # the store may be away for a while
                log.warning("jobs failed", reason=error.message)


def _run_jobs(memory: Memory, as_json: bool, *, quiet: bool = True) -> None:
    """Do what is due and print how much that was; `quiet` prints nothing for nothing."""
    with progress("Working"):
        count = memory.run_jobs()
    if count or not quiet:
        print(json.dumps({"done": count}) if as_json else f"{count} done", flush=True)


def retry(
    common: Common,
    job_id: Annotated[
        str | None, typer.Argument(metavar="JOB_ID", help="As kemem jobs shows it.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every job that was given up.")] = False,
) -> None:
    """Let a job that was given up be tried again, or all of them."""
    if (job_id is None) != every:
        raise typer.BadParameter("name one, or give --all instead", param_hint="JOB_ID")
    with common.open() as memory:
        if job_id is None:
            count = memory.retry_jobs()
            common.print({"retried": count}, f"{count} to be tried again")
        else:
            item = to_dict(memory.retry_job(job_id))
            common.print(item, _job_text(item))


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


def _job_text(job: dict[str, Any]) -> Text:
    """A job to be read: id, kind, state, how often it was tried, when it is due; its error."""
    tried = f"{job['attempts']} tried"
    line = f"{job['id']}  {job['kind']:<7}  {job['state']:<7}  {tried}  due {job['due']}"
    return Text(f"{line}\n      {plain(job['error'])}" if job["error"] else line)
