"""Keywords of a question without a model: what it names, does and is about, and when."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Literal, NamedTuple

from kemem.facts.language import language
from kemem.text.lexicon import Lexicon, load
from kemem.text.segment import STOP_CHARACTERS, STOP_WORDS, is_cjk, search_text, stem
from kemem.text.when import time_phrases

Kind = Literal["entity", "action", "concept", "time"]
_READ = 2_000  # characters; what a long question is about stands at its beginning
_WORTH: dict[Kind, float] = {"entity": 0.9, "concept": 0.7, "action": 0.6, "time": 0.5}
_LIGHT = "用做要想能会"  # before a verb or a thing: 用咖啡机, 想买


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word to search for, and how much it tells.  Keyword("数据库", 0.7, "concept")"""

    text: str
    weight: float  # 0-1
    kind: Kind


class _Spot(NamedTuple):
    """A telling word and where it stands."""

    at: int
    word: str
    kind: Kind


def _words(name: str) -> Mapping[str, str]:
    return load(__package__, "keywords.rules").tables[name]


@cache
def _english() -> tuple[frozenset[str], frozenset[str]]:
    """Words that tell nothing, and stems of actions."""
    return STOP_WORDS.union(_words("PLAIN")), frozenset(map(stem, _words("DOING")))


@cache
def _kinds() -> Mapping[str, Kind | None]:
    """Known Chinese words; None for those that tell nothing."""
    things = [*language("zh").roles, *_words("THINGS")]
    kinds: dict[str, Kind | None] = dict.fromkeys(things, "concept")
    return kinds | dict.fromkeys(_words("ACTIONS"), "action") | dict.fromkeys(_words("IDLE"))


@cache
def _lexicon() -> Lexicon:
    """The patterns; a Chinese word that the lists lack (`run`) stands whole between known ones."""
    words = sorted((word for word in _kinds() if word[1:]), key=len, reverse=True)
    chinese = {name: language("zh").patterns.pattern(name).pattern for name in ("PLACE", "SELF")}
    stop, plain = f"[{''.join(STOP_CHARACTERS)}]", "|".join(_english()[0].union(_words("DOING")))
    lists = {"KNOWN": "|".join(words), "STOP": stop, "PLAIN_WORD": plain}
    return load(__package__, "keywords.rules", **lists, **chinese)


def _pattern(name: str) -> re.Pattern[str]:
    return _lexicon().pattern(name)


def keywords(text: str, *, context: str = "", limit: int = 5) -> list[Keyword]:
    """What to search for, most telling first.  "上次说的那个方案" -> 方案 (concept), 上次 (time)"""
    around = _pattern("SPEAKER").sub("", context[-_READ:])
    words = _weighed(_spots(text), frozenset(_once(_spots(around))))
    telling = [word for word in words if word.kind != "time"]
    vague = len(telling) == 1 and telling[0].kind != "entity" and _pattern("POINTING").search(text)
    if vague or not telling:
        lines = [line for line in around.splitlines() if line.strip()][:-4:-1]  # the latest first
        seen = {search_text(word.text) for word in words}
        for word in _weighed(_spots("\n".join(lines))):
            if word.kind != "time" and search_text(word.text) not in seen:
                words.append(replace(word, weight=round(word.weight / 2, 3)))
    return sorted(words, key=lambda word: -word.weight)[: max(limit, 0)]


def expanded(text: str, words: Sequence[Keyword]) -> str:
    """What to search for.  "按照我之前的数据库配置来" -> "数据库 配置", then what it lacks"""
    own_words = [spot.word for spot in _once(_spots(text)).values() if spot.kind != "time"]
    own = f" {search_text(' '.join(own_words))} "
    more = [it.text for it in words if it.kind != "time" and f" {search_text(it.text)} " not in own]
    return " ".join(dict.fromkeys([*own_words, *more])) or text[:_READ].strip()


def _weighed(spots: Sequence[_Spot], near: frozenset[str] = frozenset()) -> list[Keyword]:
    counts = Counter(search_text(spot.word) for spot in spots)
    words = []
    for at, (key, spot) in enumerate(_once(spots).items()):
        worth = _WORTH[spot.kind] + 0.1 * (key in near) + 0.03 * min(counts[key] - 1, 3)
        weight = round(min(worth - 0.002 * min(at, 50), 1.0), 3)
        words.append(Keyword(spot.word, weight, spot.kind))
    return words


def _once(spots: Sequence[_Spot]) -> dict[str, _Spot]:
    """By search text, each once, and none that is part of a longer one of its kind."""
    first: dict[str, _Spot] = {}
    for spot in spots:
        first.setdefault(search_text(spot.word), spot)
    whole = {k: "|".join(f" {key} " for key, it in first.items() if it.kind == k) for k in _WORTH}
    return {key: it for key, it in first.items() if key and whole[it.kind].count(f" {key} ") == 1}


def _spots(text: str) -> list[_Spot]:
    rest, last = text[:_READ], 0
    times = time_phrases(rest, datetime(1970, 1, 1, tzinfo=UTC))
    spans = [(it.start, it.end) for it in times if not it.holiday]
    spans += [match.span() for match in _pattern("TIME").finditer(rest)]
    spots = list[_Spot]()
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= last:
            spots.append(_Spot(start, _pattern("PREPOSITION").sub("", rest[start:end]), "time"))
            rest, last = rest[:start] + "\0" * (end - start) + rest[end:], end
    return sorted([*spots, *_timeless(rest)])


def _timeless(text: str) -> Iterator[_Spot]:
    for match in _pattern("TOKEN").finditer(text):
        at, word, kind = match.start(), match.group(), _kinds().get(match.group())
        if match.lastgroup == "latin":
            word, kind = _latin(match)
        elif match.lastgroup == "entity":
            word, kind = word.strip('“”「」《》"` '), "entity"
        elif match.lastgroup == "run":
            if word[0] in _LIGHT and (word[2:] or word[1:] in _kinds()):
                at, word = at + 1, word[1:]
            word = word[:-1] if word[2:] and word[-1] in "要想发" else word
            if word[2:] and _kinds().get(word[0]) == "action":  # a verb and its object
                yield _Spot(at, word[0], "action")
                at, word = at + 1, word[1:]
            kind = _kinds().get(word, "concept" if word[1:] else None)
        if kind and len(word) <= 80:  # longer is a paste
            yield _Spot(at, word, kind)


def _latin(match: re.Match[str]) -> tuple[str, Kind | None]:
    """A word in Latin letters; beside Chinese it is a name."""
    text, (at, end), (plain, actions) = match.string, match.span(), _english()
    low = (word := re.sub(r"['’]s$", "", match.group())).lower()
    if not word[1:] or (plain.issuperset(re.split("['’/-]", low)) and word not in ("US", "IT")):
        return word, None
    if _pattern("ODD").search(word):
        return word, "entity"
    verb = low.rstrip("s") in _words("DOING") or not _pattern("NOUN").search(low)
    if verb and stem(low) in actions:
        thing = _pattern("ARTICLE").search(text[max(0, at - 12) : at])
        return word, "concept" if thing else "action"
    opens = _pattern("SENTENCE_START").search(text[max(0, at - 6) : at])
    beside = any(map(is_cjk, text[max(0, at - 3) : end + 3]))
    first_names = language("en").patterns.tables["FIRST_NAMES"]
    name = beside or (word[0].isupper() and not opens) or word in first_names
    return word, "entity" if name else "concept"
