"""The command line: the application, the server, and the commands of operators."""

import asyncio
import gc
import json
import shlex
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from shutil import which
from typing import Annotated, Any, Literal

import structlog
import typer
from rich.text import Text
from typer import Argument, Option
from typer.core import TyperGroup, TyperOption

from kemem import __version__
from kemem.errors import Conflict, InvalidArgument, KeMemError, Unavailable
from kemem.memory import AsyncMemory
from kemem.runtime import system_clock
from kemem.serve.cli import data, imports, terminal
from kemem.serve.cli.bench import bench
from kemem.serve.cli.chat import chat
from kemem.serve.cli.doctor import examine, show_settings, shown_url
from kemem.serve.cli.terminal import Common, command, errors, output, plain, progress
from kemem.serve.demo.world import evaluate, fill, read_questions, read_world
from kemem.serve.mcp.command import mcp
from kemem.serve.rpc.command import dump, rpc
from kemem.settings import Settings
from kemem.sync import Memory

OPTIONAL_PACKAGES = {  # and the extra that brings them
    **dict.fromkeys(("fastapi", "jinja2", "jwt", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("multipart", "prometheus_client"), "server"),
    **dict.fromkeys(("mcp", "mcp_types"), "mcp"),
    **dict.fromkeys(("agents", "jsonschema"), "agents"),
}
NOT_LISTED = ("install_completion", "show_completion", "help")  # options that typer adds
STORE_FILE = "kemem.db"  # of the embedded store
PLACE = "A directory of an embedded store, or the URL of a PostgreSQL."
TO_TRY = (
    "kemem search 我上周说的那家牙医叫什么 --user lin_yue",
    'kemem recall "Does Grace still eat bacon?" --user grace',
    "kemem serve",
)


class Commands(TyperGroup):
    """All commands; the help leaves out itself and completion, and so fits a screen."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for each in parameters:
            if isinstance(each, TyperOption) and each.name in NOT_LISTED:
                each.hidden = True
        return parameters


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # with boxes the help does not fit a screen
    pretty_exceptions_enable=False,  # its tracebacks show local variables, secrets among them
    context_settings={"help_option_names": ["-h", "--help"]},
)
log = structlog.get_logger("kemem")


def main() -> None:
    """Run the command; whatever goes wrong is one line on standard error."""
    gc.freeze()  # what is imported stays: looking through it made a short command a sixth longer
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("info"))
    try:
        app(prog_name="kemem")
    except Exception as error:  # the edge: people get a sentence, the log gets the rest
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if isinstance(error, KeMemError):
            reason = error.message
        elif extra := OPTIONAL_PACKAGES.get(missing or ""):
            reason = f"{missing} is missing; in the checkout, run: pip install '.[{extra}]'"
        else:
            log.debug("command failed", at=traceback.format_exc())
            reason = f"{type(error).__name__}: {error} (KEMEM_LOG_LEVEL=debug shows where)"
        errors.print(Text(f"error: {reason}", style="red"))
        sys.exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print(f"kemem {__version__}")
        raise typer.Exit


# Hidden: the line of --version is needed for a command, so that the help fits a screen.
Version = Option("--version", callback=_print_version, is_eager=True, hidden=True)


@app.callback()
def kemem(_version: Annotated[bool, Version] = False) -> None:
    """Memory for LLM agents: keeps what was said and finds it again."""


@app.command()
def serve(
    host: Annotated[str | None, Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, Option(help="Port to listen on.", min=0, max=65_535)] = None,
    data_dir: terminal.DataDir = None,
    database_url: terminal.DatabaseUrl = None,
) -> None:
    """Serve the HTTP API."""
    settings = terminal.settings_in_force(data_dir, database_url, host=host, port=port)

    from kemem.serve.http.app import serve as serve_http
    from kemem.serve.http.auth import Authenticator

    authenticator = Authenticator(settings)
    authenticator.check_host(settings.host)
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    database, protected = settings.database_url, authenticator.requires_credentials
    hints = []
    if is_empty(settings):
        program = "kemem" if which("kemem") else sys.argv[0]
        here = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir else ""
        hints = [f"Empty?  {program} demo{here} fills it with examples, from another terminal"]

    def announce(port: int) -> None:
        server = f"http://{name}:{port}"
        output.print(
            f"Look    {server}/dashboard",
            f"API     {server}/v1",
            f"MCP     {server}/mcp",
            f"Docs    {server}/docs",
            f"Health  {server}/readyz",
            f"Data    {settings.data_dir if database is None else shown_url(database)}",
            f"Access  {'with a key or token' if protected else 'from this machine, without a key'}",
            *hints,
            sep="\n",
        )
        sys.stdout.flush()

    options = {"host": host, "port": port, "data_dir": data_dir, "database_url": database_url}
    flags = frozenset(name for name, value in options.items() if value is not None)
    serve_http(settings, flags, announce)


@app.command(hidden=True)  # once in the life of a store, and the help must fit a screen
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


def configure(
    common: Common,
    level: Annotated[Literal["agent", "user", "session"], Argument(help="What it is.")],
    name: Annotated[str, Argument(metavar="ID", help="Which one.")],
    label: Annotated[str | None, Option("--name", help='What to call it; "": nothing.')] = None,
    kind: Annotated[str | None, Option("--type", help='Of which type it is; "": none.')] = None,
    config: Annotated[str | None, Option(help="A JSON object, in place of the last one.")] = None,
    disabled: Annotated[
        bool | None,
        Option("--disable/--enable", help="Store nothing new and serve nothing, or go on."),
    ] = None,
    user: Annotated[str | None, Option(help="Whose session it is.")] = None,
    agent: Annotated[str | None, Option(help="With which agent.")] = None,
) -> None:
    """Name, configure, disable or enable an agent, a user or a session."""
    given = None
    if config is not None:
        with suppress(ValueError):
            given = json.loads(config)
        if not isinstance(given, dict):
            raise InvalidArgument(f"--config must be a JSON object, not {config!r:.80}")
    options: dict[str, Any] = {"name": label, "type": kind, "config": given, "disabled": disabled}
    with common.open() as memory:
        entry = memory.configure(level, name, user_id=user, agent_id=agent, **options)
    state = [*filter(None, [entry.name, entry.type]), *["disabled"] * entry.disabled]
    common.print(entry.to_dict(), plain("  ".join([level, entry.id, *state])))


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
    if counts := job["progress"]:
        line += f"  {counts['done']} of {counts['total']}"
    return Text(f"{line}\n      {plain(job['error'])}" if job["error"] else line)


def demo(common: Common, yes: terminal.Yes = False) -> None:
    """Fill a fresh store with examples in Chinese and English."""
    settings, url = common.settings, common.settings.database_url
    place = str(settings.data_dir) if url is None else shown_url(url)
    with _open_store(settings) as memory:
        health = memory.health()
        if health.messages or health.notes or memory.agents(limit=1).items:
            raise Conflict(
                f"the store {place} is in use ({health.messages} messages, {health.notes} notes): "
                "examples go into a fresh one, as in kemem demo --data-dir demo"
            )
    if not yes:
        typer.confirm(f"Fill the empty store {place} with made-up people?", abort=True, err=True)
    started = time.perf_counter()
    world, questions = read_world(system_clock()), read_questions()

    async def fill_store() -> None:
        with progress("Adding", len(world.events)) as advance:
            await fill(world, settings, system_clock(), advance)
        async with AsyncMemory(settings=settings.model_copy(update={"llm": "none"})) as memory:
            with progress("Making vectors"):
                # run_jobs would make none where a server has noted its model before
                await memory.reindex()
            with progress("Asking", len(questions)) as advance:
                await evaluate(questions, memory, advance)

    asyncio.run(fill_store())
    with common.open() as memory:
        health, users = memory.health(), memory.users().items
        counts = {
            "users": len({user.id for user in users}),
            "messages": health.messages,
            "notes": health.notes,
            "relations": sum(len(memory.graph(user.id, limit=1000)) for user in users),
            "workspaces": len({task for task, _ in world.files}),
        }
    common.print_counts(counts, time.perf_counter() - started)
    if not common.as_json:
        here = f" --data-dir {shlex.quote(str(common.data_dir))}" if common.data_dir else ""
        if common.database_url:
            here = " --database-url URL"  # the URL itself may hold a password
        output.print("Try:", *(f"  {command}{here}" for command in TO_TRY), sep="\n")


def is_empty(settings: Settings) -> bool:
    """Whether the embedded store is empty; False for a database elsewhere, which is not asked."""
    if settings.database_url is not None:
        return False
    if not (settings.data_dir / STORE_FILE).exists():
        return True
    with _open_store(settings) as memory:
        return not memory.agents(limit=1).items


def _open_store(settings: Settings) -> Memory:
    """The store without a model or a graph database beside it."""
    return Memory(settings=settings.model_copy(update={"llm": "none", "neo4j_url": None}))


# In the order of the help; commands whose packages are optional import them late.
app.command()(command(demo))
app.command("import")(command(imports.import_files))
app.command()(command(imports.watch))
app.command()(command(data.search))
app.command()(command(data.recall))
app.command()(command(data.profile))
app.command()(command(data.delete))
app.command()(command(chat, has_json=False))
app.add_typer(mcp, name="mcp")
app.command()(command(rpc, has_json=False))
app.command()(command(dump, has_json=False))
for each in (data.backup, data.restore, reindex, jobs, work, retry):
    app.command()(command(each))
app.command()(command(doctor))
app.command(hidden=True)(command(configure))  # the dashboard has a form for it
operators = typer.Typer(help="What is done with a whole database.", no_args_is_help=True)
operators.callback()(lambda: None)  # with one command alone it would be that command
operators.command()(command(distribute))
app.add_typer(operators, name="admin", hidden=True)
app.command(hidden=True)(command(bench))  # few judge models, and the help must fit a screen
app.command(hidden=True)(command(data.quality))  # after a benchmark, which few run


if __name__ == "__main__":
    main()
