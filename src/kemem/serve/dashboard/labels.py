"""The names of stored words (kinds, types, states, relations) in the languages of the dashboard."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def labels() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """English and Chinese names by group and word."""
    return tomllib.loads(files(__package__).joinpath("labels.toml").read_text("utf-8"))


def label(group: str, word: str, language: str) -> str:
    """The name of a word; one without a name is shown as it is.  "own_type" -> "own type" """
    names = labels()[group].get(word)
    return word.replace("_", " ") if names is None else names[language == "zh"]
