"""Changes that are told before their day: "I'm moving to Ghent in May" is a home from May on."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kemem.facts.grammar import Clause, Reader, Statement

# What somebody has one of at a time.
CURRENT = ("/lives_in", "/works_at", "/works_as", "/studies_at", "/studies")
_OF_STATES = (*CURRENT, "/job")
_OPEN = ("general", "plan")


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
