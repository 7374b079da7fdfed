"""Commands about what is kept of one user: inventory, export, erase."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from kemem.serve.cli.console import plain
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, Yes, progress, when

User = Annotated[str, Option(metavar="ID", help="Whose data.")]


def inventory(common: Common, user: User) -> None:
    """Count everything that is kept of a user.

    $ kemem inventory --user mia
    """
    with common.open() as memory:
        kept = memory.privacy.inventory(user)
    fields = kept.to_dict()
    counts = {name: it for name, it in fields.items() if isinstance(it, int)}
    counts |= {"notes": sum(kept.notes.values()), **kept.journal}
    common.print(fields, *_lines(counts))


def export(
    common: Common,
    user: User,
    to: Annotated[
        Path | None, Option("--to", help="A new file, if not kemem-export-USER.zip here.")
    ] = None,
) -> None:
    """Write everything that is kept of a user to one zip.

    $ kemem export --user mia --to mia.zip
    """
    with common.open() as memory, progress(t("Exporting")):
        made = memory.privacy.export(user, to)
    names = ("messages", "notes", "relations", "sessions", "size")
    lines = _lines({name: getattr(made, name) for name in names})
    common.print(made.to_dict(), str(made.path), *lines)


def erase(common: Common, user: User, yes: Yes = False) -> None:
    """Erase everything that is kept of a user; print a receipt.

    $ kemem erase --user mia
    """
    if not yes:
        question = t("All data of {user} will be erased for good. Go on?", user=plain(user))
        typer.confirm(question, abort=True, err=True)
    with common.open() as memory:
        receipt = memory.privacy.erase(user)
    at = when(receipt.erased_at)
    lines = [t("All data of {user} was erased at {at}.", user=plain(user), at=at)]
    lines += _lines(receipt.erased)
    lines += [t("Not erased: {what}", what=it) for it in _lines(receipt.remaining)]
    lines += [t("Copies may be left: {what}", what=plain(it)) for it in receipt.elsewhere]
    common.print(receipt.to_dict(), *lines, f"SHA-256: {receipt.digest}")


def _lines(counts: Mapping[str, int]) -> list[str]:
    """Counts under the names that the JSON has."""
    return [f"{name}: {count}" for name, count in counts.items()]
