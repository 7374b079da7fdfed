"""Labelled turns (`bench/data/turns`), and which clauses of them are worth keeping."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kemem.records import Message

HERE = Path(__file__).parent.parent / "data" / "turns"
FILES = ("en_a", "en_b", "zh_a", "zh_b")
NOON = 1_768_910_400_000_000
_KIN = (
    "parent_of sibling_of married_to dating partner_of grandparent_of relative_of friend_of "
    "classmate_of roommate_of colleague_of neighbor_of manager_of advised_by teacher_of doctor_of "
    "landlord_of"
)
KIN = frozenset(_KIN.split())
_TOKEN = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")
_NO_WORDS = {
    "user",
    "users",
    "s",
    "用",
    "户",
    "i",
    "m",
    "my",
    "我",
    "is",
    "am",
    "的",
    "and",
    "others",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message; `kept` are the spans that are worth keeping, `relations` what they state."""

    text: str
    kept: tuple[str, ...]
    kinds: tuple[str, ...]
    relations: tuple[tuple[str, str, str], ...]
    worth: bool

    def message(self) -> Message:
        """As a user sends it, on Tuesday, 20 January 2026, at noon UTC."""
        return Message("m", "bench", "user", "talk", "user", self.text, NOON, NOON)


def turns(name: str) -> Iterator[Turn]:
    """The turns of a file."""
    for line in (HERE / f"{name}.txt").read_text("utf-8").splitlines():
        head, _, rest = line.partition(" | ")
        if not head.startswith(("+", "-")):
            continue
        worth, kinds = head[0] == "+", tuple(it.strip() for it in head[1:].split(","))
        text, _, stated = rest.partition(" => ") if worth else (rest, "", "")
        kept = tuple(re.findall(r"\{([^}]*)\}", text)) if worth else ()
        plain = text.replace("{", "").replace("}", "") if worth else text
        triples = [it.split(maxsplit=2) for it in stated.split(";") if len(it.split()) >= 3]
        relations = tuple((one, name, other) for one, name, other in triples)
        yield Turn(plain, kept, kinds, relations, worth)


def plain_turns(name: str) -> Iterator[Turn]:
    """The annotated talks of `chinese.jsonl` or `english.jsonl` as turns: plain statements."""
    file = Path(__file__).parent / f"{name}.jsonl"
    for case in map(json.loads, file.read_text("utf-8").splitlines()):
        told = " ".join(word for fact in case["facts"] for word in fact["has"])
        for message in case["said"]:
            if message["role"] == "user" and "speaker" not in message:
                text = message["content"]
                cut = re.split(r"(?<=[.!?。！？])\s*", text)
                kept = tuple(it for it in cut if set(words(it)) & set(words(told)))
                yield Turn(text, kept, ("other",), (), bool(kept))


def words(text: str) -> list[str]:
    """Words and Han characters without those that stand for the speaker."""
    return [it for it in _TOKEN.findall(text.lower()) if it not in _NO_WORDS]


def _pairs(text: str) -> Counter[tuple[str, ...]]:
    tokens = words(text)
    return (
        Counter(pairwise(tokens)) if len(tokens) > 1 else Counter([tuple(tokens)] if tokens else [])
    )


def share(text: str, other: str) -> float:
    """The share of a text's pairs of words that another text holds."""
    own = _pairs(text)
    return (own & _pairs(other)).total() / own.total() if own else 0.0


def is_kept(text: str, turn: Turn) -> bool:
    """Whether half of a clause lies in spans that are worth keeping, or it holds a whole one."""
    within = bool(turn.kept) and share(text, " | ".join(turn.kept)) >= 0.5
    return within or any(share(span, text) >= 0.8 for span in turn.kept)


def holds_kept(text: str, turn: Turn) -> bool:
    """Whether a sentence holds such a span, or a good part of one."""
    return any(share(span, text) >= 0.5 for span in turn.kept) or is_kept(text, turn)
