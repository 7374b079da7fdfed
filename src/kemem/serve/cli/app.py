"""The command line: all commands under their headings, and how a run of one ends."""

import json
import logging
import os
import sys
import tomllib
import traceback
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Option

from kemem import __version__
from kemem.errors import (
    Internal,
    InvalidArgument,
    KeMemError,
    NotFound,
    Unavailable,
    plain_reason,
)
from kemem.serve.cli.commands import Root
from kemem.serve.cli.console import errors, output, plain
from kemem.serve.cli.language import t, translated_error, use_language

OPTIONAL_PACKAGES = {  # and the extra that brings them
    **dict.fromkeys(("fastapi", "jinja2", "jwt", "starlette", "uvicorn"), "server"),
    **dict.fromkeys(("multipart", "prometheus_client"), "server"),
    **dict.fromkeys(("mcp", "mcp_types"), "mcp"),
    **dict.fromkeys(("agents", "jsonschema"), "agents"),
}

FAILED, WRONG_CALL = 1, 2
EXIT_CODES = {NotFound: 3, Unavailable: 4}


app = typer.Typer(
    cls=Root,
    rich_markup_mode=None,  # its boxes need more than a screen
    pretty_exceptions_enable=False,  # its tracebacks show local variables, secrets among them
    context_settings={"help_option_names": ["-h", "--help"]},
)
log = logging.getLogger("kemem")


def run() -> None:
    """Run the command; whatever goes wrong is one line on standard error and an exit code."""
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
        if is_json := "--json" in sys.argv[1:]:
            use_language("en")
        reason, code = _explain(error)
        if is_json:
            print(json.dumps(_as_json(error, reason, code), ensure_ascii=False), file=sys.stderr)
            sys.exit(code)
        shown = t("error: {reason}", reason=_with_option(error, translated_error(plain(reason))))
        errors.print(Text(shown, style="red"))
        if code == WRONG_CALL and (context := getattr(error, "ctx", None)):
            errors.print(t("See: {command}", command=f"{context.command_path} --help"))
        sys.exit(code)


def _with_option(error: Exception, reason: str) -> str:
    """A reason that begins with the option of the command, not with the library's argument."""
    details = error.details if isinstance(error, KeMemError) else {}
    field, option = f"{details.get('field')} ", details.get("option")
    return (
        f"{option} {reason.removeprefix(field)}" if option and reason.startswith(field) else reason
    )


def _as_json(error: Exception, reason: str, code: int) -> dict[str, Any]:
    """An error for programs, as HTTP has it; what the library says stays English."""
    if isinstance(error, KeMemError):
        details = {"details": error.details} if error.details else {}
        return {"error": {"code": error.code, "message": error.message, **details}}
    kind = InvalidArgument if code == WRONG_CALL else Internal
    return {"error": {"code": kind.code, "message": plain(reason)}}


def _choose_language() -> None:
    """The language of the settings, or of the locale, read without them: they take long to import.

    What is wrong with settings is said when a command reads them.
    """
    use_language("auto")
    chosen: Any = os.environ.get("KEMEM_LANGUAGE")
    if not chosen:
        with suppress(OSError, ValueError):
            chosen = tomllib.loads(Path("kemem.toml").read_text("utf-8")).get("language")
    if chosen in ("en", "zh"):
        use_language(chosen)


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
    log.debug("command failed: %s", traceback.format_exc())
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.strerror:  # a full disk, say
        place = f": {error.filename}" if error.filename else ""
        return translated_error(error.strerror) + place, FAILED
    return t("{reason} (KEMEM_LOG_LEVEL=debug shows where)", reason=reason), FAILED


def _wrong_call(error: Any) -> str:
    """What is wrong with an option or argument; with its value, in the words of other errors."""
    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    problems: Any = getattr(error.__cause__, "errors", None)  # of pydantic, which converts values
    problem = problems(include_url=False)[0] if problems else {"type": "value_error"}
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
