"""What commands share: the terminal, options, and the settings in force."""

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from kemem.serve.http.logs import configure_logs
from kemem.settings import Settings, load

LONGEST_EXTRACT = 200  # characters

output = Console(emoji=False, highlight=False, markup=False, soft_wrap=True)
errors = Console(emoji=False, highlight=False, markup=False, soft_wrap=True, stderr=True)

DataDir = Annotated[Path | None, typer.Option(help="Directory of the embedded store.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="PostgreSQL to use instead.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settings_in_force(
    data_dir: Path | None, database_url: str | None, **server: str | int | None
) -> Settings:
    """The settings in force: flags, then the environment, then the file."""
    settings = load(data_dir=data_dir, database_url=database_url, **server)
    configure_logs(settings.log_level)
    return settings


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, nothing elsewhere; yields the function that moves it."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    ) as shown:
        yield partial(shown.advance, shown.add_task(what, total=total))


def plain(text: str) -> str:
    """A text without control characters, which might steer the terminal, and half characters."""
    return "".join(" " if unicodedata.category(it) in ("Cc", "Cs") else it for it in text)


def beginning(content: str) -> str:
    """As much of a text as fits a list."""
    return content if len(content) <= LONGEST_EXTRACT else f"{content[:LONGEST_EXTRACT]}…"


def print_counts(counts: Mapping[str, int], as_json: bool, *, seconds: float) -> None:
    """What there is now and how long it took, for people or programs."""
    if as_json:
        print_json({**counts, "seconds": round(seconds, 3)})
        return
    pairs = [f"{name}: {count}" for name, count in counts.items()]
    output.print(", ".join([*pairs, f"seconds: {seconds:.1f}"]))


def print_json(value: object) -> None:
    """An answer for programs."""
    print(json.dumps(value, ensure_ascii=False, indent=2))
