"""How English gives a name: a bearer, a link and a name.  "my uncle" + "signs as" + "Gus"

Links are searched first, since few sentences have one; then the bearer and the name are read on
their sides. Which words may stand in each part is in `naming.rules`.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from kemem.text.lexicon import Lexicon, load
from kemem.text.reading import NAMELESS, people_words
from kemem.text.segment import STOP_WORDS
from kemem.text.things import Thing, thing_of

_SPEAKER = frozenset(("my", "our", "user's", "user’s"))
_QUOTES = "\"“”'‘’ "
_TO_NAME = ("EN_WHOSE_NAME", "EN_TO_NAME", "EN_WHOM_WE_CALL", "EN_BESIDE_IT")
_BOTH_AFTER = ("EN_CALLS", "EN_REFERS", "EN_NAME_OF")
_SEVERAL = re.compile("[\"”'’]?(?:,? (?:and|&) (?!I\\b)[A-Z])")
_HABIT = re.compile("calls?|nicknamed|dubbed")


class Given(NamedTuple):
    """A name, and to whom a sentence gives it."""

    name: str
    said: str  # bearer, link and name
    thing: Thing | None  # what the bearer is to the speaker,
    bearer: str  # and another name of theirs
    of: str  # what the bearer is to somebody else: the cousin of Ann


def given_in(sentence: str) -> list[Given]:
    """The names that an English sentence gives.  "Bex is short for Ann" -> Bex, of Ann"""
    found = list[Given]()
    for way in _WAYS:
        for it in way(sentence):
            if not any(it.name in other.name or other.name in it.name for other in found):
                found.append(it)
    return found


def _with_name_after(sentence: str) -> Iterator[Given]:
    """My uncle + goes by + Gus"""
    for kind in _TO_NAME:
        for link in _links(kind, sentence):
            name = _pattern("EN_NAME_AFTER").match(sentence, link.end())
            if name is None or not _is_link(link, sentence[name.end() - 1 :]):
                continue
            before = sentence[: link.start()]
            bearer = _pattern("EN_BEARER_BEFORE").search(before)
            if kind == "EN_BESIDE_IT" and not (bearer and _is_somebody(bearer)):
                continue
            if bearer:
                start = bearer.start()
            elif kind in ("EN_TO_NAME", "EN_WHOSE_NAME"):
                start = 0
            else:
                continue
            yield from _given(sentence, (start, name.end()), name, bearer)


def _with_both_after(sentence: str) -> Iterator[Given]:
    """We call + my uncle + Gus"""
    for kind in _BOTH_AFTER:
        for link in _links(kind, sentence):
            name = _pattern("EN_NAME_AFTER").match(sentence, link.end())
            if name is None or (kind == "EN_CALLS" and _is_telephone(link, name[0])):
                continue
            start = link.start() if not link["pronoun"] else 0
            yield from _given(sentence, (start, name.end()), name, link)


def _with_name_before(sentence: str) -> Iterator[Given]:
    """Gus + is what we call + my uncle"""
    for link in _links("EN_STANDS_FOR", sentence):
        name = _pattern("EN_NAME_BEFORE").search(sentence, 0, link.start())
        bearer = _pattern("EN_BEARER_AFTER").match(sentence, link.end())
        if name and bearer:
            yield from _given(sentence, (name.start("name"), bearer.end()), name, bearer)


def _said_to(sentence: str) -> Iterator[Given]:
    """We say + Chief + to + my uncle"""
    for match in _links("EN_SAYS", sentence):
        yield from _given(sentence, match.span(), match, match)


def _renamed(sentence: str) -> Iterator[Given]:
    """Ann Shaw + is now + Ann Poe"""
    for match in _links("EN_RENAMED", sentence):
        yield from _given(sentence, match.span(), match, match)


def _is_link(link: re.Match[str], after: str) -> bool:
    """Whether words of naming are no telephone call.  "My boss called Ann" -> False

    `after` begins with the last character of the name: a quoted one is called so.
    """
    parts = link.groupdict()
    if not parts.get("bare") or parts["around"].strip() or after[0] in _QUOTES:
        return True
    article = re.search(r"\b(?:[Tt]h(?:e|at)|[Aa]n?)(?: [\w-]+){1,4}$", link.string[: link.start()])
    return article is not None or _pattern("EN_FINITE").match(after, 1) is not None


def _is_telephone(link: re.Match[str], name: str) -> bool:
    """Whether "called Ann Shaw" may be about Ann Shaw, as "everybody calls Ann Shaw" is not."""
    if link["but"] or not link["single"] or not name.strip()[:1].isupper():
        return False
    return not (link["folk"] and _HABIT.fullmatch(link["verb"]))


def _is_somebody(bearer: re.Match[str]) -> bool:
    return bool(bearer["noun"] and _pattern("EN_SOMEBODY_NOUN").match(bearer["noun"]))


def _given(
    sentence: str, span: tuple[int, int], name: re.Match[str], bearer: re.Match[str] | None
) -> Iterator[Given]:
    full = name["name"].strip(_QUOTES)
    full = full.removeprefix("the ")
    if not is_name(full) or _SEVERAL.match(sentence, name.end()):
        return
    parts = bearer.groupdict() if bearer else {}
    owner, noun = (parts.get("owner") or "").lower(), parts.get("noun") or ""
    other = parts.get("other") or parts.get("its") or parts.get("single") or ""
    if other and (other == full or not is_name(other)):
        return
    said, thing, of = sentence[slice(*span)], None, ""
    if owner in _SPEAKER:
        thing = thing_of(owner, noun)
    elif noun:
        of = noun
    elif parts.get("the"):
        is_known = parts["the"].lower() in ("the", "this", "that")
        thing = thing_of("the", parts["thing"]) if is_known else None
    elif parts.get("as"):
        thing = thing_of(parts["of"].lower(), parts["as"])
    elif not other:
        said = sentence[: span[1]]
        thing, other = _antecedent(sentence[: span[0]] or sentence[: name.start("name")], full)
    yield Given(full, said, thing, other, of)


def _antecedent(before: str, name: str) -> tuple[Thing | None, str]:
    """Whom "her" means, where the words before tell of one.  "Ann came, we call her" -> Ann"""
    things = [*_pattern("EN_MINE").finditer(before)]
    names = _pattern("EN_FULL_NAME").findall(before)
    bearers = {it for it in names if it != name and is_name(it)}
    first = _pattern("EN_FULL_NAME").match(before)
    if first and first[0] in bearers:
        return None, first[0]
    if len(things) == 1 and len(bearers) <= 1:
        return thing_of(things[0]["owner"].lower(), things[0]["noun"]), "".join(bearers)
    return None, bearers.pop() if len(bearers) == 1 and not things else ""


def is_name(name: str) -> bool:
    """Whether words can be a name: no day, feast or people.  "Easter Monday", "Swedish" -> False"""
    first, *_ = name.split() or [""]
    if len(name) < 2 or first in NAMELESS or first.lower() in STOP_WORDS:
        return False
    return _pattern("EN_NO_NAME").match(name) is None


_WAYS = (_with_name_before, _renamed, _said_to, _with_both_after, _with_name_after)


def may_begin_with_name(sentence: str) -> bool:
    """Whether the only capital letter of a sentence may be a name.  "Bex is short for my aunt" """
    return " short for " in sentence or " what " in sentence or "name " in sentence


def _links(kind: str, sentence: str) -> Iterator[re.Match[str]]:
    """The links of a kind in a sentence, if it has one of the words of that kind at all."""
    if any(map(sentence.__contains__, _lexicon().tables[f"{kind}_CUES"])):
        yield from _pattern(kind).finditer(sentence)


def _pattern(name: str) -> re.Pattern[str]:
    return _lexicon().pattern(name)


@cache
def _lexicon() -> Lexicon:
    pets = "|".join(load(__package__, "reading.rules").tables["EN_PETS"])
    return load(__package__, "naming.rules", EN_KIN=people_words("EN"), EN_PET=pets)
