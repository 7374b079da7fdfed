"""Talk cut into sentences, without what only looks like talk: code, quotations, signs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kemem.text.lexicon import load

LONGEST = 300  # characters of a sentence; a longer one is a paste, not talk
MOST = 500  # sentences of a message that are looked at


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as said, its final sign apart.  "我住在北京？" -> ("我住在北京", "zh", asks)"""

    text: str
    language: Literal["zh", "en"]
    asks: bool = False


GAP = "\ufffc"  # stands for a quotation; a sentence with one is not the speaker's own
_PAIRS = (("“", "”", "\ufdd0"), ("「", "」", "\ufdd1"))
_SHOWN = {ord(hidden): opens for opens, _, hidden in _PAIRS}
_SHORT = 12  # characters of a quoted name: 我的猫叫“咪咪”


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "sentences.rules").pattern(name)


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message in order.  "你好！I live in Rome." -> 你好; I live in Rome"""
    start = 0
    plain = _plain(text)
    ends = (end for end in _pattern("END").finditer(plain + "\n") if end["inside"] is None)
    for count, end in enumerate(ends):
        sentence, start = plain[start : end.start()].strip(" ,，、"), end.end()
        language = _language(sentence)
        if language and len(sentence) <= LONGEST and GAP not in sentence:
            yield Sentence(sentence, language, bool(set("?？") & set(end.group())))
        if count == MOST:
            return


def _plain(text: str) -> str:
    talk = _pattern("CODE").sub("\n", text.replace("’", "'"))
    is_code = _pattern("CODE_LINE").fullmatch
    lines = (_unquoted(line) for line in talk.split("\n") if not is_code(line))
    return _pattern("CONTROL").sub(" ", _pattern("SIGNS").sub("", "\n".join(lines)))


def _unquoted(line: str) -> str:
    """A line without long quotations.

    Marks that open none are hidden from the pattern, which would look for the end of each.
    """
    for opens, closes, hidden in _PAIRS:
        paired = line.rfind(closes) + 1
        line = line[:paired] + line[paired:].replace(opens, hidden)
    return _pattern("QUOTE").sub(_quoted, line).translate(_SHOWN)


def _quoted(match: re.Match[str]) -> str:
    """A short quotation is a name and stays; a longer one is somebody's words."""
    inside: str = match.group(match.lastindex or 0)
    return inside if len(inside) <= _SHORT else GAP


def _language(text: str) -> Literal["zh", "en"] | None:
    """By script; Chinese with English names is Chinese.  "我用 Neovim" -> "zh" """
    han, words = len(_pattern("HAN").findall(text)), len(_pattern("LATIN").findall(text))
    if _pattern("OTHER").search(text) or not han + words:
        return None
    return "zh" if han and (han >= 2 * words or _pattern("HAN").match(text)) else "en"
