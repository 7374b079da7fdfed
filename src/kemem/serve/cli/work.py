"""Commands about later work: what waits or has failed, doing it, and trying it again."""

import json
import signal
import time
from contextlib import suppress
from typing import Annotated, Any

import structlog
import typer
from rich.text import Text
from typer import Argument, Option

from kemem.errors import Unavailable
from kemem.serve.cli.terminal import Common, plain, progress
from kemem.sync import Memory

log = structlog.get_logger("kemem")


def jobs(
    common: Common, limit: Annotated[int, Option(help="Most jobs to show.", min=1, max=1000)] = 100
) -> None:
    """Show the work that waits or has failed."""
    with common.open() as memory:
        items = [job.to_dict() for job in memory.jobs(limit)]
    common.print({"items": items}, *(map(_job_text, items) if items else ["No work waits."]))


def work(
    common: Common,
    once: Annotated[bool, Option("--once", help="Do what is due now and stop.")] = False,
    interval: Annotated[float, Option(help="Seconds between two looks.", min=0.1)] = 5.0,
) -> None:
    """Do the work that waits, beside a server or alone, until stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), common.open() as memory:
        quiet = not (once and common.as_json)
        _run_jobs(memory, common.as_json, quiet=quiet, debounce=not once)
        while not once:
            time.sleep(interval)
            try:
                _run_jobs(memory, common.as_json, quiet=True, debounce=True)
            except Unavailable as error:  # the store may be away for a while
                log.warning("jobs failed", reason=error.message)


def _run_jobs(memory: Memory, as_json: bool, *, quiet: bool, debounce: bool) -> None:
    """Do what is due and print how much that was; `quiet` prints nothing for nothing."""
    with progress("Working"):
        count = memory.run_jobs(debounce=debounce)
    if count or not quiet:
        print(json.dumps({"done": count}) if as_json else f"{count} done", flush=True)


def retry(
    common: Common,
    job_id: Annotated[
        str | None, Argument(metavar="JOB_ID", help="As kemem jobs shows it.")
    ] = None,
    every: Annotated[bool, Option("--all", help="Every job that was given up.")] = False,
) -> None:
    """Let a job that was given up be tried again, or all of them."""
    if (job_id is None) != every:
        raise typer.BadParameter("name one, or give --all instead", param_hint="JOB_ID")
    with common.open() as memory:
        if job_id is None:
            count = memory.retry_jobs()
            common.print({"retried": count}, f"{count} to be tried again")
        else:
            item = memory.retry_job(job_id).to_dict()
            common.print(item, _job_text(item))


def _job_text(job: dict[str, Any]) -> Text:
    """A job to be read: id, kind, state, how often it was tried, when it is due; its error."""
    tried = f"{job['attempts']} tried"
    line = f"{job['id']}  {job['kind']:<7}  {job['state']:<7}  {tried}  due {job['due']}"
    if counts := job["progress"]:
        line += f"  {counts['done']} of {counts['total']}"
    return Text(f"{line}\n      {plain(job['error'])}" if job["error"] else line)
