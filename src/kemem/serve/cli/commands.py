"""All commands; the module of one is imported when it is called or explained."""

import gc
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import typer

from kemem.serve.cli.help import Command, Group


class Place(NamedTuple):
    """Where a command is, and what it does."""

    heading: str
    module: str
    attribute: str
    text: str
    has_json: bool


@cache
def places() -> dict[str, Place]:
    """Every command by its name."""
    table = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))
    return {
        name: Place(heading, module, attribute, text, "store" not in rest)
        for heading, commands in table.items()
        for name, (module, attribute, text, *rest) in commands.items()
    }


@cache
def synonyms() -> dict[str, str]:
    """What people and other tools call commands, each with the command."""
    table = tomllib.loads(Path(__file__).with_name("synonyms.toml").read_text("utf-8"))
    return {word: name for name, words in table.items() for word in words.split()}


class Commands(Mapping[str, Any]):
    """The commands by their names, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _load(name, places()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(places())

    def __len__(self) -> int:
        return len(places())


class Root(Group):
    """The group of all commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Commands()  # type: ignore[assignment]  # nothing is added to it

    def list_commands(self, ctx: Any) -> list[str]:
        """The names."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called; a word for one is answered with its name."""
        if args and args[0] not in self.commands and (meant := synonyms().get(args[0].lower())):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def listing(self) -> Iterator[tuple[str, str, str]]:
        """The commands, none of them imported."""
        return ((it.heading, name, it.text) for name, it in places().items())


@cache
def _load(name: str, place: Place) -> Any:
    gc.disable()  # what is imported stays: looking through it made a short command a sixth longer
    try:
        found = getattr(import_module(f"kemem.serve.{place.module}"), place.attribute)
    finally:
        gc.freeze()
        gc.enable()
    app = typer.Typer()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, rich_help_panel=place.heading)
    elif "common" in inspect.signature(found).parameters:
        run = import_module("kemem.serve.cli.terminal").command(found, has_json=place.has_json)
        app.command(name, cls=Command, rich_help_panel=place.heading)(run)
    else:
        app.command(name, cls=Command, rich_help_panel=place.heading)(found)
    return typer.main.get_group(app).commands[name]
