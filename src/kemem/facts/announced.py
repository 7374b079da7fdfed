"""Changes that are told before their day: "I'm moving to Ghent in May" is a home from May on."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kemem.facts.grammar import Clause, Reader, Statement
from kemem.facts.kinds import signs
from kemem.facts.losses import language_code, size, words_of
from kemem.facts.sentences import dated, sentences
from kemem.records import Micros
from kemem.text.lexicon import load
from kemem.text.reading import is_about_others, people_of

# What somebody has one of at a time.
CURRENT = ("/lives_in", "/works_at", "/works_as", "/studies_at", "/studies")
_OF_STATES = (*CURRENT, "/job")
_OPEN = ("general", "plan")
_DATE = re.compile(r"[(（](\d{4}-[^()（）]*)[)）]$")
_FROM = re.compile(r"\(from (\d{4}[^()]*)\)$|（(\d{4}[^（）]*)起）$")
_LAST = re.compile(r"(?i:\blast (?:day|shift)\b)|最后一天")
_START = re.compile(r"(?i:\b(?:starts?|starting|first (?:day|shift))\b)|入职|报到|上班|开始")


def with_beginning(
    reader: Reader, statements: Sequence[Statement], clauses: Iterable[Clause]
) -> list[Statement]:
    """The statements of a clause, the first with what holds once the day has come that it tells.

    "User is moving to Ghent" begins what "User moved to Ghent" began.
    """
    first, *others = statements or (None,)
    if first is None or first.memory_type not in _OPEN or first.topic:
        return [*statements]
    ahead, held = reader.pattern("AHEAD_FORM"), reader.tables.get("HELD_FORM", {})
    for clause in clauses:
        match = ahead.match(clause.predicate)
        if match is None:
            continue
        predicate = held.get(match["stem"], "") + clause.predicate[match.end() :]
        for begun in reader.read(clause._replace(predicate=predicate), first.text):
            if is_state(begun):
                return [replace(first, begins=begun), *others]
    return [*statements]


def is_state(statement: Statement) -> bool:
    """Whether a statement tells of a home, a job or a school, of which there is one at a time."""
    return (statement.topic or "").endswith(_OF_STATES)


def kind_of(topic: str | None) -> str:
    """What a topic of states is about: "home", "job" or nothing of them."""
    name = (topic or "").rpartition("/")[2]
    return {"lives_in": "home", "works_at": "job", "works_as": "job", "job": "job"}.get(name, "")


def speaks_of(text: str, note: str) -> bool:
    """Whether a statement names something that a note does."""
    return size(words_of(text) & words_of(note)) >= 1


def start_of(message: str, ts: Micros) -> Micros | None:
    """The first day of a job that a message says to be got, or the last of one that it says to be
    given up, if it lies ahead.

    "I got the job at Telenor! I start on 1 June." -> 1 June
    """
    told = signs(message) & {"LANDED", "NOTICE"}
    day = _START if "LANDED" in told else _LAST
    for sentence in sentences(message) if told else ():
        for part in clauses(sentence.text):
            time = dated(part, ts) if day.search(part) else None
            if time and time.tense > 0:
                return time.since
    return None


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "endings.rules").pattern(name)


def clauses(text: str) -> list[str]:
    """A statement in parts that say one thing each.  "The job fell through, but the move is on" """
    return [it for it in _pattern("PARTS").split(text) if it.strip()]


def names_it(clause: str, names: Sequence[str]) -> bool:
    """Whether a clause says what it says of one of some names itself.

    "Bergen is off", 不去石家庄了; the concert in Bergen is something else.
    """
    for name in names:
        before, found, after = clause.partition(name)
        if found and _pattern("BEFORE_IT").search(before):
            return True
        if found and _pattern("OPENS_IT").search(before) and _pattern("AFTER_IT").match(after):
            return True
    return False


def is_of_another(topic: str | None, text: str, note: str) -> bool:
    """Whether a statement is about somebody else than a note of a topic is.

    "Ben's move fell through" is no news of the user's own, nor of a sister's.
    """
    subject, *path = (topic or "").split("/")
    if subject != "user":
        return subject not in text
    if len(path) > 1:
        return not people_of(text) & people_of(note)
    if is_about_others(text) and "PARTY" not in signs(text):
        return True
    if language_code(text) == "ZH":
        return not (_pattern("OWN_PLAN").match(text) or text[:2] in note)
    owner = _pattern("OWNER").match(text)
    return owner is not None and owner["name"].lower() not in note.lower()


def from_day(note: str, text: str) -> str:
    """What a note announces, from the day that a statement tells."""
    date, old = _DATE.search(text), _FROM.search(note)
    if date and old:
        return note[: old.start()] + old[0].replace(old[1] or old[2], date[1])
    return f"{note}；{text}" if language_code(note) == "ZH" else f"{note}; {text}"
