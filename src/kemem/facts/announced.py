"""Changes that are told before their day: "I'm moving to Ghent in May" is a home from May on."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kemem.facts.grammar import Clause, Reader, Statement
from kemem.facts.kinds import signs
from kemem.facts.losses import size, words_of
from kemem.facts.sentences import dated, sentences
from kemem.records import Micros

# What somebody has one of at a time.
CURRENT = ("/lives_in", "/works_at", "/works_as", "/studies_at", "/studies")
_OF_STATES = (*CURRENT, "/job")
_OPEN = ("general", "plan")
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
    """The first day of a job that a message says to be got, if it lies ahead.

    "I got the job at Telenor! I start on 1 June." -> 1 June
    """
    if "LANDED" not in signs(message):
        return None
    for sentence in sentences(message):
        time = dated(sentence.text, ts) if _START.search(sentence.text) else None
        if time and time.tense > 0:
            return time.since
    return None
