"""Texts in which pieces are marked: what changed between two, what a search matched."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from kemem.results import Hit
from kemem.text.snippets import CLOSE, OPEN

Tag = Literal["", "ins", "del", "mark"]

_MOST = 2_000  # words: two long texts that share little take minutes to compare
_WORD = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff]+|\s+|.", re.DOTALL)
_TAGS = re.compile(f"({OPEN}|{CLOSE})")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a text and the element that it stands in; without a name, none."""

    text: str
    tag: Tag = ""


def changed(before: str, after: str) -> list[Piece]:
    """What became of a text, word by word.  "不吃辣" -> "吃辣": del 不, then 吃辣"""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) > _MOST:
        return [Piece(before, "del"), Piece(after, "ins")]
    pieces: list[Piece] = []
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for step, old_start, old_end, new_start, new_end in steps:
        gone, come = "".join(old[old_start:old_end]), "".join(new[new_start:new_end])
        if step == "equal":
            pieces.append(Piece(gone))
        else:
            pieces += [Piece(gone, "del")] * bool(gone) + [Piece(come, "ins")] * bool(come)
    return pieces


def highlighted(hit: Hit) -> list[Piece]:
    """What a hit says, with the words marked that a search matched; extracts of a long text."""
    if not hit.snippets or _TAGS.search(hit.memory):  # whose own tags would pass for marks
        return [Piece(hit.memory)]
    pieces: list[Piece] = []
    tag: Tag = ""
    for part in _TAGS.split(" ".join(hit.snippets)):
        if part in (OPEN, CLOSE):
            tag = "mark" if part == OPEN else ""
        elif part:
            pieces.append(Piece(part, tag))
    return pieces
