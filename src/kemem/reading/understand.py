"""First stage of search: what a question asks for."""

import itertools
from datetime import UTC, datetime, timedelta

from kemem.reading.question import Asked
from kemem.text.query import parse
from kemem.text.segment import STOP_CHARACTERS, STOP_WORDS, Token, is_cjk, tokens
from kemem.text.when import time_phrases
from kemem.types import Micros

MAX_NAMES = 300
_LONGEST = 8  # tokens of a name


def understand(text: str, now: Micros) -> Asked:
    """Read a question.  "上周三吃了什么" -> its words, and Wednesday of last week"""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now)
    return Asked(text, parse(text), tuple(time_phrases(text, moment)), tuple(names_in(text)))


def names_in(text: str) -> list[str]:
    """Pieces of a text that can be names of entities, longest first.  "李明 here" -> 李明, here"""
    found: dict[str, None] = {}
    runs = list(tokens(text[:400]))
    for length in range(_LONGEST, 0, -1):
        for start in range(len(runs) - length + 1):
            piece = runs[start : start + length]
            if _can_be_name(piece) and len(found) < MAX_NAMES:
                found[text[piece[0].start : piece[-1].end]] = None
    return list(found)


def _can_be_name(piece: list[Token]) -> bool:
    """Whole words side by side; a single Chinese character is none."""
    if any(after.start - before.end > 1 for before, after in itertools.pairwise(piece)):
        return False
    ends = (piece[0].text, piece[-1].text)
    if any(end in STOP_WORDS or end in STOP_CHARACTERS for end in ends):
        return False
    return len(piece) > 1 or not is_cjk(piece[0].text)
