"""The command line: the memory for people and scripts."""

import asyncio
import json
import os
import re
import signal
import sys
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import structlog
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from kemem.answers import Hit, Ingested
from kemem.errors import KeMemError, Unavailable
from kemem.serve.doctor import examine, retry_failed, show_settings, shown_url
from kemem.serve.jsonl import Line, Target, batches, locate, read_lines
from kemem.serve.logs import configure_logs
from kemem.serve.session_shapes import JobItem, job_item
from kemem.serve.shapes import chat_message
from kemem.settings import Settings, load
from kemem.sync import Memory
from kemem.text.snippets import CLOSE, OPEN
from kemem.text.times import to_rfc3339

LONGEST_EXTRACT = 200  # characters
SERVER_PACKAGES = frozenset(["fastapi", "jwt", "prometheus_client", "starlette", "uvicorn"])
_MARK = re.compile(f"{OPEN}(.*?){CLOSE}")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, secrets among them
    context_settings={"help_option_names": ["-h", "--help"]},
)
output = Console(emoji=False, highlight=False, markup=False, soft_wrap=True)
errors = Console(emoji=False, highlight=False, markup=False, soft_wrap=True, stderr=True)
log = structlog.get_logger("kemem")

DataDir = Annotated[Path | None, typer.Option(help="Directory of the embedded store.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="PostgreSQL to use instead.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Mode = Literal["hybrid", "lexical", "semantic"]


class Filter(TypedDict):
    """What a search is limited to."""

    since: str | None
    until: str | None
    role: str | None


def main() -> None:
    """Run the command; whatever goes wrong is one line on standard error."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("info"))
    try:
        app(prog_name="kemem")
    except Exception as error:  # the edge: people get a sentence, the log gets the rest
        errors.print(Text(f"error: {_explain(error)}", style="red"))
        sys.exit(1)


def _explain(error: Exception) -> str:
    if isinstance(error, KeMemError):
        return error.message
    if isinstance(error, ModuleNotFoundError) and error.name in SERVER_PACKAGES:
        return f"{error.name} is missing; in the checkout, run: pip install '.[server]'"
    log.debug("command failed", at=traceback.format_exc())
    return f"{type(error).__name__}: {error} (KEMEM_LOG_LEVEL=debug shows where)"


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print(f"kemem {version('kemem-memory')}")
        raise typer.Exit


Version = typer.Option(
    "--version", callback=_print_version, is_eager=True, help="Show the version."
)


@app.callback()
def kemem(_version: Annotated[bool, Version] = False) -> None:
    """Memory for LLM agents: keeps what was said and finds it again."""


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.", min=0, max=65_535)] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the HTTP API."""
    settings = _settings(data_dir, database_url, host=host, port=port)

    from kemem.serve.auth import Trust
    from kemem.serve.http import serve as serve_http

    trust = Trust(settings)
    trust.check_host(settings.host)
    for line in _announcement(settings, trust.asks_for_credentials):
        output.print(line)
    sys.stdout.flush()
    serve_http(settings)


@app.command("import")
def import_messages(
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="One message a line, as JSON; - is standard input."),
    ],
    user: Annotated[str | None, typer.Option(help="User of the lines that name none.")] = None,
    agent: Annotated[str, typer.Option(help="Agent of the lines that name none.")] = "default",
    session: Annotated[str, typer.Option(help="Session of the lines that name none.")] = "default",
    batch: Annotated[int, typer.Option(help="Messages in one write.", min=1, max=5000)] = 200,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Store the messages of a file; those that are there already are ignored."""
    settings = _settings(data_dir, database_url)
    target = Target(user, agent, session)
    size = os.fstat(file.fileno()).st_size or None
    stored: list[Ingested] = []
    try:
        with Memory(settings=settings) as memory, _progress("Importing", size) as advance:
            lines = read_lines(_passing(file, advance), file.name, target)
            for some in batches(lines, batch):
                stored.append(_ingest(memory, some, file.name, target))
    finally:
        _print_stored(stored)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help='Words, "phrases", AND, OR, NOT, prefix*, ( ).')],
    user: Annotated[str, typer.Option(help="Whose messages to search.")],
    mode: Annotated[Mode, typer.Option(help="By words and meaning, or by one of them.")] = "hybrid",
    limit: Annotated[int, typer.Option(help="Most hits to show.", min=1, max=1000)] = 10,
    since: Annotated[str | None, typer.Option(help="From this time on (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (RFC 3339).")] = None,
    role: Annotated[str | None, typer.Option(help="Only what this role said.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Find messages of a user."""
    with Memory(settings=_settings(data_dir, database_url)) as memory:
        where = Filter(since=since, until=until, role=role)
        hits = _find(memory, mode, query, user, limit, where)
    if as_json:
        _print_json({"items": [_hit_fields(hit) for hit in hits]})
        return
    if not hits:
        output.print("Nothing was found.")
    for hit in hits:
        output.print(_hit_text(hit))


@app.command()
def reindex(data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Derive the words and vectors of all messages and notes again."""
    started = time.monotonic()
    with (
        Memory(settings=_settings(data_dir, database_url)) as memory,
        _progress("Deriving words and vectors", None),
    ):
        memory.reindex()
        health = memory.health()
    seconds = time.monotonic() - started
    counts = f"messages: {health.messages}, notes: {health.notes}, vectors: {health.vectors}"
    output.print(f"{counts}, seconds: {seconds:.1f}")
    if health.oldest_error and health.vectors < health.messages + health.notes:
        raise Unavailable(f"some vectors could not be derived: {health.oldest_error}")


@app.command()
def jobs(
    limit: Annotated[int, typer.Option(help="Most jobs to show.", min=1, max=1000)] = 100,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Show the work that waits or has failed."""
    with Memory(settings=_settings(data_dir, database_url)) as memory:
        items = [job_item(job) for job in memory.jobs(limit)]
    if as_json:
        _print_json({"items": items})
        return
    if not items:
        output.print("No work waits.")
    for item in items:
        output.print(_job_text(item))


@app.command()
def work(
    once: Annotated[bool, typer.Option("--once", help="Do what is due now and stop.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Do the work that waits, beside a server or without one, until interrupted."""
    settings = _settings(data_dir, database_url)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), Memory(settings=settings) as memory:
        _print_done(memory.run_jobs())
        while not once:
            time.sleep(interval)
            try:
                _print_done(memory.run_jobs())
            except Unavailable as error:  # the store may be away for a while
                log.warning("jobs failed", reason=error.message)


@app.command()
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
    settings = _settings(data_dir, database_url)
    if job_id is None:
        output.print(f"{asyncio.run(retry_failed(settings))} to be tried again")
        return
    with Memory(settings=settings) as memory:
        output.print(_job_text(job_item(memory.retry_job(job_id))))


@app.command()
def doctor(
    as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None
) -> None:
    """Say what is configured, reachable and healthy, and what to do about what is not."""
    settings = _settings(data_dir, database_url)
    given = {"data_dir": data_dir, "database_url": database_url}
    flags = frozenset(name for name, value in given.items() if value is not None)
    shown, checks = show_settings(settings, flags), examine(settings)
    healthy = all(check.healthy for check in checks)
    if as_json:
        found = [{"healthy": check.healthy, **asdict(check)} for check in checks]
        _print_json({"healthy": healthy, "settings": [asdict(it) for it in shown], "checks": found})
    else:
        output.print(*shown, *checks, sep="\n")
    if not healthy:
        raise typer.Exit(1)


def _settings(
    data_dir: Path | None, database_url: str | None, **server: str | int | None
) -> Settings:
    """The settings in force: flags, then the environment, then the file."""
    settings = load(data_dir=data_dir, database_url=database_url, **server)
    configure_logs(settings.log_level)
    return settings


def _announcement(settings: Settings, protected: bool) -> Iterator[str]:
    """What somebody who starts a server wants to know."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url, database_url = f"http://{host}:{settings.port}", settings.database_url
    yield f"API     {url}/v1"
    yield f"Docs    {url}/docs"
    yield f"Health  {url}/readyz"
    yield f"Data    {settings.data_dir if database_url is None else shown_url(database_url)}"
    yield f"Access  {'with a key or token' if protected else 'from this machine, without a key'}"


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, nothing elsewhere; yields the function that moves it."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    ) as progress:
        yield partial(progress.advance, progress.add_task(what, total=total))


def _passing(stream: Iterator[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
    for raw in stream:
        yield raw
        advance(len(raw))


def _ingest(memory: Memory, lines: Sequence[Line], name: str, target: Target) -> Ingested:
    try:
        return memory.ingest(
            [line.message for line in lines],
            lines[0].user_id,
            agent_id=target.agent_id,
            session_id=target.session_id,
        )
    except KeMemError as error:
        raise locate(error, name, lines) from None


def _print_stored(stored: Sequence[Ingested]) -> None:
    inserted = sum(len(it.inserted) for it in stored)
    ignored = sum(len(it.ignored) for it in stored)
    truncated = sum(len(it.truncated) for it in stored)
    output.print(f"{inserted} inserted, {ignored} ignored, {truncated} truncated")
    if any(it.pending for it in stored):
        output.print("Some vectors are still missing; see: kemem doctor")


def _find(
    memory: Memory, mode: Mode, query: str, user: str, limit: int, where: Filter
) -> Sequence[Hit]:
    match mode:
        case "hybrid":
            return memory.hybrid_search(query, user, limit, **where)
        case "lexical":
            return memory.lexical_search(query, user, page_size=limit, **where).items
        case "semantic":
            return memory.semantic_search(query, user, top_k=limit, **where)


def _hit_fields(hit: Hit) -> dict[str, object]:
    """A hit as POST /v1/messages/hybrid_search shows it."""
    found = {"score": hit.score, "why": hit.why, "highlights": hit.snippets}
    return {**chat_message(hit.message), **found}


def _hit_text(hit: Hit) -> Text:
    """A hit to be read: score, time, role and id; the extracts; the reasons."""
    message = hit.message
    said = f"  {to_rfc3339(message.ts)}  {message.role}  {message.message_id}\n"
    text = Text.assemble((f"{hit.score:.2f}", "bold"), (said, "dim"))
    for extract in hit.snippets or (_beginning(message.content),):
        text.append("      ").append_text(_marked(extract)).append("\n")
    return text.append(f"      {' · '.join(hit.why)}\n", "dim") if hit.why else text


def _print_done(count: int) -> None:
    if count:
        output.print(f"{count} done")
        sys.stdout.flush()


def _job_text(job: JobItem) -> Text:
    """A job to be read: id, kind, state, how often it was tried, when it is due; its error."""
    tried = f"{job['attempts']} tried"
    line = f"{job['id']}  {job['kind']:<7}  {job['state']:<7}  {tried}  due {job['due']}"
    return Text(f"{line}\n      {_plain(job['error'])}" if job["error"] else line)


def _plain(text: str) -> str:
    """A text without control characters, which might steer the terminal."""
    return "".join(" " if unicodedata.category(it) == "Cc" else it for it in text)


def _beginning(content: str) -> str:
    return content if len(content) <= LONGEST_EXTRACT else f"{content[:LONGEST_EXTRACT]}…"


def _marked(extract: str) -> Text:
    """An extract with its matches in colour."""
    pieces = enumerate(_MARK.split(_plain(extract)))
    return Text.assemble(*((piece, "bold yellow" if at % 2 else "") for at, piece in pieces))


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


if __name__ == "__main__":
    main()
