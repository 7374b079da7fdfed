"""The names of stored words (kinds, types, states, relations) in the languages of the dashboard."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from kemem.serve.cli.language import Patterns, to_patterns, translated_error


@cache
def labels() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """English and Chinese names by group and word."""
    return {group: names for group, names in _read().items() if group != "error"}


def label(group: str, word: str, language: str) -> str:
    """The name of a word; one without a name is shown as it is.  "own_type" -> "own type" """
    names = labels()[group].get(word)
    return word.replace("_", " ") if names is None else names[language == "zh"]


def error_text(message: str, language: str) -> str:
    """An error of the dashboard or of the library in the language of the reader."""
    for pattern, chinese in _errors() if language == "zh" else ():
        if match := pattern.fullmatch(message):
            parts = match.groupdict()
            return chinese.format(**parts | {"reason": error_text(parts.get("reason", ""), "zh")})
    return translated_error(message, language)


@cache
def _errors() -> Patterns:
    return to_patterns(_read()["error"])


def _read() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath("labels.toml").read_text("utf-8"))
