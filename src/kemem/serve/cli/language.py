"""The language of the command line: English, or Chinese where the locale asks for it.

Texts stand in the code in English. `t` looks them up in `zh.toml`, whose keys they are.
"""

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides, as in POSIX
_CATALOGUE = Path(__file__).parent / "zh.toml"
_current: Language = "en"


def use_language(chosen: Literal["auto", "en", "zh"]) -> None:
    """Show every text from now on in a language; auto: in that of the locale."""
    global _current
    _current = locale_language() if chosen == "auto" else chosen


def locale_language() -> Language:
    """The language of the locale.  LANG=zh_CN.UTF-8 -> "zh" """
    locale = next((it for name in LOCALE_VARIABLES if (it := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def t(text: str, **values: object) -> str:
    """A text in the language of the reader, with values in its places.

    t("{count} done", count=3) -> "3 done"
    """
    shown = catalogue().get(text, text) if _current == "zh" else text
    return shown.format(**values) if values else shown


@cache
def catalogue() -> dict[str, str]:
    """The Chinese of every English text."""
    texts: dict[str, str] = tomllib.loads(_CATALOGUE.read_text("utf-8"))["texts"]
    return texts
