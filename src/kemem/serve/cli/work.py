"""Commands about later work: what waits or has failed, doing it, and trying it again."""

import json
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.errors import StoreMoved, Unavailable
from kemem.serve.cli.console import plain
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, progress
from kemem.serve.telemetry.seldom import seldom
from kemem.sync import Memory


def jobs(
    common: Common,
    limit: Annotated[int, Option(help="Maximum number of jobs.", min=1, max=1000)] = 100,
) -> None:
    """List pending and failed jobs.

    $ kemem jobs
    """
    with common.open() as memory:
        items = [job.to_dict() for job in memory.jobs(limit)]
    none = t("There are no pending or failed jobs.")
    common.print({"items": items}, *(map(_job_text, items) if items else [none]))


def work(
    common: Common,
    once: Annotated[bool, Option("--once", help="Run what is due now and stop.")] = False,
    interval: Annotated[float, Option(help="Seconds between checks.", min=0.1)] = 5.0,
) -> None:
    """Run pending jobs until stopped.

    Works beside a server or without one, for all projects or for one.

    $ kemem work --once
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = common.settings
    every = (settings, *map(settings.of_project, settings.projects))  # a project has none
    with suppress(KeyboardInterrupt), ExitStack() as opened:
        memories = [opened.enter_context(Memory(settings=it)) for it in every]
        quiet = not (once and common.as_json)
        _run_jobs(memories, common.as_json, quiet=quiet, debounce=not once)
        while not once:
            time.sleep(interval)
            for memory in memories:
                try:
                    _run_jobs([memory], common.as_json, quiet=True, debounce=True)
                except StoreMoved:
                    raise
                except Unavailable as error:  # the store may be away for a while
                    seldom.warn("jobs failed", reason=error.message)


def _run_jobs(memories: Sequence[Memory], as_json: bool, *, quiet: bool, debounce: bool) -> None:
    """Do what is due and print how much that was; `quiet` prints nothing for nothing."""
    with progress(t("Working")):
        count = sum(memory.run_jobs(debounce=debounce) for memory in memories)
    if count or not quiet:
        text = json.dumps({"done": count}) if as_json else t("{count} done", count=count)
        print(text, flush=True)


def retry(
    common: Common,
    job_id: Annotated[
        str | None, Argument(metavar="JOB_ID", help="The id, as kemem jobs shows it.")
    ] = None,
    every: Annotated[bool, Option("--all", help="Every failed job.")] = False,
) -> None:
    """Try a failed job again, or all of them.

    $ kemem retry --all
    """
    if (job_id is None) != every:
        raise typer.BadParameter(t("name one, or give --all instead"), param_hint="JOB_ID")
    with common.open() as memory:
        if job_id is None:
            count = memory.retry_jobs()
            common.print({"retried": count}, t("{count} jobs will be tried again", count=count))
        else:
            item = memory.retry_job(job_id).to_dict()
            common.print(item, _job_text(item))


def _job_text(job: dict[str, Any]) -> Text:
    """A job to be read: id, kind, state, how often it was tried, when it is due; its error."""
    tried = t("{count} tried", count=job["attempts"])
    due = t("due {time}", time=job["due"])
    line = f"{job['id']}  {job['kind']:<7}  {job['state']:<7}  {tried}  {due}"
    if counts := job["progress"]:
        line += f"  {counts['done']} / {counts['total']}"
    return Text(f"{line}\n      {plain(job['error'])}" if job["error"] else line)
