"""Summaries without a model: the sentences of a talk that say most, in its own words and order."""

import heapq
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from kemem.records import Message
from kemem.records.times import to_rfc3339
from kemem.text.language import count_tokens, is_chinese
from kemem.text.lexicon import load
from kemem.text.segment import STOPS, is_cjk, search_text

_LONGEST = 240  # characters of a sentence; a longer one is a paste, and cut
_SAMPLE = 4_000  # characters by which the language is decided
_DULL = 0.2  # a sentence that scores less is left out even where there is room

_NAMES = {
    True: {"user": "用户", "assistant": "助手", "system": "系统", "tool": "工具"},
    False: {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"},
}
_SECOND_RANK = {name for names in _NAMES.values() for role, name in names.items() if role != "user"}

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_BORDER = re.compile(
    r"(?<=[。！？；])(?![”」』）])|(?<=[!?;…])\s+|\n+"
    r"|(?<=\.)(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bMrs\.)(?<!\bSt\.)\s+"
    r"(?!(?<=\d\.\s)[a-z])"
)
_LINE = re.compile(r"(?:\[(\d{4}-\d\d-\d\d)\] )?(?:([^:：\s][^:：]{0,29}): )?(.*)")
_CODE = re.compile(r"[{}();=<>\[\]|\\$_/]")
_CLOSERS = "\"'”’」』）)]】》"
_MARKS = ".!?…;:,~。！？；：，、～"  # one of them ends a sentence that another may follow
_POLITE = 160  # characters; a longer text tells something
_TELLING, _NUMBER = re.compile(r"\w"), re.compile(r"\d")


@cache
def _cues() -> list[tuple[float, re.Pattern[str]]]:
    """What a pattern adds to the score of a sentence that has it, once."""
    lexicon = load(__package__, "summary.rules")
    cues = []
    for heading, lines in lexicon.rules:
        try:
            weight = float(heading.text.split()[0])
        except ValueError:
            lexicon.refuse(heading, f"expected a weight, not {heading.text!r}")
        pattern = "|".join(line.text for line in lines)
        cues.append((weight, lexicon.compile(heading, pattern, re.I if weight < 0 else re.NOFLAG)))
    return cues


class Sentence(NamedTuple):
    """One sentence: on which day, by whom, what."""

    day: str
    speaker: str
    text: str


def speaks_chinese(texts: Iterable[str]) -> bool:
    """Whether a talk is mostly in Chinese, by its beginning."""
    sample = ""
    for text in texts:
        sample += text[: _SAMPLE // 4]
        if len(sample) >= _SAMPLE:
            break
    return is_chinese(sample)


def speaker(message: Message, chinese: bool) -> str:
    """Who said it: the name where it is known, else the role.  "用户" """
    name = " ".join(re.split(r"[\s:：]+", message.speaker))
    return name.strip()[:30] or _NAMES[chinese].get(message.role, message.role)


@cache
def _politeness(*lists: str) -> re.Pattern[str]:
    """The words of lists, the longest first, so that none hides a longer one."""
    tables = load(__package__, "summary.rules").tables
    words = sorted({word for name in lists for word in tables[name]}, key=len, reverse=True)
    return re.compile(rf"(?<![a-z])(?:{'|'.join(words)})(?![a-z])", re.I)


@lru_cache(4096)
def acknowledges(text: str, *, answer: bool = False) -> bool:
    """Whether a text is politeness alone; as the answer to a question a yes tells something.

    "Got it, thanks!" -> True, 好的，谢谢 -> True, "Got it. The code is 7741." -> False
    """
    if len(text) > _POLITE or _NUMBER.search(text):
        return False
    words = _politeness("COURTESY") if answer else _politeness("ASSENT", "COURTESY")
    parting = _politeness("PARTING")
    return not any(
        _TELLING.search(words.sub("", parting.sub("", one))) for one in sentences(text + " ")
    )


def sentences_of(messages: Iterable[Message], chinese: bool) -> list[Sentence]:
    """The sentences of messages, code left out."""
    return [
        Sentence(to_rfc3339(message.ts)[:10], speaker(message, chinese), sentence)
        for message in messages
        for sentence in sentences(_FENCED.sub("\n", message.content))
    ]


def sentences_of_summary(summary: str) -> list[Sentence]:
    """The sentences of a summary that was written as `summarise` writes."""
    of_summary, day = [], ""
    for line in summary.splitlines():
        match = _LINE.fullmatch(line)
        new_day, name, text = match.groups(default="") if match else ("", "", line)
        day = new_day or day
        of_summary += [Sentence(day, name, sentence) for sentence in sentences(text)]
    return of_summary


def sentences(text: str) -> Iterator[str]:
    """A text cut where sentences end.  "你好！I met Dr. Li." -> 你好！ / I met Dr. Li."""
    for part in _BORDER.split(text):
        bare = " ".join(part.split())
        if len(bare) > 1:
            yield bare if len(bare) <= _LONGEST else bare[: _LONGEST - 1] + "…"


def rarity(talk: Iterable[Sentence], terms: Sequence[Collection[str]] = ()) -> dict[str, float]:
    """How much each term of a talk tells: the more, the fewer sentences have it."""
    terms = terms or [_terms(one.text) for one in talk]
    counts = Counter(chain.from_iterable(terms))
    values = {count: math.log(1 + len(terms) / (1 + count)) for count in {*counts.values()}}
    return {term: values[count] for term, count in counts.items()}


def summarise(
    talk: Sequence[Sentence],
    max_tokens: int,
    worth: Mapping[str, float] | None = None,
    *,
    first: int | None = None,
) -> str:
    """The most telling sentences within `max_tokens`; `worth` is the rarity in a longer talk.

    The sentence at `first` goes before all others: it is cut where it does not fit.
    """
    terms = [_terms(one.text) for one in talk]
    chosen, room = list[int](), max_tokens
    ranked = _by_worth(talk, terms, rarity(talk, terms) if worth is None else worth)
    if first is not None:
        ranked = chain([first], (at for at in ranked if at != first))
    for at in ranked:
        cost = count_tokens(talk[at].text) + 2
        if cost <= room:
            chosen.append(at)
            room -= cost
    while chosen and count_tokens(_written(talk, chosen)) > max_tokens:
        chosen.pop()
    if not chosen and talk:
        best = talk[most_telling(talk) if first is None else first]
        return cut(_written([best._replace(day="")], [0]), max_tokens)
    return _written(talk, chosen)


def most_telling(talk: Sequence[Sentence]) -> int:
    """The place of the sentence that alone says most."""

    def worth(at: int) -> tuple[bool, float]:
        text = talk[at].text
        return not acknowledges(text), _score(talk[at]) + len(_terms(text)) / 100

    return max(range(len(talk)), key=worth)


def joined(texts: Sequence[str]) -> str:
    """Sentences as one text, with a mark between any two.  ["see you", "Bye!"] -> see you. Bye!"""
    text = ""
    for one in texts:
        space = "" if text and is_chinese(text[-20:]) else " "
        if text and not text.rstrip(_CLOSERS).endswith(tuple(_MARKS)):
            text += "." if space else "。"
        text += (space if text else "") + one
    return text


def one_line(text: str, max_tokens: int) -> str:
    """A text that a model wrote as one line, so that it cannot pose as a heading or a speaker.

    Where it is too long its most telling sentences stay, the last of them first.
    """
    lines = joined([" ".join(line.split()) for line in text.splitlines() if line.strip()])
    if count_tokens(lines) <= max_tokens:
        return lines
    talk = [Sentence("", "", one) for one in sentences(lines)]
    return summarise(talk, max_tokens, first=len(talk) - 1 if talk else None)


def cut(text: str, max_tokens: int) -> str:
    """The beginning of a text, with an ellipsis where it was cut."""
    if count_tokens(text) <= max_tokens:
        return text
    ends = range(min(len(text), 4 * max_tokens + 8))  # four characters make at least one token
    most = bisect_left(ends, True, key=lambda end: count_tokens(text[:end] + "…") > max_tokens)
    return text[: most - 1].rstrip() + "…" if most > 1 else ""


def _by_worth(
    talk: Sequence[Sentence], terms: Sequence[frozenset[str]], values: Mapping[str, float]
) -> Iterator[int]:
    """Places of sentences, most worth for their length first, given those that came before."""
    covered: set[str] = set()
    value_of = defaultdict(lambda: 1.0, values).__getitem__

    def worth(at: int, news: float) -> float:
        score = cues[at] * (news / wholes[at] if cues[at] > 0 else 1) + news / (news + 12)
        return score / lengths[at] if score > _DULL else 0.0

    told = [
        bool(some) and not acknowledges(one.text) for one, some in zip(talk, terms, strict=True)
    ]
    cues = [_score(one) for one in talk]
    # fsum: sets have no order, and sums in another order would break ties otherwise.
    wholes = [math.fsum(map(value_of, some)) for some in terms]
    lengths = [math.sqrt(8 + count_tokens(one.text)) for one in talk]
    heap = [(-worth(at, wholes[at]), at) for at in range(len(talk)) if told[at]]
    heapq.heapify(heap)
    while heap:
        _, at = heapq.heappop(heap)
        # Worth only falls as more is covered, so a stale top is put back.
        now = -worth(at, math.fsum(map(value_of, terms[at] - covered)))
        if heap and now > heap[0][0]:
            heapq.heappush(heap, (now, at))
        elif now < 0:
            covered.update(terms[at])
            yield at


@lru_cache(4096)  # every turn makes a context, mostly of the same sentences
def _score(one: Sentence) -> float:
    score = sum(weight for weight, cue in _cues() if cue.search(one.text))
    score -= 0.5 * (one.speaker in _SECOND_RANK)
    return score - 1 if len(_CODE.findall(one.text)) * 8 > len(one.text) else score


@lru_cache(4096)
def _terms(text: str) -> frozenset[str]:
    """Content words: English stems and pairs of Chinese characters."""
    words = search_text(text).split()
    pairs = {
        one + two
        for one, two in pairwise(words)
        if is_cjk(one) and is_cjk(two) and not {one, two} <= STOPS
    }
    return frozenset(pairs.union(word for word in words if not is_cjk(word) and word not in STOPS))


def _written(talk: Sequence[Sentence], chosen: Iterable[int]) -> str:
    """Sentences in order, one line for each turn, the day where it changes."""
    lines, day = [], ""
    for (on, name), turn in groupby([talk[at] for at in sorted(chosen)], lambda one: one[:2]):
        text = joined([one.text for one in turn])
        head = (f"[{on}] " if on and on != day else "") + (f"{name}: " if name else "")
        lines.append(head + text)
        day = on or day
    return "\n".join(lines)
