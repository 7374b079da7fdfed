"""First stage of search: what a question asks for."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from reprlib import repr as shown
from typing import get_args

from kemem.errors import InvalidArgument
from kemem.reading.question import Asked, Mode
from kemem.text.query import AllOf, AnyOf, Not, Query, any_of, parse
from kemem.text.segment import STOP_CHARACTERS, STOP_WORDS, Token, is_cjk, tokens
from kemem.text.when import time_phrases
from kemem.types import Micros

MAX_NAMES = 300
MAX_KEYWORDS = 20
_LONGEST = 8  # tokens of a name
_LONGEST_KEYWORD = 256  # characters


def understand(
    text: str, now: Micros, mode: Mode = "hybrid", keywords: Sequence[str] | None = None
) -> Asked:
    """Read a question.  "上周三吃了什么" -> its words, and Wednesday of last week"""
    if mode not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise InvalidArgument(f"mode must be one of {known}, not {shown(mode)}", field="mode")
    wanted = None if keywords is None else any_of(_checked(keywords))
    query = parse(text)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now)
    return Asked(
        text,
        query if wanted is None else _with_words(query, wanted),
        tuple(time_phrases(text, moment)),
        tuple(names_in(text)),
        mode,
        wanted,
    )


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


def _checked(keywords: Sequence[str]) -> list[str]:
    words = [*keywords] if isinstance(keywords, list | tuple) else []
    right = all(
        isinstance(word, str) and word.strip() and len(word) <= _LONGEST_KEYWORD for word in words
    )
    if not right or not 1 <= len(words) <= MAX_KEYWORDS:
        raise InvalidArgument(
            f"keywords must be a list of 1-{MAX_KEYWORDS} texts of up to {_LONGEST_KEYWORD} "
            f"characters, none blank, not {shown(keywords)}",
            field="keywords",
        )
    return words


def _with_words(query: Query, wanted: Query) -> Query:
    """A query in which keywords count as words of the question; what AND and NOT demand stays."""
    strict = isinstance(query.root, AllOf | Not)
    root = query.root if strict else AnyOf((query.root, wanted.root))
    return Query(root, tuple(dict.fromkeys((*query.units, *wanted.units))))


def _can_be_name(piece: list[Token]) -> bool:
    """Whole words side by side; a single Chinese character is none."""
    if any(after.start - before.end > 1 for before, after in itertools.pairwise(piece)):
        return False
    ends = (piece[0].text, piece[-1].text)
    if any(end in STOP_WORDS or end in STOP_CHARACTERS for end in ends):
        return False
    return len(piece) > 1 or not is_cjk(piece[0].text)
