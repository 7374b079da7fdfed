"""The language of the command line: English, or Chinese where the locale asks for it.

Texts stand in the code in English. `t` looks them up in `zh.toml`, whose keys they are; errors that
the library wrote are recognized by the patterns of `zh_errors.toml`.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
Patterns = tuple[tuple[re.Pattern[str], str], ...]

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides, as in POSIX
PLACE = re.compile(r"{(\w+)}")  # of a value
_ESCAPED = re.compile(r"\\{(\w+)\\}")
_CHARACTERS = {  # of what is in a place
    **dict.fromkeys(("address", "field", "operator"), "[^ ]"),
    "key": "(?:(?!: ).)",
}
_HAN, _LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[A-Za-z]")
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


class ErrorPhrase(Phrase):
    """An error of the library, which `t` recognizes by its pattern."""

    def __new__(cls, error: str) -> "ErrorPhrase":
        return super().__new__(cls, "{error}", error=error)  # type: ignore[return-value]


def t(text: str, **values: object) -> str:
    """A text in the language of the reader, with values in its places.

    t("{count} done", count=3) -> "3 done"
    """
    return in_language(_current, text, **values)


def in_language(language: str, text: str, **values: object) -> str:
    """A text in a language, with values in its places."""
    if isinstance(text, ErrorPhrase):
        return translated_error(str(text), language)
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
    return (_in_chinese(message) if (language or _current) == "zh" else None) or message


def _in_chinese(message: str) -> str | None:
    """The Chinese of an error, or of a part of one; None where a part of it has none."""
    for pattern, chinese in error_patterns():
        if match := pattern.fullmatch(message):
            values = {name: _part(name, text) for name, text in match.groupdict().items()}
            if None not in values.values():
                return chinese.format(**values)
    return None


def _part(name: str, text: str) -> str | None:
    """What stands in a place of an error, in Chinese where it is a part of the sentence."""
    if name == "noun":  # or a name, which stays
        return _in_chinese(text) or text
    if name not in ("reason", "rule") or not _LATIN.search(text):
        return text
    return _in_chinese(text) or (text if _HAN.search(text) else None)  # of the command line


@cache
def catalogue() -> dict[str, str]:
    """The Chinese of every English text."""
    return _read("zh.toml")


@cache
def error_patterns() -> Patterns:
    """How errors of typer and of the library read, and their Chinese."""
    return to_patterns(_read("zh_errors.toml"))


def to_patterns(errors: Mapping[str, str]) -> Patterns:
    """How errors with values in their places read, and their Chinese; the most precise first."""
    return tuple(
        (re.compile(_ESCAPED.sub(_group, re.escape(english)), re.DOTALL), chinese)
        for english, chinese in sorted(errors.items(), key=lambda it: -len(PLACE.sub("", it[0])))
    )


def _group(place: re.Match[str]) -> str:
    """What stands in a place, as a group of a pattern."""
    return f"(?P<{place[1]}>{_CHARACTERS.get(place[1], '.')}+?)"


def _read(name: str) -> dict[str, str]:
    texts: dict[str, str] = tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))
    return texts
