"""What chat models are told, in Chinese and in English, from the files beside this one."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from kemem.text.fence import fenced
from kemem.text.language import is_chinese

SILENCE = "[silent]"  # the reply of a member of a group who has nothing to say


def language_of(text: str) -> str:
    """The language to answer a text in: "zh" or "en"."""
    return "zh" if is_chinese(text) else "en"


def text(name: str, language: str) -> str:
    """A short text by its name in texts.toml."""
    texts: dict[str, dict[str, str]] = _texts()
    return texts[language][name]


def system_prompt(
    instructions: str | None, limit: int, language: str, summaries: Sequence[str] = ()
) -> str:
    """Who the model is, how it recalls, and summaries of what it is not shown verbatim."""
    prompt = _read(f"chat_{language}.md").format(
        instructions=instructions or text("assistant", language), limit=limit
    )
    return f"{prompt}\n{fenced('summaries', chr(10).join(summaries))}\n" if summaries else prompt


def member_instructions(
    instructions: str | None, name: str, member_id: str, others: Sequence[str], language: str
) -> str:
    """Who a member of a group is: the instructions of `system_prompt`."""
    group = _read(f"group_{language}.md").format(
        name=name,
        member_id=member_id,
        others=text("comma", language).join(others) or "—",
        silence=SILENCE,
    )
    return f"{instructions}\n\n{group}" if instructions else group


@cache
def _read(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(_read("texts.toml"))
