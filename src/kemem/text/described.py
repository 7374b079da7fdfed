"""Descriptions: "the friend who moved to Oslo", 那个在杭州工作的人; and of whom a message tells."""

import re
from functools import lru_cache
from typing import NamedTuple

from kemem.text.lexicon import Lexicon, load
from kemem.text.naming import namings
from kemem.text.reading import NAMELESS, people_words, surnames
from kemem.text.segment import STOP_WORDS


class Description(NamedTuple):
    """Words of a question in the place of a name."""

    start: int
    end: int
    said: str  # what is told of it,
    said_at: int  # and where that begins
    open: bool  # where it ends cannot be seen: "the friend who moved to Oslo do for work"
    is_person: bool | None  # None: it may be anything
    is_together: bool = False  # with the speaker: 和我一起开店的人, "my school friend"


class Subject(NamedTuple):
    """Of whom or what a message tells."""

    text: str  # in a question: my uncle
    names: tuple[str, ...]  # in other messages: uncle, Bo
    is_person: bool
    is_together: bool = False  # with the speaker: "Bo and I run a bakery"


def descriptions(text: str) -> list[Description]:
    """What a question describes.  "How old is the friend who moved to Oslo?" -> moved to Oslo"""
    found = []
    for language in ("EN", "ZH"):
        for match in _pattern(f"{language}_DESCRIBED").finditer(text):
            parts = match.groupdict()
            name = next(it for it in ("far", "near", "said") if parts.get(it))
            who = parts.get(f"{name}_who") or parts.get("any_who") or parts.get("from_who")
            what = parts.get(f"{name}_what")
            is_person = bool(who) if who or what else None
            together = _pattern("WITH_SPEAKER").match(match[name])
            start = match.start(name) + (together.end() if together else 0)
            place = (*match.span(), text[start : match.end(name)], start)
            found.append(Description(*place, language == "EN", is_person, together is not None))
    if not found and (mate := _pattern("EN_TOGETHER").search(text)):
        found.append(Description(*mate.span(), mate["said"], mate.start("said"), False, True, True))
    return sorted(found)


@lru_cache(maxsize=8192)
def subject_of(text: str) -> Subject | None:
    """Of whom or what a message tells, where it begins with that.  我舅舅60岁了 -> 我舅舅"""
    if _pattern("REPORTS").search(text) or _pattern("RECALLS").search(text):
        return None
    if together := _together(text):
        return together
    names = [it for it in namings(text) if not it.is_place]
    named = next((it for it in names if it.thing and text.startswith(it.full)), None)
    if named and named.thing:  # "Bo is my uncle": he is told of by both
        return Subject(named.thing.text, (named.name, *named.thing.kinds), is_person=True)
    if match := _pattern("EN_SUBJECT").match(text):
        kind, name = match["mine"], match["called"] or match["name"]
        if kind:
            return Subject(name or f"my {kind}", tuple(filter(None, (name, kind))), True)
        if thing := match["thing"]:
            return Subject(f"the {thing}", (thing,), False)
        first = name.split()[0]
        if first not in NAMELESS and first.lower() not in STOP_WORDS:
            return Subject(name, (name,), True)
    if match := _pattern("ZH_SUBJECT").match(text):
        kind, called = match["mine"] or match["kin"], match["called"] or match["kin_called"]
        if kind:
            return Subject(called or f"我{kind}", tuple(filter(None, (called, kind))), True)
        name = match["name"] or match["thing"]
        return Subject(name, (name,), bool(match["name"]))
    if len({it.name for it in names}) == 1:  # 认识了一个做版画的姑娘，叫阿雅
        return Subject(names[0].name, (names[0].name,), True)
    return None


def _together(text: str) -> Subject | None:
    """Who does something with the speaker.  "Bo and I run a bakery" -> Bo"""
    for name in ("EN_WITH", "ZH_WITH"):
        if match := _pattern(name).search(text):
            parts = match.groupdict()
            who = next(it for it in parts.values() if it)
            kin = parts.get("kin") or parts.get("kin_too")
            is_kin = name == "ZH_WITH" and re.fullmatch(people_words("ZH"), who)
            own = f"my {who}" if kin else f"我{who}" if is_kin else who
            return Subject(own, (who,), is_person=True, is_together=True)
    return None


def _pattern(name: str) -> re.Pattern[str]:
    return _lexicon().pattern(name)


def _lexicon() -> Lexicon:
    return load(
        __package__,
        "described.rules",
        EN_KIN=people_words("EN"),
        ZH_KIN=people_words("ZH"),
        ZH_SURNAMES=surnames(),
    )
