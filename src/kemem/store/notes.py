"""Notes read from their table: in time order, by their ids, by what they say."""

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    func,
    or_,
    select,
    union_all,
)

from kemem.records import NOTES, Note, Position, Scope, Where
from kemem.store.database import Space, Statement, Values
from kemem.store.scan import Stored, chunks, in_order, passing
from kemem.store.schema import message, note, note_source
from kemem.store.spaces import find_spaces, shared_space

_SEPARATOR = "\x1f"  # no id holds it
_in_order = (
    select(note_source.c.message_id)
    .where(note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id)
    .order_by(note_source.c.position)
    .correlate(note)
    .subquery()
)
_sources = select(func.aggregate_strings(_in_order.c.message_id, _SEPARATOR)).scalar_subquery()
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
    _sources,
    note.c.topic,
    note.c.supersedes,
    note.c.importance,
    note.c.sensitive,
    note.c.use_count,
    note.c.use_time,
)
_KEYWORDS, _METADATA, _SOURCES = (
    COLUMNS.index(column) - 2 for column in (note.c.keywords, note.c.metadata, _sources)
)


class Shape(NamedTuple):
    """Which conditions a Where makes; their values are bound."""

    session: bool
    since: bool
    until: bool
    valid_at: bool
    known_by: bool
    marks: bool
    sources: bool
    ids: bool
    sensitive: bool  # they are seen


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
        sources = fields[_SOURCES]
        fields[_SOURCES] = tuple(sources.split(_SEPARATOR)) if sources else ()
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


def generation(connection: Connection, where: Where) -> str:
    """A mark of how far the spaces that a Where reaches have been written."""
    spaces = spaces_of(connection, where)
    counters = [(it.space_no, it.next_seq, it.epoch, it.vector_writes) for it in spaces]
    return blake2b(repr(counters).encode(), digest_size=16).hexdigest()


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
    shape, values = note_shape(where), note_values(where, spaces)

    def page(after: Position | None, limit: int) -> list[Stored[Note]]:
        statement = _in_time_order(shape, after is not None, newest_first)
        place = {} if after is None else {"after_ts": after.ts, "after_id": after.id}
        return to_notes(connection.execute(statement, {**values, **place, "most": limit}))

    return passing(page, where, after, limit)


@cache
def _in_time_order(shape: Shape, beyond: bool, newest_first: bool) -> Statement:
    """The statement for one combination of conditions, built once."""
    time = note.c.event_time
    conditions = list(note_conditions(shape))
    if beyond:
        at: BindParameter[int] = bindparam("after_ts")
        further = time < at if newest_first else time > at
        conditions.append(or_(further, and_(time == at, note.c.note_id > bindparam("after_id"))))
    order = time.desc() if newest_first else time.asc()
    statement = select(*COLUMNS).where(*conditions).order_by(order, note.c.note_id)
    return statement.limit(bindparam("most"))


def note_shape(where: Where) -> Shape:
    """The shape of a Where."""
    return Shape(
        where.scope.session_id is not None,
        where.since is not None,
        where.until is not None,
        where.valid_at is not None,
        where.known_by is not None,
        where.marks is not None,
        where.sources is not None,
        where.ids is not None,
        where.sensitive,
    )


def note_values(where: Where, spaces: Sequence[Space]) -> Values:
    """What is bound to the conditions of a Where; a value that none asks for does no harm."""
    shared = [it.space_no for it in spaces if (it.agent_id, it.user_id) == (where.shared, "")]
    return {
        "spaces": [each.space_no for each in spaces],
        "kinds": sorted(where.kinds),
        "shared": shared,
        "session_id": where.scope.session_id,
        "since": where.since,
        "until": where.until,
        "valid_at": where.valid_at,
        "known_by": where.known_by,
        "marks": sorted(where.marks or ()),
        "sources": sorted(where.sources or ()),
        "ids": sorted(where.ids or ()),
    }


@cache
def note_conditions(shape: Shape) -> tuple[ColumnElement[bool], ...]:
    """All of a Where that a database can tell: everything but filters."""

    def one_of(column: Column[Any], name: str) -> ColumnElement[bool]:
        return column.in_(bindparam(name, expanding=True))

    conditions = [one_of(note.c.space_no, "spaces"), one_of(note.c.kind, "kinds")]
    if shape.session:
        own = note.c.session_id == bindparam("session_id")
        conditions.append(or_(own, one_of(note.c.space_no, "shared")))
    if shape.since:
        conditions.append(note.c.event_time >= bindparam("since"))
    if shape.until:
        conditions.append(note.c.event_time < bindparam("until"))
    if shape.valid_at:
        conditions += [
            or_(end.is_(None), end > bindparam("valid_at"))
            for end in (note.c.valid_until, note.c.expire_time)
        ]
    if shape.known_by:
        conditions.append(note.c.valid_from <= bindparam("known_by"))
    if shape.marks:
        conditions.append(or_(one_of(note.c.digest, "marks"), one_of(note.c.topic, "marks")))
    if shape.sources:
        spaces, cited = note_source.c.space_no, note_source.c.message_id
        citing = select(note_source.c.note_row).where(
            one_of(spaces, "spaces"), one_of(cited, "sources")
        )
        conditions.append(note.c.id.in_(citing))  # the number of a row holds that of its space
    if shape.ids:
        conditions.append(one_of(note.c.note_id, "ids"))
    if not shape.sensitive:
        conditions.append(~note.c.sensitive)
    return tuple(conditions)


@cache
def _hidden(ended: bool, not_begun: bool) -> Statement:
    reasons: list[ColumnElement[bool]] = []
    if ended:
        ends = (note.c.valid_until, note.c.expire_time)
        reasons += [end <= bindparam("valid_at") for end in ends]
    if not_begun:
        reasons.append(note.c.valid_from > bindparam("known_by"))
    return select(note.c.id).where(note.c.space_no == bindparam("of_space"), or_(*reasons))


sensitive_rows = union_all(
    *(
        select(table.c.id).where(table.c.space_no == bindparam("of_space"), table.c.sensitive)
        for table in (message, note)
    )
)


def hidden_rows(connection: Connection, where: Where, space: Space) -> list[int]:
    """Rows that the columns of a space show, and a Where does not: notes that had ended, or not
    begun, at the time that it asks for, and what is sensitive.
    """
    values = {"of_space": space.space_no, "valid_at": where.valid_at, "known_by": where.known_by}
    ended, not_begun = where.valid_at is not None, where.known_by is not None
    found: list[int] = []
    if (ended or not_begun) and where.kinds & NOTES:
        found += connection.execute(_hidden(ended, not_begun), values).scalars()
    if not where.sensitive:
        found += connection.execute(sensitive_rows, values).scalars()
    return found


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
