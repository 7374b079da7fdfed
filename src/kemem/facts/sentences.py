"""Talk cut into sentences, without what only looks like talk: code, quotations, signs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

LONGEST = 300  # characters of a sentence; a longer one is a paste, not talk
MOST = 500  # sentences of a message that are looked at


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as said, its final sign apart.  "我住在北京？" -> ("我住在北京", "zh", asks)"""

    text: str
    language: Literal["zh", "en"]
    asks: bool = False


GAP = "\ufffc"  # stands for a quotation; a sentence with one is not the speaker's own
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTE = re.compile(r"“([^”\n]*)”|\"([^\"\n]*)\"|「([^」\n]*)」|`([^`\n]*)`")
_PAIRS = (("“", "”", "\ufdd0"), ("「", "」", "\ufdd1"))
_SHOWN = {ord(hidden): opens for opens, _, hidden in _PAIRS}
_SHORT = 12  # characters of a quoted name: 我的猫叫“咪咪”
_CODE_LINE = re.compile(
    r"\s*(?:[>$#|]|(?:import|from|def|class|return|const|let|var|SELECT|curl|pip|npm|git|docker)\s"
    r"(?!.*[。.]\s*$)).*|.*[{};]\s*"
)
_SIGNS = re.compile("[\U0001f000-\U0001faff\u2190-\u21ff\u2600-\u27bf\ufe0f\u200d]+")
_CONTROL = re.compile(r"[^\S\n]+|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\ufeff]+")
_ABBREVIATION = r"(?<!\bMr)(?<!\bDr)(?<!\bMs)(?<!\bMrs)(?<!\bProf)(?<!\bSt)(?<!\be\.g)(?<!\bi\.e)"
# A run of dots is matched whole, also inside a word: looking for its end from each dot would take
# quadratic time.
_END = re.compile(
    r"[。！？!；\n…~～]+|\?+(?!\w)|;(?=\s)"
    rf"|(?=\.){_ABBREVIATION}(?<!\b[A-Z])\.++(?:(?=\s|$)|(?P<inside>))"
)
_HAN = re.compile("[\u4e00-\u9fff]")
_LATIN = re.compile("[A-Za-z]+")
_OTHER = re.compile("[\u3040-\u30ff\uac00-\ud7af]")  # kana and hangul: no rules for these


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message in order.  "你好！I live in Rome." -> 你好; I live in Rome"""
    start = 0
    plain = _plain(text)
    ends = (end for end in _END.finditer(plain + "\n") if end["inside"] is None)
    for count, end in enumerate(ends):
        said, start = plain[start : end.start()].strip(" ,，、"), end.end()
        language = _language(said)
        if language and len(said) <= LONGEST and GAP not in said:
            yield Sentence(said, language, bool(set("?？") & set(end.group())))
        if count == MOST:
            return


def _plain(text: str) -> str:
    talk = _CODE.sub("\n", text.replace("’", "'"))
    lines = (_unquoted(line) for line in talk.split("\n") if not _CODE_LINE.fullmatch(line))
    return _CONTROL.sub(" ", _SIGNS.sub("", "\n".join(lines)))


def _unquoted(line: str) -> str:
    """A line without long quotations.

    Marks that open none are hidden from the pattern, which would look for the end of each.
    """
    for opens, closes, hidden in _PAIRS:
        paired = line.rfind(closes) + 1
        line = line[:paired] + line[paired:].replace(opens, hidden)
    return _QUOTE.sub(_quoted, line).translate(_SHOWN)


def _quoted(match: re.Match[str]) -> str:
    """A short quotation is a name and stays; a longer one is somebody's words."""
    inside: str = match.group(match.lastindex or 0)
    return inside if len(inside) <= _SHORT else GAP


def _language(said: str) -> Literal["zh", "en"] | None:
    """By script; Chinese with English names is Chinese.  "我用 Neovim" -> "zh" """
    han, words = len(_HAN.findall(said)), len(_LATIN.findall(said))
    if _OTHER.search(said) or not han + words:
        return None
    return "zh" if han and (han >= 2 * words or _HAN.match(said)) else "en"
