"""First stage of search: what a question asks for."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from reprlib import repr as shown
from typing import get_args

from kemem.errors import InvalidArgument
from kemem.records import Micros
from kemem.records.times import to_datetime
from kemem.search.signals import Mode, ParsedQuery, Part
from kemem.text.marks import asks, spoken_by
from kemem.text.query import (
    AllOf,
    AnyOf,
    ConversationQuery,
    Not,
    Phrase,
    Query,
    any_of,
    parse,
    plain,
)
from kemem.text.segment import STOP_CHARACTERS, STOP_WORDS, Token, is_cjk, tokens
from kemem.text.summary import sentences
from kemem.text.when import time_phrases

MAX_NAMES = 300
MAX_KEYWORDS = 20
MAX_PARTS = 3
# 小明：… of a transcript, which is no time of day and no address
_LABEL = re.compile(r"^[^\S\n]*(?!\d)[^\s:：]{1,20}\s?[:：](?!//)\s*", re.MULTILINE)
_TURNS = 2  # lines with a label that make a transcript
_SHORT, _LONG = 10, 30  # words of a short question, and of one that tells of a topic
_CHARACTERS = 1.6  # of a Chinese word
_LONGEST = 8  # tokens of a name
_LONGEST_KEYWORD = 256  # characters


def understand(
    text: str, now: Micros, mode: Mode = "hybrid", keywords: Sequence[str] | None = None
) -> ParsedQuery:
    """Parse a question.  "上周三吃了什么" -> its words, and Wednesday of last week"""
    if mode not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise InvalidArgument(f"mode must be one of {known}, not {shown(mode)}", field="mode")
    wanted = None if keywords is None else any_of(_checked(keywords))
    said, labels = _LABEL.subn("", text)
    transcript = labels >= _TURNS and bool(said.strip())
    read = said if transcript else text
    whole = Part(read, parse(read))
    parts: tuple[Part, ...] = ()
    if mode == "hybrid" and isinstance(whole.query.root, AnyOf):
        whole = replace(whole, query=_with_context(whole, transcript))
        parts = () if transcript else tuple(_parts(text))
    if wanted is not None:
        whole = replace(whole, query=_with_words(whole.query, wanted))
    asking = [part.text for part in parts] or [text]
    return ParsedQuery(
        whole,
        tuple(it for part in asking for it in time_phrases(part, to_datetime(now))),
        tuple(names_in(text)),
        mode,
        wanted,
        parts,
    )


def _parts(text: str) -> list[Part]:
    """The sentences that ask, where others do not: small talk leads to many a question."""
    said = [*sentences(text)]
    asking = [it for it in said if asks(it)][:MAX_PARTS] if len(said) > 1 else []
    return [Part(it, _with_context(Part(it, plain(it)))) for it in asking]


def _with_context(part: Part, transcript: bool = False) -> Query:
    """Its words, put to a conversation. In a transcript names are labels and length tells nothing.

    "What did 小明 say?" -> rows said by 小明 are worth more
    """
    units = () if transcript else part.query.units
    voices = (it.tokens for it in units if len("".join(it.tokens)) > 1)
    conversation = ConversationQuery(
        0.0 if transcript else _length(part.text),
        tuple(Phrase(tuple(map(spoken_by, tokens))) for tokens in voices),
    )
    return replace(part.query, conversation=conversation)


def _length(text: str) -> float:
    """How long a question is, from 0 for a few words to 1; a Chinese word has 1.6 characters."""
    found = [is_cjk(token.text) for token in tokens(text)]
    words = found.count(False) + found.count(True) / _CHARACTERS
    return min(max((words - _SHORT) / (_LONG - _SHORT), 0.0), 1.0)


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
    return replace(query, root=root, units=tuple(dict.fromkeys((*query.units, *wanted.units))))


def _can_be_name(piece: list[Token]) -> bool:
    """Whole words side by side; a single Chinese character is none."""
    if any(after.start - before.end > 1 for before, after in itertools.pairwise(piece)):
        return False
    ends = (piece[0].text, piece[-1].text)
    if any(end in STOP_WORDS or end in STOP_CHARACTERS for end in ends):
        return False
    return len(piece) > 1 or not is_cjk(piece[0].text)
