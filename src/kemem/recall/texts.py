"""Texts that models read, in Chinese and English: data files of a package, each read once."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Language = Literal["zh", "en"]


@cache
def tool_texts(package: str) -> Mapping[str, Any]:
    """The `tools.toml` of a package: what its tools, their fields and their messages say."""
    return tomllib.loads((files(package) / "tools.toml").read_text("utf-8"))


@cache
def prompt(name: str, language: Language) -> str:
    """A prompt of the recall agent."""
    return (files(__package__) / f"{name}_{language}.md").read_text("utf-8")


def message(name: str, language: Language, /, **values: object) -> str:
    """A message of the recall agent with its values filled in."""
    template: str = tool_texts(__package__)["messages"][name][language]
    return template.format(**values)
