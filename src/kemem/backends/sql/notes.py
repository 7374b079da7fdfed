"""Notes read from their table: in time order, by their ids, by what they say."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, or_, select

from kemem.backends.sql.database import Space, Statement
from kemem.backends.sql.scan import Stored, chunks, in_order, passing
from kemem.backends.sql.schema import note
from kemem.backends.sql.spaces import find_spaces, shared_space
from kemem.types import NOTES, Note, Position, Scope, Where

COLUMNS = (
    note.c.space_no,
    note.c.id,
    note.c.note_id,
    note.c.agent_id,
    note.c.user_id,
    note.c.session_id,
    note.c.kind,
    note.c.content,
    note.c.digest,
    note.c.event_time,
    note.c.create_time,
    note.c.update_time,
    note.c.valid_from,
    note.c.valid_until,
    note.c.expire_time,
    note.c.memory_type,
    note.c.summary,
    note.c.keywords,
    note.c.metadata,
    note.c.sources,
    note.c.topic,
    note.c.supersedes,
    note.c.importance,
    note.c.sensitive,
    note.c.use_count,
    note.c.use_time,
)
_KEYWORDS, _METADATA, _SOURCES = (
    COLUMNS.index(column) - 2 for column in (note.c.keywords, note.c.metadata, note.c.sources)
)
_owner = select(note.c.agent_id, note.c.user_id).where(note.c.note_id == bindparam("of_note"))
_named = select(*COLUMNS).where(
    note.c.space_no == bindparam("of_space"),
    note.c.note_id.in_(bindparam("names", expanding=True)),
)
_open = select(*COLUMNS).where(
    note.c.space_no == bindparam("of_space"),
    note.c.digest.in_(bindparam("digests", expanding=True)),
    note.c.valid_until.is_(None),
)


def to_notes(rows: Iterable[Sequence[Any]]) -> list[Stored[Note]]:
    """Notes from the columns above."""
    stored = []
    for space_no, key, *fields in rows:
        fields[_KEYWORDS] = tuple(fields[_KEYWORDS] or ())
        fields[_METADATA] = fields[_METADATA] or {}
        fields[_SOURCES] = tuple(fields[_SOURCES] or ())
        stored.append(Stored(space_no, key, Note(*fields)))
    return stored


def owner(connection: Connection, note_id: str) -> Scope | None:
    """Whose a note is."""
    found = connection.execute(_owner, {"of_note": note_id}).first()
    return Scope(*found) if found else None


def note_spaces(connection: Connection, where: Where) -> list[Space]:
    """The spaces whose notes may be seen, the agent's shared one among them."""
    if not where.kinds & NOTES or where.role is not None:
        return []
    return spaces_of(connection, where)


def spaces_of(connection: Connection, where: Where) -> list[Space]:
    """The spaces of a scope, and the shared one that is seen besides."""
    found = find_spaces(connection, where.scope)
    if where.shared is not None:
        shared = shared_space(connection, where.shared)
        found += [each for each in shared if each.space_no not in {it.space_no for it in found}]
    return sorted(found, key=lambda each: each.space_no)


def scan_notes(
    connection: Connection,
    where: Where,
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Stored[Note]]:
    """Visible notes in time order, beyond `after`."""
    spaces = note_spaces(connection, where)
    if not spaces or limit < 1:
        return []
    if where.ids is not None:
        found = [row for space in spaces for row in named_notes(connection, space, where.ids)]
        return in_order(found, where, after, newest_first)[:limit]
    conditions = note_conditions(where, spaces)
    time = note.c.event_time
    order = time.desc() if newest_first else time.asc()

    def page(after: Position | None, limit: int) -> list[Stored[Note]]:
        beyond = [] if after is None else [_beyond(after, newest_first)]
        statement = select(*COLUMNS).where(*conditions, *beyond)
        ordered = statement.order_by(order, note.c.note_id).limit(limit)
        return to_notes(connection.execute(ordered))

    return passing(page, where, after, limit)


def _beyond(after: Position, newest_first: bool) -> ColumnElement[bool]:
    time = note.c.event_time
    further = time < after.ts if newest_first else time > after.ts
    return or_(further, and_(time == after.ts, note.c.note_id > after.id))


def note_conditions(where: Where, spaces: Sequence[Space]) -> list[ColumnElement[bool]]:
    """All of a Where that a database can tell: everything but ids and filters."""
    conditions: list[ColumnElement[bool]] = [
        note.c.space_no.in_([each.space_no for each in spaces]),
        note.c.kind.in_(sorted(where.kinds)),
    ]
    if where.scope.session_id is not None:
        shared = [
            each.space_no for each in spaces if (each.agent_id, each.user_id) == (where.shared, "")
        ]
        own = note.c.session_id == where.scope.session_id
        conditions.append(or_(own, note.c.space_no.in_(shared)) if shared else own)
    if where.since is not None:
        conditions.append(note.c.event_time >= where.since)
    if where.until is not None:
        conditions.append(note.c.event_time < where.until)
    if where.valid_at is not None:
        conditions += [
            or_(end.is_(None), end > where.valid_at)
            for end in (note.c.valid_until, note.c.expire_time)
        ]
    if where.known_by is not None:
        conditions.append(note.c.valid_from <= where.known_by)
    if where.marks is not None:
        marks = sorted(where.marks)
        conditions.append(or_(note.c.digest.in_(marks), note.c.topic.in_(marks)))
    return conditions


@cache
def _hidden(ended: bool, not_begun: bool) -> Statement:
    reasons: list[ColumnElement[bool]] = []
    if ended:
        ends = (note.c.valid_until, note.c.expire_time)
        reasons += [end <= bindparam("valid_at") for end in ends]
    if not_begun:
        reasons.append(note.c.valid_from > bindparam("known_by"))
    return select(note.c.id).where(note.c.space_no == bindparam("of_space"), or_(*reasons))


def hidden_rows(connection: Connection, where: Where, space: Space) -> list[int]:
    """Rows of notes that had ended, or not begun, at the time a Where asks for."""
    ended, not_begun = where.valid_at is not None, where.known_by is not None
    if not (ended or not_begun) or not where.kinds & NOTES:
        return []
    times = {"valid_at": where.valid_at, "known_by": where.known_by}
    found = connection.execute(_hidden(ended, not_begun), {"of_space": space.space_no, **times})
    return list(found.scalars())


def named_notes(
    connection: Connection, space: Space, note_ids: Iterable[str]
) -> list[Stored[Note]]:
    """Notes of a space by their ids; those that do not exist are left out."""
    found = []
    for chunk in chunks(sorted(note_ids)):
        values = {"of_space": space.space_no, "names": list(chunk)}
        found += to_notes(connection.execute(_named, values))
    return found


def open_notes(connection: Connection, space: Space, digests: Sequence[str]) -> list[Stored[Note]]:
    """Notes of a space that say one of these things and have not been replaced."""
    found = []
    for chunk in chunks(sorted(set(digests))):
        values = {"of_space": space.space_no, "digests": list(chunk)}
        found += to_notes(connection.execute(_open, values))
    return found
