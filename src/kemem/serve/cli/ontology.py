"""Own types by command: shown, and replaced by a file."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument

from kemem.errors import InvalidArgument
from kemem.records.ontology import Ontology
from kemem.serve.cli.console import plain
from kemem.serve.cli.help import Group
from kemem.serve.cli.language import t
from kemem.serve.cli.options import to_object
from kemem.serve.cli.terminal import Common, register

ontology = typer.Typer(cls=Group)


@ontology.callback()
def of_types() -> None:
    """Show or replace your own types of memories."""


def show(common: Common) -> None:
    """Show the types, with the number of memories of each.

    $ kemem ontology show
    """
    with common.open() as memory:
        types, counts = memory.ontology.get(), memory.ontology.counts()
    common.print(types.to_dict(), *_lines(types, counts))


def set_types(
    common: Common,
    file: Annotated[Path, Argument(metavar="FILE", help="TOML or JSON; - is JSON on stdin.")],
) -> None:
    """Replace the types that the store keeps by those of a file.

    Stored memories stay as they are; kemem extract applies the types to old messages.

    $ kemem ontology set types.toml
    """
    with common.open() as memory:
        types = memory.ontology.set(_read(file))
        counts = memory.ontology.counts()
    common.print(types.to_dict(), *_lines(types, counts))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        text = (
            typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text("utf-8")
        )
        given = tomllib.loads(text) if file.suffix == ".toml" else to_object(text, "FILE") or {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgument(f"{plain(str(file))}: {reason}", field="FILE") from None
    return given["ontology"] if given.keys() == {"ontology"} else given  # as kemem.toml has it


def _lines(types: Ontology, counts: Mapping[str, Mapping[str, int]]) -> list[Text]:
    titles = {"notes": t("Notes"), "entities": t("Entities"), "relations": t("Relations")}
    lines = list[Text]()
    for group in (each.name for each in fields(Ontology)):
        own = getattr(types, group)
        lines += [Text(titles[group], style="bold")] if own else []
        for name, it in own.items():
            head = f"  {name}  {counts[group][name]}\n"
            lines.append(Text.assemble(head, (f"    {plain(it.description)}", "dim")))
    return lines or [Text(t("There are no types of your own."))]


register(ontology, show)
register(ontology, set_types, name="set")
