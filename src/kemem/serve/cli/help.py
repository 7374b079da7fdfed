"""The help: all commands under headings, each of them on one screen, in the reader's language."""

import inspect
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer import echo
from typer.core import TyperCommand, TyperGroup, TyperOption

from kemem.serve.cli.language import t

NOT_LISTED = ("install_completion", "show_completion", "help")  # options that typer adds
# Options that almost every command has.
SHARED = ("as_json", "data_dir", "database_url", "project", "help")
_EXAMPLE = "$ "
_TYPES = (  # how typer shows the type of a value, and how the help does
    (re.compile(r"<(?:int|float)(?: range)?>"), "N"),
    (re.compile(r"<(?:str|list\[str\])>"), "TEXT"),
    (re.compile(r"<(?:path|file|directory)>"), "PATH"),
    (re.compile(r"<(.*)>"), r"\1"),
)


class Command(TyperCommand):
    """A command with a help of one screen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(rendered(formatter.width, *_explained(self, ctx)))


class Group(TyperGroup):
    """Commands under their headings; without a command it shows its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        parts = _explained if self.invoke_without_command else _overview
        formatter.write(rendered(formatter.width, *parts(self, ctx)))

    def listing(self) -> Iterator[tuple[str, str, str]]:
        """The commands: heading, name and what each does, in one line."""
        for name, it in self.commands.items():
            panel = getattr(it, "rich_help_panel", None)
            yield (panel if isinstance(panel, str) else "Commands"), name, _first(it)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not (args or self.invoke_without_command or ctx.resilient_parsing):
            echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


def rendered(width: int, *parts: Any) -> str:
    """Parts of a help as text; Chinese characters are two columns wide."""
    console = Console(
        file=StringIO(), width=width, color_system=None, highlight=False, markup=False, emoji=False
    )
    for part in parts:
        console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def described(text: str | None) -> tuple[list[str], list[str]]:
    """What a docstring says, paragraph by paragraph, and the examples in it."""
    paragraphs = [" ".join(it.split()) for it in inspect.cleandoc(text or "").split("\n\n")]
    examples = [it.removeprefix(_EXAMPLE) for it in paragraphs if it.startswith(_EXAMPLE)]
    return [it for it in paragraphs if it and not it.startswith(_EXAMPLE)], examples


def _overview(group: Group, ctx: Any) -> Iterator[Any]:
    """The commands of a group, one a line, below what the group is."""
    yield t("Usage: {usage}", usage=f"{ctx.command_path} COMMAND [OPTIONS]")
    yield ""
    paragraphs, _ = described(group.help)
    yield from map(t, paragraphs)
    yield ""
    rows = [(t(heading), name, t(text)) for heading, name, text in group.listing()]
    options: list[Any] = group.get_params(ctx)
    for option in options:
        if option.name not in NOT_LISTED:
            rows.append((t("Options"), option.opts[0], t(option.help)))
    heads = [head if head != before else "" for head, before in _with_last(rows)]
    yield _grid([(head, *row[1:]) for head, row in zip(heads, rows, strict=True)])


def _first(command: Any) -> str:
    """What a command does, in one line."""
    return described(command.help)[0][0]


def _with_last(rows: list[tuple[str, str, str]]) -> Iterator[tuple[str, str]]:
    """The heading of each row beside that of the row before."""
    last = ""
    for head, *_ in rows:
        yield head, last
        last = head


def _explained(command: TyperCommand | Group, ctx: Any) -> Iterator[Any]:
    """One command: how it is called, what it does, its arguments and options, an example."""
    parameters: list[Any] = command.get_params(ctx)
    arguments = [it for it in parameters if it.param_type_name == "argument"]
    options = [it for it in parameters if it.param_type_name == "option" and not it.hidden]
    named = [_form(it, ctx) for it in options if it.required]
    inner = command.commands if isinstance(command, Group) else {}
    places = ["[COMMAND]"] * bool(inner) + [_form(it, ctx) for it in arguments]
    parts = [ctx.command_path, *places, *named, "[OPTIONS]"]
    yield t("Usage: {usage}", usage=" ".join(parts))
    paragraphs, examples = described(command.help)
    for paragraph in paragraphs:
        yield ""
        yield t(paragraph)
    shared = [it for it in options if it.name in SHARED]
    own = [it for it in options if it not in shared]
    sections = {
        t("Commands"): [(str(it.name), t(_first(it))) for it in inner.values()],
        t("Arguments"): [(_form(it, ctx), _meaning(it)) for it in arguments],
        t("Options"): [(_form(it, ctx), _meaning(it)) for it in own],
        t("Common options"): [(_form(it, ctx), _meaning(it)) for it in shared],
    }
    for title, rows in sections.items():
        if rows:
            yield ""
            yield title
            yield Padding(_grid(rows), (0, 0, 0, 2))
    if examples:
        yield ""
        yield t("Example")
        yield from (Text(f"  {example}", overflow="fold", no_wrap=True) for example in examples)


def _form(parameter: Any, ctx: Any) -> str:
    """How a parameter is written.  "--limit N", "[TEXT]" """
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    text, _ = parameter.get_help_record(ctx)
    for pattern, shown in _TYPES:
        text = pattern.sub(shown, text)
    return str(text)


def _meaning(parameter: Any) -> str:
    """What a parameter is for, and which values it takes."""
    text = t("Show this help.") if parameter.name == "help" else t(parameter.help or "")
    facts = []
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is not None or high is not None:
        facts.append(f"{low:g}–{high:g}" if None not in (low, high) else f"≥ {low:g}")
    if parameter.required and isinstance(parameter, TyperOption):
        facts.append(t("required"))
    elif (default := _default(parameter)) is not None:
        facts.append(t("default: {value}", value=default))
    return f"{text} [{', '.join(facts)}]" if facts else text


def _default(parameter: Any) -> str | None:
    """The default of a parameter, where one is worth a word."""
    value = parameter.default
    if parameter.secondary_opts and isinstance(value, bool):
        return str((parameter.opts if value else parameter.secondary_opts)[0])
    return None if value is None or value is False or callable(value) else str(value)


def _grid(rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    columns = list(rows)
    for at in range(len(columns[0])):
        table.add_column(no_wrap=at < len(columns[0]) - 1)
    for row in columns:
        table.add_row(*row)
    return table
