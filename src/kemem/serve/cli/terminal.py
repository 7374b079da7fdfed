"""What commands share: the terminal, the options of every command, and the settings in force."""

import asyncio
import functools
import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

from rich.console import RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text
from typer import Context, Option, Typer

from kemem.errors import Internal, InvalidArgument, KeMemError, Unavailable
from kemem.records import Micros
from kemem.records.times import to_datetime
from kemem.serve.cli.console import errors, output
from kemem.serve.cli.help import Command
from kemem.serve.cli.language import t, use_language
from kemem.serve.http.process import configure_logs
from kemem.serve.telemetry.audit import record_command
from kemem.settings import Settings, load
from kemem.sync import Memory

LONGEST_EXTRACT = 200  # characters

P = ParamSpec("P")

DataDir = Annotated[
    Path | None,
    Option(help="Directory of the embedded store.", readable=False),  # the store says what is wrong
]
DatabaseUrl = Annotated[str | None, Option(metavar="URL", help="PostgreSQL to use instead.")]
Project = Annotated[str | None, Option(metavar="NAME", help="A project of the settings.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Yes = Annotated[bool, Option("--yes", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class Common:
    """The values of the options that every command has."""

    settings: Settings
    as_json: bool
    data_dir: Path | None
    database_url: str | None
    made: list[str] = field(default_factory=list)  # ids of new records, for the audit log

    @property
    def flags(self) -> str:
        """The options that lead other commands to the same memory, to be shown."""
        given = {"--data-dir": self.data_dir, "--project": self.settings.project}
        flags = "".join(f" {name} {shlex.quote(str(it))}" for name, it in given.items() if it)
        # The URL itself may hold a password.
        return flags + (" --database-url URL" if self.database_url else "")

    def open(self) -> Memory:
        """The memory that the settings describe; the first call opens its store."""
        return Memory(settings=self.settings)

    def print(self, data: object, *text: RenderableType) -> None:
        """Print a result: `data` as JSON for programs, or `text` line by line for people."""
        if self.as_json:
            print_json(data)
        elif text:
            output.print(*text, sep="\n")

    def print_counts(self, counts: dict[str, int], seconds: float) -> None:
        """Print what there is now and how long it took."""
        shown = counts_text({**counts, "seconds": f"{seconds:.1f}"})
        self.print({**counts, "seconds": round(seconds, 3)}, shown)


def command(
    function: Callable[Concatenate[Common, P], None], *, has_json: bool = True
) -> Callable[..., None]:
    """Add --json and the options of the store to a command, which gets them as `Common`."""

    @functools.wraps(function)
    def run(
        context: Context,
        as_json: bool = False,
        data_dir: Path | None = None,
        database_url: str | None = None,
        project: str | None = None,
        **arguments: Any,
    ) -> None:
        settings = settings_in_force(data_dir, database_url, project=project)
        common = Common(settings, as_json, data_dir, database_url)
        with _recorded(common, context.command_path, arguments), _options_named(context.command):
            function(common, **arguments)  # type: ignore[call-arg]

    shared: list[tuple[str, Any, Any]] = [("as_json", AsJson, False)] if has_json else []
    shared += [("data_dir", DataDir, None), ("database_url", DatabaseUrl, None)]
    shared += [("project", Project, None)]
    _, *own = inspect.signature(function).parameters.values()
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, option, default in shared
    ]
    about = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    added.append(about)
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return run


def register(
    app: Typer, *functions: Callable[..., None], name: str | None = None, has_json: bool = True
) -> None:
    """Make functions commands of a group."""
    for function in functions:
        add = app.command(name or function.__name__, cls=Command)
        add(command(function, has_json=has_json))


@contextmanager
def _options_named(called: Any) -> Iterator[None]:
    """Errors that know which option of a command gives the argument that they are about."""
    try:
        yield
    except InvalidArgument as error:
        field = str(error.details.get("field"))
        options = {it.name: it.opts[-1] for it in called.params if it.param_type_name == "option"}
        named = (field, field.removesuffix("_id"), field.removesuffix("s"))  # of user_id, of kinds
        if option := next((options[it] for it in named if it in options), None):
            error.details["option"] = option
        raise


@contextmanager
def _recorded(common: Common, name: str, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Leave a line about a command in the audit log, unless the store is away."""
    try:
        yield
    except (KeMemError, OSError) as error:  # an OSError of a pipe, say, that nobody reads
        if not isinstance(error, Unavailable):
            reason = error if isinstance(error, KeMemError) else Internal(type(error).__name__)
            asyncio.run(record_command(common.settings, name, arguments, reason, common.made))
        raise
    asyncio.run(record_command(common.settings, name, arguments, None, common.made))


def settings_in_force(
    data_dir: Path | None, database_url: str | None, **others: str | int | None
) -> Settings:
    """The settings in force: flags, then the environment, then the file."""
    settings = load(data_dir=data_dir, database_url=database_url, **others)
    use_language(settings.language)
    configure_logs(settings.log_level)
    return settings


def counts_text(counts: Mapping[str, object]) -> str:
    """Counts to be read.  {"messages": 2} -> "messages: 2" """
    return ", ".join(f"{t(name)}: {count}" for name, count in counts.items())


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal, nothing elsewhere; yields the function that moves it."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    ) as shown:
        yield functools.partial(shown.advance, shown.add_task(what, total=total))


def beginning(content: str) -> str:
    """As much of a text as fits a list."""
    return content if len(content) <= LONGEST_EXTRACT else f"{content[:LONGEST_EXTRACT]}…"


def when(at: Micros) -> str:
    """A time for people, in the zone of this machine.  -> "2026-01-26 10:47+08:00" """
    moment = to_datetime(at)
    with suppress(OverflowError):  # of the year 9999 some zones see the next
        moment = moment.astimezone()
    return moment.isoformat(" ", "minutes")


def more_line(cursor: str | None) -> list[Text]:
    """The line below a page that is not the last: how to go on; none below the last."""
    return [] if cursor is None else [Text(t("more: --cursor {cursor}", cursor=cursor), "dim")]


def print_json(value: object) -> None:
    """Print a result for programs."""
    print(json.dumps(value, ensure_ascii=False, indent=2))
