"""The terminal as every command writes to it, and `kemem --help`, which imports no more."""

import unicodedata

from rich.console import Console

output = Console(emoji=False, highlight=False, markup=False, soft_wrap=True)
errors = Console(emoji=False, highlight=False, markup=False, soft_wrap=True, stderr=True)


def plain(text: str) -> str:
    """Replace control characters, which might steer the terminal, and lone surrogates by blanks."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)
