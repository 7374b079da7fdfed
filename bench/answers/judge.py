"""Is an answer right? By its words (in Chinese, by its characters), without any model."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.answers.questions import Question
from kemem.text.language import is_chinese

_TOKEN = re.compile(r"[a-z0-9]+(?:['.:/-][a-z0-9]+)*|[\u3400-\u9fff]")
_DAY = re.compile(r"\b(\d{4})[-/](\d{1,2})[-/](\d{1,2})\b")
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")
_UNIT = re.compile(r"(?<=\d)(?=[a-z])")  # "16GB", "24June"
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_MONTH_WORDS = (
    "january february march april may june july august september october november december"
)
_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
_FILLER_WORDS = (
    "a an the and or of in on at to for from by with about is was were are be been has have had do "
    "does did i you he she it we they my your his her its our their me him them that this there"
)
_MONTHS = _MONTH_WORDS.split()
_ABBREVIATED = {it[:3]: it for it in _MONTHS} | {"sept": "september"}
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split())}
_ARTICLES = frozenset({"a", "an", "the"})
_FILLERS = frozenset(_FILLER_WORDS.split())
_ABSTAINED = re.compile(
    r"\b(?:(?:do|does|did|could|can|would)(?: not|n't) (?:know|say|tell|mention|specify|contain|"
    r"provide|remember|recall|have (?:any|enough|that))|cannot (?:say|tell|answer|determine)|"
    r"(?:not|never|n't) (?:been )?(?:mentioned|specified|stated|provided|given|known|clear|sure|"
    r"available|in the notes)|no (?:information|mention|record|evidence|notes?|idea|answer)|"
    r"unknown|unclear|unsure|n/a)\b"
    r"|不知道|不清楚|不确定|未知|(?:没有?|未|无)(?:曾|被)?(?:提|说明|记载|记录|相关|信息|资料|答案)"
    r"|无法(?:确定|回答|得知|判断|知道)|不记得"
)


@dataclass(frozen=True, slots=True)
class Score:
    """How good an answer is."""

    f1: float
    right: bool  # has all of a right answer and nothing stale; without one: says that it is unknown
    abstained: bool


def tokens(text: str) -> list[str]:
    """Words and Chinese characters in one form:  "the 7th of Mar, 2023" -> 7 of march 2023"""
    text = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    text = _DAY.sub(_spelled, _THOUSANDS.sub("", text))
    text = _UNIT.sub(" ", _ORDINAL.sub(r"\1", text))
    words = (it.removesuffix("'s") for it in _TOKEN.findall(text))
    words = (_ABBREVIATED.get(it, _NUMBERS.get(it, it)) for it in words)
    return [it for it in words if it not in _ARTICLES]


def _spelled(day: re.Match[str]) -> str:
    year, month, number = map(int, day.groups())
    return f"{number} {_MONTHS[month - 1]} {year}" if 1 <= month <= 12 else day[0]


def f1(gold: str, answer: str) -> float:
    """The harmonic mean of how much of the answer is gold and how much of the gold is there."""
    wanted, given = Counter(tokens(gold)), Counter(tokens(answer))
    common = (wanted & given).total()
    return 2 * common / (wanted.total() + given.total()) if common else 0.0


def contains(gold: str, answer: str, question: str) -> bool:
    """Whether all of the gold answer is there.

    Of a Chinese one the text; of another the words, in any order, without fillers and without those
    that the question has, if any are left then:  "The code was 'LIV'" -> liv
    """
    wanted, given = tokens(gold), tokens(answer)
    if is_chinese(gold):
        return "".join(wanted) in "".join(given)
    words = [it for it in wanted if it not in _FILLERS] or wanted
    new = {*words} - {*tokens(question)}
    return bool(words) and (new or {*words}) <= {*given}


def abstained(answer: str) -> bool:
    """Whether an answer says that it is not known; nothing says so as well."""
    return not answer.strip() or bool(_ABSTAINED.search(answer.casefold().replace("’", "'")))


def judge(question: Question, answer: str) -> Score:
    """How good an answer to a question is."""
    unknown = abstained(answer)
    if not question.gold:
        return Score(float(unknown), unknown, unknown)
    right = not unknown and holds(question, answer) and not _has(answer, question.stale)
    best = 0.0 if unknown else max(f1(it, answer) for it in question.gold)
    return Score(best, right, unknown)


def holds(question: Question, text: str) -> bool:
    """Whether a text has one of the right answers."""
    return any(contains(it, text, question.text) for it in question.gold)


def _has(answer: str, strings: Sequence[str]) -> bool:
    return any(it.casefold() in answer.casefold() for it in strings)
