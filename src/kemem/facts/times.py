"""When a statement holds: its date written out, the time of an event, the beginning of a state."""

import re
from dataclasses import replace
from typing import NamedTuple

from kemem.facts.announced import CURRENT, is_state
from kemem.facts.grammar import Statement
from kemem.facts.kinds import signs
from kemem.facts.sentences import Dated, dated
from kemem.records import Micros
from kemem.text.when import tells_what_is_over

_SINCE = {"zh": "{}（自{}）", "en": "{} (since {})"}
_DATE = {"zh": "{}（{}）", "en": "{} ({})"}
# What is said of a later day is not so yet: "下个月搬到成都" is a plan, not an address.
_STATES = {"identity", "residence", "work", "education", "possession", "relationship", "event"}
_FROM = {"zh": "{}（{}起）", "en": "{} (from {})"}
# When the last days of a month or year are meant, nothing begins on the first of them.
_LATE = re.compile(r"[年月][底末]|\b(?:end of|late) ")
_DAY: Micros = 86_400_000_000
_MONTH: Micros = 31 * 86_400_000_000
_TIMELESS = {"user_preference", "setting", "skill", "contact"}
# Several days of the week, of none that is named: a habit, or nothing that has one date.
_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DAY_ZH = "(?:周|星期|礼拜)?[一二三四五六日天]"
_HABIT = re.compile(
    f"(?<![上下这本个])(?=[周星礼]){_DAY_ZH}(?:和|、|与|跟|还有|以及){_DAY_ZH}(?![^，]*[了过])"
    r"|^(?!.*\b(?:was|were|went|had|did|will|going|next|last|this|coming|\w+ed)\b)"
    rf".*\b{_WEEKDAY}(?:, {_WEEKDAY})*,? (?:and|or) (?:on )?{_WEEKDAY}\b"
)
# A plan is changed by what tells when it is, or that it is off.
_SETTLED = re.compile(r"cancel|called off|取消|不办|不去|黄了|泡汤|\d|周|点|day\b")


class Times(NamedTuple):
    """When an event or a plan is, or from when on a state holds."""

    when: Micros | None = None
    since: Micros | None = None


def in_time(statement: Statement, ts: Micros, language: str) -> tuple[Statement, Times]:
    """The statement with its date written out, and its times."""
    kind, birthday = statement.memory_type, (statement.topic or "").endswith("/birthday")
    timeless = kind in _TIMELESS and not statement.state
    appointed = "/date/" in (statement.topic or "")
    if appointed:  # what was moved is not over
        tense = 0 if tells_what_is_over(statement.text) else 1
    else:
        tense = -bool(statement.state and language == "en")
    is_habit = not appointed and _HABIT.search(statement.text.lower())
    time = None if birthday or is_habit else dated(statement.text, ts, tense)
    if time is None or (timeless and not (time.lasting or (time.begins and time.tense > 0))):
        statement = replace(statement, text=statement.state or statement.text)
        unclear = appointed and not _SETTLED.search(statement.text)
        return (replace(statement, topic=None) if unclear else statement), Times()
    is_long = time.tense == 0 and time.until - time.since > _MONTH  # "this year" is not in passing
    lasting = time.tense <= 0 and (time.lasting or bool(statement.state) or statement.ends)
    if begun := _announced(statement, time):
        day = time.until - _DAY if _LATE.search(statement.text) else time.since
        text = _DATE[language].format(statement.text, time.written) if time.written else ""
        if begun.state:
            text = _FROM[language].format(begun.state, time.began)
        known = replace(begun, text=text or statement.text, memory_type="plan", state="")
        return known, Times(when=day, since=day)
    if kind == "general" and not lasting:
        statement = replace(statement, memory_type="plan" if time.tense > 0 else "event")
    elif kind == "plan" and time.tense < 0:
        visited = [
            replace(it, name=it.name.replace("plans_to_visit", "visited"))
            for it in statement.relations
        ]
        statement = replace(statement, memory_type="event", relations=tuple(visited))
    elif (statement.topic or "").endswith(CURRENT) and not (lasting or statement.state or is_long):
        # What is told of an earlier time, or only of these days, is not what holds now.
        kind = "plan" if time.tense > 0 else "event"
        statement = replace(statement, memory_type=kind, topic=None, relations=())
    elif (kind in _STATES or statement.state) and time.tense > 0:
        statement = replace(statement, memory_type="plan", topic=None, relations=())
    if statement.state and time.tense <= 0:
        text = _SINCE[language].format(statement.state, time.began)
        statement = replace(statement, text=text)
    elif time.written:
        statement = replace(statement, text=_DATE[language].format(statement.text, time.written))
    if statement.memory_type in ("event", "plan"):
        return statement, Times(when=time.since)
    return statement, Times(since=time.since if lasting else None)


def _announced(statement: Statement, time: Dated) -> Statement | None:
    """What is to hold from a later day on, unless that is only hoped; else None.

    "I'm in Rome next week" is no announcement of a home, and "from May I'm in Rome" is one.
    """
    begun, text = statement.begins or statement, statement.text
    appointed = "/date/" in (begun.topic or "")
    if time.tense <= 0 or appointed or "HOPED" in signs(text) or "PASSING" in signs(text):
        return None
    changes = is_state(begun) and (begun.state or begun.ends)
    return begun if changes or "/amount/" in (begun.topic or "") or time.begins else None
