"""The command line: the memory for people and scripts."""

import gc
import shlex
import sys
import traceback
from importlib.metadata import version
from shutil import which
from typing import Annotated, Any

import structlog
import typer
from rich.text import Text
from typer import Option
from typer.core import TyperGroup, TyperOption

from kemem.errors import KeMemError
from kemem.serve.cli import data, operate, terminal
from kemem.serve.cli.chat import chat
from kemem.serve.cli.doctor import shown_url
from kemem.serve.cli.terminal import command, errors, output
from kemem.serve.mcp.command import mcp
from kemem.serve.rpc.command import dump, rpc

OPTIONAL_PACKAGES = {  # and the extra that brings them
    **dict.fromkeys(("fastapi", "jinja2", "jwt", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("multipart", "prometheus_client"), "server"),
    **dict.fromkeys(("mcp", "mcp_types"), "mcp"),
    **dict.fromkeys(("agents", "jsonschema"), "agents"),
}
COMPLETION = ("install_completion", "show_completion")  # options that typer adds


class Commands(TyperGroup):
    """All commands; the help leaves out what sets up completion, and so fits a screen."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for each in parameters:
            if isinstance(each, TyperOption) and each.name in COMPLETION:
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
        output.print(f"kemem {version('kemem-memory')}")
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
    server, database = f"http://{name}:{settings.port}", settings.database_url
    protected = authenticator.requires_credentials
    output.print(
        f"Look    {server}/dashboard",
        f"API     {server}/v1",
        f"MCP     {server}/mcp",
        f"Docs    {server}/docs",
        f"Health  {server}/readyz",
        f"Data    {settings.data_dir if database is None else shown_url(database)}",
        f"Access  {'with a key or token' if protected else 'from this machine, without a key'}",
        sep="\n",
    )
    if operate.is_empty(settings):
        program = "kemem" if which("kemem") else sys.argv[0]
        here = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir else ""
        output.print(f"Empty?  {program} demo{here} fills it with examples, from another terminal")
    sys.stdout.flush()
    options = {"host": host, "port": port, "data_dir": data_dir, "database_url": database_url}
    serve_http(settings, frozenset(name for name, value in options.items() if value is not None))


# In the order of the help; commands whose packages are optional import them late.
app.command()(command(operate.demo))
app.command("import")(command(data.import_messages))
app.command()(command(data.search))
app.command()(command(data.recall))
app.command()(command(chat, has_json=False))
app.add_typer(mcp, name="mcp")
app.command()(command(rpc, has_json=False))
app.command()(command(dump, has_json=False))
for each in (data.backup, data.restore, operate.reindex, operate.jobs, operate.work, operate.retry):
    app.command()(command(each))
app.command()(command(operate.doctor))
app.command(hidden=True)(command(data.quality))  # after a benchmark, which few run


if __name__ == "__main__":
    main()
