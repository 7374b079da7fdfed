"""Text to search tokens: one small grammar for Chinese and English, the same on every engine."""

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import Stemmer

TEXT_VERSION = "2"  # stored with every index: a change here means that words must be indexed again

# Han, kana, hangul and their extensions: written without spaces, so each character is a token.
_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30ff\u3105-\u312f\u3131-\u318e"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# A word may end in signs that make its name: C++, F#. They do not count between two words: a+b.
_TOKEN = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+(?:[+#]++(?![^\W_{_CJK}]))?")
_RUN = re.compile(rf"[{_CJK}]+|{_TOKEN.pattern}")  # the same, but for characters side by side
_IS_CJK = re.compile(rf"[{_CJK}]")
_CHARACTERS = 1.6  # of a Chinese word
_REACH = 3  # characters that one more can still join: the parts of a Korean syllable

# Words that say nothing about a topic. Only plain queries drop them; the index holds every word.
_STOP_WORDS = """
a an and any are as at be been but by can could d did do does doing for from had has
have he her hers him his how i if in into is it its just ll me my of on or our ours re s
she should so some t than that the their them then there these they this those to too up
us ve very was we were what when where which who whom why will with would you your yours
m am about being having
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
STOP_CHARACTERS = frozenset("的了是我你他她它们在有和就都也吗呢啊吧呀么这那个之与及或一上下来去会")
STOPS = STOP_WORDS | STOP_CHARACTERS

# What makes two texts the same statement: words, values and signs; not punctuation or fillers.
_BULLET = re.compile(r"^\s*(?:[-*•·]|\d{1,3}[.)])\s+")
_PRINTED_DATE = re.compile(r"[(（](\d{4}-\d{2}-\d{2})[)）]$")
# Marks that only separate words; inside values they do not: 3.5, .5, 8:30, 1,000.
_MARKS = re.compile(r"(?<![0-9])[.,:](?![0-9])|(?<=[0-9])[.,:](?![0-9])|[;!?\"“”、。…()\[\]{}]+")
# What may come and go without changing what is said.
_FILLERS = re.compile(r"\b(?:the|really|very|also|quite|just)\b|\btoo(?=\s*$)")
_CHINESE_FILLERS = re.compile(
    r"(?:很|非常|特别|十分|真的)(?=喜欢|爱|讨厌|想)|也(?=不|没|很|喜欢|爱|讨厌|想|是|在|有|会|要)"
    r"|(?<![了呢啊吧呀嘛])[了呢啊吧呀嘛]++(?=\s*$)"
)


class Token(NamedTuple):
    """A search token and where it stands in the text as written."""

    text: str
    start: int
    end: int


def is_cjk(token: str) -> bool:
    """Whether a token begins in a script without spaces: it is a character.  "火" -> True"""
    return _IS_CJK.match(token) is not None


def normalise(text: str) -> str:
    """Fold what people do not mean to distinguish: width, case, composition.  "Ｃafé" -> "café" """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


_fold = lru_cache(maxsize=65_536)(normalise)  # of single characters


def search_text(text: str) -> str:
    """What the word index holds: tokens joined by blanks.  "Hotpots 火锅" -> "hotpot 火 锅" """
    words = list[str]()
    for run in _RUN.findall(normalise(text)):
        if run.isascii() or not is_cjk(run):
            words.append(stem(run))
        else:
            words.extend(run)
    return " ".join(words)


def tokens(text: str) -> Iterator[Token]:
    """The tokens of the search text with their places.  "喝Kopi们" -> 喝, kopi, 们"""
    return (Token(token, *span) for token, span in zip(*located(text), strict=True))


def located(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The same in two lists, tokens and where each begins and ends, in half the time."""
    folded, spans, end = normalise(text), list[tuple[int, int]](), 0
    words = _TOKEN.findall(folded)  # and where each stands, in half the time of finditer()
    for word in words:
        start = folded.index(word, end)
        end = start + len(word)
        spans.append((start, end))
    if places := [] if text.isascii() else _places(text, folded):
        spans = [(places[start][0], places[end - 1][1]) for start, end in spans]
    return [*map(stem, words)], spans


def count_tokens(text: str, most: int) -> int:
    """How many tokens a text has, at most so many."""
    return sum(1 for _ in islice(_TOKEN.finditer(normalise(text)), most))


def spoken_length(text: str) -> float:
    """How many words a text has, in Chinese about.  "我住柏林" -> 2.5"""
    chinese = [*map(is_cjk, _TOKEN.findall(normalise(text)))]
    return chinese.count(False) + chinese.count(True) / _CHARACTERS


def _places(text: str, folded: str) -> list[tuple[int, int]]:
    """The written characters behind each folded one; none where all places stay as they are."""
    parts = [*map(_fold, text)]
    is_folded = "".join(parts) == folded
    if is_folded and set(map(len, parts)) == {1}:
        return []
    spans = [(at, at + 1) for at in range(len(text))]
    if not is_folded:
        spans = list(_clusters(text))
        parts = [normalise(text[start:end]) for start, end in spans]
    return [span for span, part in zip(spans, parts, strict=True) for _ in part]


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Spans that fold by themselves: a character and what joins it (NFD, half-width kana, jamo)."""
    start = 0
    for at, character in enumerate(text[1:], 1):
        if not _joins(text[max(start, at - _REACH) : at], character):
            yield start, at
            start = at
    yield start, len(text)


def _joins(before: str, character: str) -> bool:
    if character < "\u0300":
        return False
    if unicodedata.combining(character) or unicodedata.combining(_fold(character)[0]):
        return True
    return normalise(before + character) != normalise(before) + _fold(character)


_stemmers = threading.local()  # a Snowball stemmer keeps state: one for each thread


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The English stem of a folded word; other scripts stay as they are.  "running" -> "run" """
    if not word.isascii() or len(word) > 64:
        return word[:64]
    if not hasattr(_stemmers, "english"):
        _stemmers.english = Stemmer.Stemmer("english", 0)
    return str(_stemmers.english.stemWord(word))


def fingerprint(text: str) -> str:
    """Equal for texts that make the same statement.  "很喜欢猫。" ~ "喜欢猫"

    A number, a sign, a date, a negation, any word more or less makes another one: a new statement
    is never taken for a stored one.
    """
    bare = _MARKS.sub(" ", normalise(text).replace("’", "'"))
    words = _CHINESE_FILLERS.sub("", _FILLERS.sub(" ", bare))
    statement = " ".join(words.split()) or text
    return blake2b(statement.encode(errors="replace"), digest_size=16).hexdigest()


def dated(text: str, day: str | None) -> str:
    """The fingerprint of what happens on a day: the same plan on another day is another one."""
    return fingerprint(text if day is None or day in text else f"{text} {day}")


def is_listed(line: str) -> bool:
    """Whether a line begins with a bullet or a number, as an item of a list does."""
    return bool(_BULLET.match(line))


def as_printed(line: str) -> Iterator[str]:
    """Fingerprints that a line may have as a memory, which is printed with a bullet and a date."""
    bare = _BULLET.sub("", line)
    yield fingerprint(bare)
    if match := _PRINTED_DATE.search(bare.rstrip()[-12:]):
        text = bare.rstrip()[:-12].rstrip()
        yield fingerprint(text)
        yield dated(text, match[1])
