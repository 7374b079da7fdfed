"""The language of the command line: English, or Chinese where the locale asks for it.

Texts stand in the code in English. `t` looks them up in `zh.toml`, whose keys they are.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides, as in POSIX
_CATALOGUE = Path(__file__).parent / "zh.toml"
_PLACE = re.compile(r"\\{(\w+)\\}")  # of a value, in an escaped text
_current: Language = "en"


def use_language(chosen: Literal["auto", "en", "zh"]) -> None:
    """Show every text from now on in a language; auto: in that of the locale."""
    global _current
    _current = locale_language() if chosen == "auto" else chosen


def locale_language() -> Language:
    """The language of the locale.  LANG=zh_CN.UTF-8 -> "zh" """
    locale = next((it for name in LOCALE_VARIABLES if (it := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


class Phrase(str):
    """An English text that `t` can translate later, with its values: for who reads it elsewhere.

    Phrase("{count} failed", count=3) -> "3 failed"
    """

    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, **values: object) -> "Phrase":
        phrase = super().__new__(cls, template.format(**values))
        phrase.template, phrase.values = template, values
        return phrase


def t(text: str, **values: object) -> str:
    """A text in the language of the reader, with values in its places.

    t("{count} done", count=3) -> "3 done"
    """
    return in_language(_current, text, **values)


def in_language(language: str, text: str, **values: object) -> str:
    """A text in a language, with values in its places."""
    if isinstance(text, Phrase):
        return in_language(language, text.template, **text.values)
    shown = catalogue().get(text, text) if language == "zh" else text
    own = {
        name: in_language(language, it) if isinstance(it, Phrase) else it
        for name, it in values.items()
    }
    return shown.format(**own) if values else shown


def translated_error(message: str, language: str | None = None) -> str:
    """An error that was written elsewhere, with its values, in the language of the reader.

    Where the catalogue has no such error it stays English.
    """
    if (language or _current) == "zh":
        for pattern, chinese in error_patterns():
            if match := pattern.fullmatch(message):
                values = match.groupdict()
                if "reason" in values:
                    values["reason"] = translated_error(values["reason"], language)
                return chinese.format(**values)
    return message


@cache
def catalogue() -> dict[str, str]:
    """The Chinese of every English text."""
    texts: dict[str, str] = _read()["texts"]
    return texts


@cache
def error_patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """How errors of typer and of the library read, and their Chinese."""
    return tuple(
        (re.compile(_PLACE.sub(r"(?P<\1>.+)", re.escape(english)), re.DOTALL), chinese)
        for english, chinese in _read()["errors"].items()
    )


def _read() -> dict[str, dict[str, str]]:
    return tomllib.loads(_CATALOGUE.read_text("utf-8"))
