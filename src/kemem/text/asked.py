"""The question that a turn of a chat asks, without the small talk around it."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from kemem.text.advice import asked_advice
from kemem.text.language import is_chinese
from kemem.text.lexicon import load
from kemem.text.query import asks
from kemem.text.reading import ANSWERS, content, people_of, shows
from kemem.text.segment import spoken_length
from kemem.text.summary import sentences

_LATIN = re.compile("[A-Za-z]")
_COMMA = re.compile("[,，]")
_QUOTES = (("“", "”"), ("「", "」"), ("『", "』"), ("《", "》"))
_WORD = re.compile(r"\w")
_BARE = 80  # characters at most of what says nothing
_TOLD = 8  # words at least of what is said, and not looked for


@lru_cache(maxsize=256)
def asked_in(text: str) -> str:
    """What a turn asks; all of it where one cannot tell.  "冷死了！我几号搬家？" -> 我几号搬家？

    Only a question that can be understood alone, and that asks for a fact, is taken out: who wants
    help tells what with, and who goes on with an earlier talk tells which.
    """
    parts = _sentences(text)
    asking = _asking(parts)
    announced = [it for it in asking if _pattern("ANNOUNCES").search(it)]
    wanted = " ".join(announced) or text
    if not asking or asked_advice(wanted) or _pattern("TALKED").search(wanted):
        return text
    asking = [it for it in asking if not asked_advice(it)]  # it is small talk, if at all
    if 1 < len(asking) < len(parts) and not any(_is("ALSO", it) for it in asking):
        asking = [it for it in asking if not _is("ADDRESSES", it)] or asking
        asking = [it for it in asking if _pattern("OWN").search(it)] or asking
        asking = [it for it in asking if not _refers(_without_lead(it))] or asking
    questions = [_without_lead(it) for it in asking]
    alone = not _refers(questions[0]) and all(map(_asks_for_fact, questions))
    return " ".join(questions) if alone and questions != parts else text


def asks_for_fact(text: str) -> bool:
    """Whether a text asks for a person, a place, a time, an amount or a name, and for no reason.

    "Who is my boss?" -> True
    """
    asking = _asking(_sentences(text))
    facts = (_seeks_kind(it) and _seeks_fact(it) and not shows(it, "why") for it in asking)
    return bool(asking) and all(facts)


def goes_on(text: str) -> bool:
    """Whether a turn goes on with an earlier talk, and looks for no fact.  "I'm back! What's next?"

    Who says something and asks for nothing does, and who asks for help with what they say, or what
    comes next. Who wants to know something, to be reminded or advised, does not.
    """
    parts = [*sentences(text)]
    asking = _asking(parts)
    if asked_advice(text) or _pattern("LOOKS_UP").search(text):
        return False
    if _pattern("SO_FAR").search(text):
        return True
    if any(_pattern("RECALLS").search(it) or _seeks_kind(it) for it in asking):
        return False
    if _pattern("NEXT").search(text):
        return True
    if asking:
        return _tells_first(parts, asking) and not any(map(_seeks_fact, asking))
    speaks = len(parts) > 1 or _pattern("SPEAKS").search(text) is not None
    return speaks and spoken_length(text) >= _TOLD


def only_goes_on(text: str) -> bool:
    """Whether a turn goes on with an earlier talk, and says nothing of what it is about.

    "Hi, where were we?" -> True, "Where were we with the attic?" -> False
    """
    resumes = len(text) <= _BARE and _pattern("RESUMES").search(text)
    return bool(resumes) and _WORD.search(_pattern("NAMELESS").sub("", text)) is None


def without_going_on(text: str) -> str:
    """A text without the words that only go on.  "I'm back at the attic. What's next?" -> attic"""
    bare = _pattern("SO_FAR").sub(" ", _pattern("NEXT").sub(" ", text))
    return bare if content(bare) else text


def _tells_first(parts: Sequence[str], asking: Sequence[str]) -> bool:
    """Whether something is told beside what is asked, if only in a clause before it."""
    clauses = [it for it in _COMMA.split(asking[0]) if it.strip()]
    told = len(clauses) > 1 and not _is("EN_ABOUT", clauses[0])
    return len(asking) < len(parts) or (told and bool(_pattern("HELP").search(clauses[-1])))


def _sentences(text: str) -> list[str]:
    """The sentences of a text, a quotation of several being part of one."""
    parts = list[str]()
    for part in sentences(text):
        closes = _is("CLOSES", part)
        if parts and (closes or _is_open(parts[-1])):
            parts[-1] += part if closes or is_chinese(part) else f" {part}"
        else:
            parts.append(part)
    return parts


def _is_open(text: str) -> bool:
    """Whether a quotation begins in a text and does not end there."""
    return text.count('"') % 2 == 1 or any(text.count(a) > text.count(b) for a, b in _QUOTES)


def _asking(parts: Sequence[str]) -> list[str]:
    """The sentences that ask, by the surest sign.  忙着呢？我几号搬家 -> 我几号搬家

    A short question that is not about the speaker only greets, if a longer one follows without a
    mark.
    """
    marked = [it for it in parts if it.rstrip('"”’」』)） ').endswith(("?", "？"))]
    ending = marked or [it for it in parts if asks(it)]
    without = [it for it in parts if shows(it, "asks") and not _is("EN_ABOUT", it)]
    later = [it for it in without if it not in ending]
    longest = max(map(len, later), default=0)
    greets = all(len(it) < longest and not _pattern("OWN").search(it) for it in ending)
    return later if later and greets else ending or without


def _without_lead(sentence: str) -> str:
    """A sentence from where it begins to ask.  "sorry, quick one: where am I?" -> where am I?"""
    starts = _english_starts if _LATIN.search(sentence) else _chinese_starts
    rests = (sentence[start:] for start in starts(sentence))
    return next((it for it in rests if _stands_alone(it)), sentence)


def _english_starts(sentence: str) -> Iterator[int]:
    """Where the question may begin: after a comma or the like, the last first; then anywhere."""
    starts = [it.start() for it in _pattern("EN_HEAD").finditer(sentence)]
    if not starts or _is("EN_ABOUT", sentence):
        return
    for start in starts[::-1]:
        lead = sentence[:start]
        two = _pattern("EN_TURNED").search(lead) and _asks_for_fact(lead)
        if _pattern("EN_LEAD").search(lead) and not two:
            yield start
    yield starts[0]


def _chinese_starts(sentence: str) -> Iterator[int]:
    """Where the question may begin: after a clause of small talk, the last one first."""
    border = _pattern("ZH_BORDER")
    for match in [*border.finditer(sentence)][::-1]:
        clauses = [it for it in border.split(sentence[: match.start()]) if it]
        lead = clauses[-1] if clauses else ""
        about = _pattern("ZH_ABOUT").search(lead) or shows(lead, "asks")
        whole = match[0][0] in "：:" or _pattern("ZH_WHOM").search(sentence, match.end())
        clear = not lead or (_pattern("ZH_TALK").search(lead) and not about)
        if whole and clear and not _is_open(sentence[: match.end()]):
            yield match.end()


def _stands_alone(rest: str) -> bool:
    """Whether the end of a sentence is a question that needs nothing before it."""
    asking = asks(rest) or shows(rest, "asks")
    return asking and _asks_for_fact(rest) and not _pattern("REFERS").search(rest)


def _asks_for_fact(question: str) -> bool:
    """Whether it asks for something of the speaker, or of people and things that it names."""
    named = _pattern("OWN").search(question) or people_of(question) or is_chinese(question)
    return bool(named and content(question)) and not _pattern("HELP").search(question)


def _seeks_fact(sentence: str) -> bool:
    """Whether a sentence asks for a fact that can be told, even if another one says of what."""
    alone = _without_lead(sentence)
    return _asks_for_fact(alone) and not _refers(alone)


def _seeks_kind(sentence: str) -> bool:
    """Whether a sentence asks for a person, a place, a time, an amount or a name."""
    return any(shows(sentence, kind) for kind in ANSWERS)


def _refers(sentence: str) -> bool:
    """Whether it speaks of what it does not name.  "My sister, where does she live?" -> False"""
    return _pattern("REFERS").search(_COMMA.split(sentence)[0]) is not None


def _is(name: str, sentence: str) -> bool:
    return _pattern(name).match(sentence) is not None


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "asked.rules").pattern(name)
