"""The question that a turn of a chat asks, without the small talk around it."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from kemem.text.advice import asked_advice
from kemem.text.language import is_chinese
from kemem.text.lexicon import load
from kemem.text.query import asks
from kemem.text.reading import content, people_of, shows
from kemem.text.summary import sentences

_LATIN = re.compile("[A-Za-z]")
_COMMA = re.compile("[,，]")


@lru_cache(maxsize=256)
def asked_in(text: str) -> str:
    """What a turn asks; all of it where one cannot tell.  "冷死了！我几号搬家？" -> 我几号搬家？

    Only a question that can be understood alone, and that asks for a fact, is taken out: who wants
    help tells what with, and who goes on with an earlier talk tells which.
    """
    parts = [*sentences(text)]
    asking = _asking(parts)
    broken = any(_is("CLOSES", it) for it in asking)
    if not asking or broken or asked_advice(text) or _pattern("TALKED").search(text):
        return text
    if 1 < len(asking) < len(parts) and not any(_is("ALSO", it) for it in asking):
        asking = [it for it in asking if not _is("ADDRESSES", it)] or asking
        asking = [it for it in asking if _pattern("OWN").search(it)] or asking
        asking = [it for it in asking if not _refers(_without_lead(it))] or asking
    questions = [_without_lead(it) for it in asking]
    alone = not _refers(questions[0]) and all(map(_asks_for_fact, questions))
    return " ".join(questions) if alone and questions != parts else text


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
        if whole and (not lead or (_pattern("ZH_TALK").search(lead) and not about)):
            yield match.end()


def _stands_alone(rest: str) -> bool:
    """Whether the end of a sentence is a question that needs nothing before it."""
    asking = asks(rest) or shows(rest, "asks")
    return asking and _asks_for_fact(rest) and not _pattern("REFERS").search(rest)


def _asks_for_fact(question: str) -> bool:
    """Whether it asks for something of the speaker, or of people and things that it names."""
    named = _pattern("OWN").search(question) or people_of(question) or is_chinese(question)
    return bool(named and content(question)) and not _pattern("HELP").search(question)


def _refers(sentence: str) -> bool:
    """Whether it speaks of what it does not name.  "My sister, where does she live?" -> False"""
    return _pattern("REFERS").search(_COMMA.split(sentence)[0]) is not None


def _is(name: str, sentence: str) -> bool:
    return _pattern(name).match(sentence) is not None


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "asked.rules").pattern(name)
