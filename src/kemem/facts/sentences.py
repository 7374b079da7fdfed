"""Talk cut into sentences, without what only looks like talk, and the times that sentences name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

from kemem.records import Micros
from kemem.records.times import to_datetime
from kemem.text.lexicon import load
from kemem.text.when import (
    TimePhrase,
    is_arranged,
    speaks_of_past,
    speaks_of_plans,
    time_phrases,
)

LONGEST = 300  # characters of a sentence; a longer one is a paste, not talk
MOST = 500  # sentences of a message that are looked at
GAP = "\ufffc"  # stands for a quotation; a sentence with one is not the speaker's own
_PAIRS = (("“", "”", "\ufdd0"), ("「", "」", "\ufdd1"))
_SHOWN = {ord(hidden): opens for opens, _, hidden in _PAIRS}
_SHORT = 12  # characters of a quoted name: 我的猫叫“咪咪”
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_JUST_OVER, _FAR_AHEAD = 30 * 86_400_000_000, 200 * 86_400_000_000  # 元旦, said in January


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as said, its final sign apart.  "我住在北京？" -> ("我住在北京", "zh", asks)"""

    text: str
    language: Literal["zh", "en"]
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Dated:
    """The time that a statement names, and how to write it.  昨天 -> (…, "2026-01-19", past)"""

    since: Micros
    until: Micros
    written: str  # "" where the statement itself is exact
    began: str  # no more exact than the words: a day, a month or a year
    tense: int  # -1 past, 1 future, 0 where now lies inside and the words do not tell
    lasting: bool = False  # since then, to now
    begins: bool = False  # from then on


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "sentences.rules").pattern(name)


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message in order.  "你好！I live in Rome." -> 你好; I live in Rome"""
    talk = _pattern("CODE").sub("\n", text.replace("’", "'"))
    lines = [line for line in talk.split("\n") if not _pattern("CODE_LINE").fullmatch(line)]
    plain = _pattern("SIGNS").sub("", "\n".join(map(_unquoted, lines)))
    plain, start = _pattern("CONTROL").sub(" ", plain), 0
    ends = (end for end in _pattern("END").finditer(plain + "\n") if end["inside"] is None)
    for count, end in enumerate(ends):
        sentence, start = _balanced(plain[start : end.start()]).strip(" ,，、"), end.end()
        han, latin = (len(_pattern(name).findall(sentence)) for name in ("HAN", "LATIN"))
        readable = han + latin and not _pattern("OTHER").search(sentence)
        if readable and len(sentence) <= LONGEST and GAP not in sentence:
            # Chinese with English names is Chinese: 我用 Neovim
            chinese = han and (han >= 2 * latin or _pattern("HAN").match(sentence))
            asks = bool(set("?？") & set(end.group()))
            yield Sentence(sentence, "zh" if chinese else "en", asks)
        if count == MOST:
            return


def is_open(text: str) -> bool:
    """Whether a bracket is open at the end of a text.  "Bex (short for Rebecca" """
    return sum(map(text.count, "(（")) > sum(map(text.count, ")）"))


def without_asides(text: str) -> str:
    """The text without brackets that hold clauses of their own.  "York (my wife, too, …)" """
    return _pattern("ASIDES").sub("", text) if "(" in text or "（" in text else text


def trimmed(clause: str) -> str:
    """A clause without signs around it, but for the dot of initials.  "T.J.," -> "T.J." """
    bare = clause.strip(" ,.")
    return f"{bare}." if _pattern("INITIALS").search(f"{bare}.") and f"{bare}." in clause else bare


def _balanced(text: str) -> str:
    """The text without brackets that have no partner: a sentence may end inside of them."""
    opened: list[int] = []
    alone: set[int] = set()
    for bracket in _pattern("BRACKET").finditer(text):
        if bracket.group() in "(（":
            opened.append(bracket.start())
        elif opened:
            opened.pop()
        else:
            alone.add(bracket.start())
    alone.update(opened)
    return "".join(it for at, it in enumerate(text) if at not in alone) if alone else text


def without_quotations(text: str) -> str:
    """The text without somebody's words.  'Does "I was born at sea" scan?' -> "Does   scan?" """
    return "\n".join(map(_unquoted, text.replace("’", "'").split("\n"))).replace(GAP, " ")


def _unquoted(line: str) -> str:
    """A line without long quotations, which are somebody's words; a short one is a name.

    Marks that open none are hidden from the pattern, which would look for the end of each.
    """

    def inside(match: re.Match[str]) -> str:
        words: str = match.group(match.lastindex or 0)
        return words if len(words) <= _SHORT else GAP

    for opens, closes, hidden in _PAIRS:
        paired = line.rfind(closes) + 1
        line = line[:paired] + line[paired:].replace(opens, hidden)
    return _pattern("QUOTE").sub(inside, line).translate(_SHOWN)


@lru_cache(maxsize=1024)
def without_times(text: str) -> str:
    """The text without its time phrases.  "我下周三去上海" -> "我去上海" """
    pieces, end = [], 0
    for phrase in time_phrases(text, _EPOCH):
        if phrase.holiday and not _pattern("THEN").match(text, phrase.end):
            continue  # 我喜欢春节 is about the holiday, 我春节回家 about its time
        begins = _pattern("BEGINS").match(text, phrase.end)
        before = _pattern("LEADS").sub("", text[end : phrase.start])
        pieces.append(before.rstrip("从自打") if begins else before)
        end = begins.end() if begins else phrase.end
    bare = _pattern("AHEAD").sub("", "".join([*pieces, text[end:]]))
    return " ".join(_pattern("HOUR").sub("", bare).split()).replace(" ,", ",")


def dated(text: str, ts: Micros, tense: int = 0) -> Dated | None:
    """The first time that a statement names; None for none, or for a habit.

    "On Friday" lies ahead where the statement tells of a plan, or nothing says that it is over;
    `tense` is -1 or 1 where its form is known to tell.
    """
    plain, now = _pattern("AHEAD").sub(r"\1 from now", text), to_datetime(ts)
    rolling = ts + 1  # where 最近, recently end, which are no dates
    read = [it for it in time_phrases(plain, now, ahead=True) if it.until != rolling]
    begins = [it for it in read if it.since > ts and (_is_from(it, plain) or _opens(it, plain))]
    if not read or (_pattern("HABIT").search(text) and not begins):
        return None
    phrase = next((it for it in read if _is_moved(plain, it)), read[0])
    phrase = begins[0] if begins else phrase
    over = [it for it in time_phrases(plain, now) if it.start == phrase.start]
    lasting = _is_since(phrase, plain)
    is_open = _is_from(phrase, plain) or _opens(phrase, plain)
    if tense < 0 and (_is_moved(plain, phrase) or _is_from(phrase, plain) or _comes(plain, phrase)):
        tense = 1  # "accepted a job at Telenor, starting in June"
    if not tense and not _pattern("SOON").search(plain) and (is_open or not lasting):
        tense = _tense(plain, phrase)
    if not tense and (lasting or _pattern("SOON").search(plain)):
        # 九月起, 九月我就…了: the nearer one, where nothing else tells.
        ahead = over and phrase.since - ts < ts - over[0].since
        tense = 1 if ahead and (is_open or not lasting) else -1
    if not tense and _pattern("SEASON").search(text):
        return None
    if tense <= 0:
        just_over = any(it.until <= ts < it.until + _JUST_OVER for it in over)
        if tense < 0 and not over:
            return None
        if tense < 0 or (just_over and phrase.since - ts > _FAR_AHEAD):
            phrase = over[0]
    turn = (phrase.since > ts) - (phrase.until <= ts) or min(tense, 0)
    exact = re.search(r"\d{4}", phrase.phrase)
    written = _written(phrase, text)
    days = len("2026-01-31") if phrase.until - phrase.since <= 86_400_000_000 else len("2026-01")
    span = (phrase.since, phrase.until)
    shown = "" if exact else written
    return Dated(*span, shown, written[:days], turn, lasting, lasting or is_open)


def _is_since(phrase: TimePhrase, text: str) -> bool:
    """Whether a time is that from which on something holds.  since May, 从去年三月起"""
    words = f"{text[: phrase.start][-7:]}{phrase.phrase}{text[phrase.end :][:2]}"
    return _pattern("SINCE").search(words) is not None


def _is_from(phrase: TimePhrase, text: str) -> bool:
    """Whether a time is that from which on something will hold.  "from 1 October" """
    before = text[: phrase.start]
    opens = _pattern("FROM").search(f"{before[-5:]}{phrase.phrase}")
    opens = opens or _pattern("LEADS").search(before)
    return opens is not None and not _pattern("UNTIL").match(text[phrase.end :])


def _opens(phrase: TimePhrase, text: str) -> bool:
    """Whether something begins at a time, which may lie ahead.  九月起, 三月份开始"""
    return _pattern("OPEN").match(text[phrase.end :]) is not None


def _is_moved(text: str, phrase: TimePhrase) -> bool:
    """Whether a time is that to which something was moved, or for which it was booked."""
    if _pattern("STARTING").search(text[: phrase.start].rstrip()):
        return True
    return is_arranged(text, phrase.start, phrase.end)


def _comes(text: str, phrase: TimePhrase) -> bool:
    """Whether a time is that of what is to come, in the present tense.  "it starts on May 3" """
    return _pattern("COMES").search(text[: phrase.start].rstrip()) is not None


def _tense(text: str, phrase: TimePhrase) -> int:
    """Whether a time lies ahead (1) or is over (-1) by the words around it, those nearest first.

    "The review was pushed, april 17 now instead" -> 1
    """
    before, after = text[: phrase.start], text[phrase.end :]
    clause = (
        re.split("[，。,;；:：]", before)[-1] + phrase.phrase + re.split("[，。,;；]", after)[0]
    )
    if _is_moved(text, phrase) or _comes(text, phrase) or _pattern("INSTEAD").match(after):
        return 1
    if _is_from(phrase, text) and not speaks_of_past(clause):  # "signed with Norwest, from 1 May"
        return 1
    alone = len(clause.strip()) <= len(phrase.phrase) + 1
    parts = (text,) if alone else (clause, text)
    if _opens(phrase, text) and not alone:  # 我跳槽了，六月起去植物园上班: what begins is not over
        parts = (clause,)
    for part in parts:
        if speaks_of_plans(part):
            return 1
        if speaks_of_past(part):
            return -1
        if _pattern("UPCOMING").search(part):
            return 1
    return 0


def _written(phrase: TimePhrase, text: str) -> str:
    """A range as briefly as it can be: a day, a month, a year, or first and last day."""
    opens, closes = map(to_datetime, (phrase.since, phrase.until - 1))
    first, last = opens.date(), closes.date()
    if closes - opens <= _DAY:
        return first.isoformat()
    months = (first.day, (last + _DAY).day if last.year < 9999 else 0)
    if months != (1, 1):
        return f"{first} {'–' if text.isascii() else '至'} {last}"
    if (first.year, first.month) == (last.year, last.month):
        return f"{first:%Y-%m}"
    return str(first.year) if first.month == 1 else f"{first:%Y-%m} – {last:%Y-%m}"
