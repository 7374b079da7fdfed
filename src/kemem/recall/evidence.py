"""Which memories answer best, from several searches and from what was said beside their hits.

Measured on eight sets of conversations (`python -m bench.recall`): a search has counted already
what stands around a hit, so that turns beside it add only a little, replies to a question more;
words of a short hit find others of its kind. Long texts stand for themselves.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kemem.text.segment import tokens

K = 5  # of reciprocal rank: with more, the ends of lists of ten could not be told apart
PARTS = 2  # questions inside a question that are searched for by themselves, the last ones
LEADS = 2  # hits whose words make a search of their own
SHORT = 30  # tokens of a hit that lends its words: a longer one speaks of other things too
LONG = 100  # tokens of a turn that lends nothing to its neighbours and borrows nothing
FOLLOWED = 0.35  # what a place in a search for a hit's words is worth
REPLY = 0.4  # what the turn after a question is worth beside the question
BESIDE = 0.2  # what any other turn next to a hit is worth beside it

_SENTENCE = re.compile(r"(?<=[。！？!?；;])|(?<=\. )")
_SYNTAX = re.compile(r'["“”「」()（）*]')
_MARKS = ("?", "？")


@dataclass(frozen=True, slots=True)
class Turn:
    """A memory as it was seen, in a search or beside another; a note has no role."""

    key: str
    text: str
    role: str = ""


def parts_of(question: str) -> list[str]:
    """The questions in a question that holds several; a quoted conversation holds none."""
    if "\n" in question.strip():
        return []
    sentences = [part.strip() for part in _SENTENCE.split(question)]
    found = [part for part in sentences if part.endswith(_MARKS) and _length(part) >= 3]
    return found[-PARTS:] if len(found) > 1 else []


def followed(asked: Sequence[tuple[str, Sequence[Turn]]]) -> list[str]:
    """What to search for next, from the best hits of each question: plain words, no syntax."""
    leads = [(text, hit) for text, hits in asked for hit in hits[: max(1, LEADS // len(asked))]]
    return [
        _SYNTAX.sub(" ", f"{text} {hit.text}").lower()
        for text, hit in leads
        if _length(hit.text) <= SHORT and not _is_question(hit.text)
    ]


def worth(lists: Iterable[tuple[float, Sequence[Turn]]]) -> dict[str, float]:
    """What each memory is worth by its places in weighted lists, best first."""
    total: defaultdict[str, float] = defaultdict(float)
    for weight, hits in lists:
        for place, hit in enumerate(hits, 1):
            total[hit.key] += weight / (K + place)
    return dict(sorted(total.items(), key=lambda each: -each[1]))


def ranked(
    own: Mapping[str, float], beside: Iterable[tuple[Turn, Turn, bool]], most: int
) -> list[str]:
    """The best keys; `beside` pairs a hit with a turn next to it, and says whether it is later."""
    lent: dict[str, float] = {}
    for hit, other, later in beside:
        share = own.get(hit.key, 0.0) * _share(hit, other, later)
        lent[other.key] = max(lent.get(other.key, 0.0), share)
    total = {key: own.get(key, 0.0) + lent.get(key, 0.0) for key in [*own, *lent]}
    return [key for key in sorted(total, key=lambda key: -total[key]) if total[key] > 0][:most]


def _share(hit: Turn, other: Turn, later: bool) -> float:
    """What a turn beside a hit earns of its worth: turns of one speaker are no dialogue."""
    if hit.role == other.role or max(_length(hit.text), _length(other.text)) > LONG:
        return 0.0
    return REPLY if later and _is_question(hit.text) else BESIDE


def _is_question(text: str) -> bool:
    return any(mark in text[-20:] for mark in _MARKS)


def _length(text: str) -> int:
    return sum(1 for _ in tokens(text))
