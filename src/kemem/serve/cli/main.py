"""The command line: the application, the server, and the commands of operators."""

import gc
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import structlog
import typer
from rich.text import Text
from typer import Option
from typer.core import TyperGroup, TyperOption

from kemem import __version__
from kemem.errors import KeMemError
from kemem.serve.cli import imports, look, manage, operate, remember, sessions, work
from kemem.serve.cli.bench import bench
from kemem.serve.cli.chat import chat
from kemem.serve.cli.demo import demo
from kemem.serve.cli.server import serve
from kemem.serve.cli.terminal import command, errors, output
from kemem.serve.mcp.command import mcp
from kemem.serve.rpc.command import dump, rpc

OPTIONAL_PACKAGES = {  # and the extra that brings them
    **dict.fromkeys(("fastapi", "jinja2", "jwt", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("multipart", "prometheus_client"), "server"),
    **dict.fromkeys(("mcp", "mcp_types"), "mcp"),
    **dict.fromkeys(("agents", "jsonschema"), "agents"),
}
NOT_LISTED = ("install_completion", "show_completion", "help")  # options that typer adds


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


# In the order of the help; commands whose packages are optional import them late.
def register(panel: str, *commands: Callable[..., None], **options: Any) -> None:
    """Make functions commands, under a heading of the help."""
    for function in commands:
        name = options.get("name") or function.__name__
        runs = command(function, has_json=options.get("has_json", True))
        app.command(name, rich_help_panel=panel, hidden=options.get("hidden", False))(runs)


register("Remember", remember.add, remember.learn)
register("Remember", imports.import_files, name="import")
register("Remember", imports.watch, remember.extract)
register("Look", look.search, look.recall)
register("Look", look.list_memories, name="list")
register("Look", look.get, look.history, look.messages, look.profile, look.graph)
register("Manage", manage.update, manage.delete, manage.reopen, manage.forget)
register("Manage", manage.users, manage.agents, sessions.sessions)
app.add_typer(sessions.session, name="session", rich_help_panel="Manage")
register("Manage", manage.configure)
app.command(rich_help_panel="Run")(serve)
register("Run", chat, rpc, has_json=False)
app.add_typer(mcp, name="mcp", rich_help_panel="Run")
register("Run", work.work, demo)
register("Operate", operate.doctor, operate.backup, operate.restore, operate.reindex)
register("Operate", work.jobs, work.retry)
register("Operate", dump, has_json=False)
app.command(hidden=True)(operate.move)  # once in the life of a store
operators = typer.Typer(help="What is done with a whole database.", no_args_is_help=True)
operators.callback()(lambda: None)  # with one command alone it would be that command
operators.command()(command(operate.distribute))
app.add_typer(operators, name="admin", hidden=True)
register("Operate", bench, operate.quality, hidden=True)  # few judge models


if __name__ == "__main__":
    main()
