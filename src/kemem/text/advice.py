"""Requests for advice: what to know of somebody before one suggests a restaurant to them."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from kemem.text.language import is_chinese

# Types of notes that advice takes account of, where they are about its subject.
ADVISING = ("user_preference", "health", "skill", "possession", "general", "verbatim")


class Advice(NamedTuple):
    """What to know before one gives advice."""

    known: str  # as people say it
    limits: bool  # whether health sets limits to it


class _Subject(NamedTuple):
    asked: re.Pattern[str]
    english: Advice
    chinese: Advice


class _Table(NamedTuple):
    asks: re.Pattern[str]
    words: re.Pattern[str]
    subjects: tuple[_Subject, ...]


def asked_advice(text: str) -> Advice | None:
    """The advice that a text asks for, if any.  "Suggest a snack" -> "I'm allergic to it, …" """
    table = _table()
    if not table.asks.search(text):
        return None
    subject = next(it for it in table.subjects if it.asked.search(text))
    return subject.chinese if is_chinese(text) else subject.english


def without_request(text: str) -> str:
    """A text without the words that ask for advice.  "Any tips for Rome?" -> "Any  for Rome?" """
    return _table().words.sub(" ", text)


@cache
def _table() -> _Table:
    table = tomllib.loads((files(__package__) / "advice.toml").read_text("utf-8"))
    asks = re.compile("|".join((*table["asks"]["en"], *table["asks"]["zh"])), re.IGNORECASE)
    words = re.compile(f"{table['asks']['words_en']}|{table['asks']['words_zh']}", re.IGNORECASE)
    subjects = []
    for it in table["subjects"]:
        asked = rf"\b(?:{it['asked_en']})\b|{it['asked_zh']}" if it["asked_en"] else ""
        advice = (Advice(it[known], it["limits"]) for known in ("known_en", "known_zh"))
        subjects.append(_Subject(re.compile(asked, re.IGNORECASE), *advice))
    return _Table(asks, words, tuple(subjects))
