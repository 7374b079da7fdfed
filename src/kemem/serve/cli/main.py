"""The command line: all commands under their headings, and how a run of one ends."""

import gc
import sys
import traceback
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any

import structlog
import typer
from pydantic import ValidationError
from rich.text import Text
from typer import Option

from kemem import __version__
from kemem.errors import InvalidArgument, KeMemError, NotFound, Unavailable, plain_reason
from kemem.serve.cli import imports, look, manage, operate, privacy, remember, sessions, work
from kemem.serve.cli.audit import audit
from kemem.serve.cli.chat import chat
from kemem.serve.cli.demo import demo
from kemem.serve.cli.feedback import feedback
from kemem.serve.cli.help import Command, Group, register
from kemem.serve.cli.keys import keys
from kemem.serve.cli.language import t, translated_error, use_language
from kemem.serve.cli.ontology import ontology
from kemem.serve.cli.projects import projects
from kemem.serve.cli.server import serve
from kemem.serve.cli.terminal import errors, output, plain
from kemem.serve.cli.webhooks import webhooks
from kemem.serve.mcp.command import mcp
from kemem.serve.rpc.command import rpc
from kemem.settings import load

OPTIONAL_PACKAGES = {  # and the extra that brings them
    **dict.fromkeys(("fastapi", "jinja2", "jwt", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("multipart", "prometheus_client"), "server"),
    **dict.fromkeys(("mcp", "mcp_types"), "mcp"),
    **dict.fromkeys(("agents", "jsonschema"), "agents"),
}

FAILED, WRONG_CALL = 1, 2
EXIT_CODES = {NotFound: 3, Unavailable: 4}

app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,  # its boxes need more than a screen
    pretty_exceptions_enable=False,  # its tracebacks show local variables, secrets among them
    context_settings={"help_option_names": ["-h", "--help"]},
)
log = structlog.get_logger("kemem")


def main() -> None:
    """Run the command; whatever goes wrong is one line on standard error and an exit code."""
    gc.freeze()  # what is imported stays: looking through it made a short command a sixth longer
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("info"))
    for stream in (sys.stdout, sys.stderr):  # a terminal may have no Chinese characters
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    _choose_language()
    try:
        sys.exit(app(prog_name="kemem", standalone_mode=False) or 0)
    except typer.Abort:  # a question was answered with no, or with the end of input
        errors.print(t("Aborted."))
        sys.exit(FAILED)
    except Exception as error:  # the edge: people get a sentence, the log gets the rest
        reason, code = _explain(error)
        shown = t("error: {reason}", reason=translated_error(plain(reason)))
        errors.print(Text(shown, style="red"))
        if code == WRONG_CALL and (context := getattr(error, "ctx", None)):
            errors.print(t("See: {command}", command=f"{context.command_path} --help"))
        sys.exit(code)


def _choose_language() -> None:
    """The language of the settings, or of the locale; what is wrong with settings is said later."""
    use_language("auto")
    with suppress(KeMemError, OSError):
        use_language(load().language)


def _explain(error: Exception) -> tuple[str, int]:
    """What went wrong, for people, and the exit code."""
    if isinstance(error, KeMemError):
        codes = (code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
        called_wrongly = isinstance(error, InvalidArgument) and "field" in error.details
        return error.message, WRONG_CALL if called_wrongly else next(codes, FAILED)
    if hasattr(error, "format_message"):  # of typer: its classes of errors have no public name
        return _wrong_call(error), WRONG_CALL
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if extra := OPTIONAL_PACKAGES.get(missing or ""):
        how = f"pip install '.[{extra}]'"
        text = t("{name} is missing; in the checkout, run: {command}", name=missing, command=how)
        return text, FAILED
    log.debug("command failed", at=traceback.format_exc())
    reason = f"{type(error).__name__}: {error}"
    return t("{reason} (KEMEM_LOG_LEVEL=debug shows where)", reason=reason), FAILED


def _wrong_call(error: Any) -> str:
    """What is wrong with an option or argument; with its value, in the words of other errors."""
    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    if not isinstance(error.__cause__, ValidationError):
        return message
    problem = error.__cause__.errors(include_url=False)[0]
    if problem["type"] == "value_error":  # a choice, whose message has the value
        return message
    name = message.removeprefix("Invalid value for ").partition(":")[0].strip("'")
    return name + plain_reason(problem, name)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print(f"kemem {__version__}")
        raise typer.Exit


Version = Option("--version", callback=_print_version, is_eager=True, help="Show the version.")


@app.callback()
def kemem(_version: Annotated[bool, Version] = False) -> None:
    """Memory for LLM agents: keeps what was said and finds it again."""


# Each under its heading, in the order of the help.
REMEMBER, LOOK, MANAGE, RUN, OPERATE = "Remember", "Look", "Manage", "Run", "Operate"
register(app, REMEMBER, remember.add, remember.learn)
register(app, REMEMBER, imports.import_files, name="import")
register(app, REMEMBER, imports.watch, remember.extract)
register(app, LOOK, look.search, look.recall)
register(app, LOOK, look.list_memories, name="list")
register(app, LOOK, look.get, look.history, look.messages, look.profile, look.graph, feedback)
register(app, MANAGE, manage.update, manage.delete, manage.reopen, manage.forget)
register(app, MANAGE, manage.users, manage.agents, manage.configure, sessions.sessions)
app.add_typer(sessions.session, name="session", rich_help_panel=MANAGE)
register(app, MANAGE, privacy.inventory, privacy.export, privacy.erase)
app.command(cls=Command, rich_help_panel=RUN)(serve)
register(app, RUN, chat, rpc, has_json=False)
app.add_typer(mcp, name="mcp", rich_help_panel=RUN)
register(app, RUN, work.work, demo)
register(app, OPERATE, operate.doctor, work.jobs, work.retry)
register(app, OPERATE, operate.backup, operate.restore, operate.reindex)
app.command(cls=Command, rich_help_panel=OPERATE)(operate.move)
app.add_typer(keys, name="keys", rich_help_panel=OPERATE)
register(app, OPERATE, audit, projects)
app.add_typer(ontology, name="ontology", rich_help_panel=OPERATE)
app.add_typer(webhooks, name="webhooks", rich_help_panel=OPERATE)
app.add_typer(operate.admin, name="admin", rich_help_panel=OPERATE)


if __name__ == "__main__":
    main()
