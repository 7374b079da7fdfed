"""Messages and notes read from their tables: in time order, by their names, by their keys."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    func,
    or_,
    select,
    tuple_,
    union_all,
)

from kemem.records import NOTES, Message, Note, Position, Row, Where
from kemem.store.conditions import to_condition
from kemem.store.database import Database, IndexedText, Space, Statement, Values, in_list
from kemem.store.schema import SEQ_BITS, message, note, note_source
from kemem.store.spaces import visible_spaces
from kemem.text.marks import index_text

R = TypeVar("R", bound=Row)

CHUNK = 512  # ids in one statement


class Stored(NamedTuple, Generic[R]):
    """A message or note and where it is stored."""

    space_no: int
    id: int
    row: R


def _field_names(record: type[Any]) -> list[str]:
    return [each.name for each in fields(record)]


@dataclass(frozen=True, eq=False)
class RowTable(Generic[R]):
    """A table of records: its columns are those that the fields of the record are named after."""

    table: Table
    record: type[R]
    name: Column[str]  # what callers know a row by
    time: Column[int]  # what rows are ordered by
    renamed: Mapping[str, str] = field(default_factory=dict)  # field -> column
    computed: Mapping[str, ColumnElement[Any]] = field(default_factory=dict)  # field -> expression
    converted: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)  # field -> how

    @property
    def columns(self) -> tuple[ColumnElement[Any], ...]:
        """The key of a row, then the columns of its record's fields."""
        own = self.table.c
        columns = (
            self.computed[name] if name in self.computed else own[self.renamed.get(name, name)]
            for name in _field_names(self.record)
        )
        return (own.space_no, own.id, *columns)

    @property
    def arrival(self) -> Column[int]:
        """What rows with equal times are ordered by."""
        return self.table.c[self.renamed.get("arrival", "arrival")]

    def load(self, rows: Iterable[Sequence[Any]]) -> list[Stored[R]]:
        """Records from the columns above."""
        names = _field_names(self.record)
        converted = [(names.index(name), convert) for name, convert in self.converted.items()]
        stored = []
        for space_no, key, *values in rows:
            for at, convert in converted:
                values[at] = convert(values[at])
            stored.append(Stored(space_no, key, self.record(*values)))
        return stored

    def spaces(self, spaces: Sequence[Space], where: Where) -> list[Space]:
        """The spaces among those of a Where whose rows of this table it may admit."""
        if self.record is Note:
            return list(spaces) if where.kinds & NOTES and where.role is None else []
        if "message" not in where.kinds or where.marks is not None or where.sources is not None:
            return []
        return [it for it in spaces if (it.agent_id, it.user_id) != (where.shared, "")]


def _to_dict(value: Any) -> dict[str, Any]:
    return value or {}


messages = RowTable(
    message,
    Message,
    message.c.message_id,
    message.c.create_time,
    renamed={"ts": "create_time", "arrival": "id"},
    converted={"metadata": _to_dict},
)
_SEPARATOR = "\x1f"  # no id contains it
_in_order = (
    select(note_source.c.message_id)
    .where(note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id)
    .order_by(note_source.c.position)
    .correlate(note)
    .subquery()
)
notes = RowTable(
    note,
    Note,
    note.c.note_id,
    note.c.event_time,
    renamed={
        "ts": "event_time",
        "created": "create_time",
        "updated": "update_time",
        "expires": "expire_time",
        "uses": "use_count",
        "used": "use_time",
    },
    computed={
        "sources": select(
            func.aggregate_strings(_in_order.c.message_id, _SEPARATOR)
        ).scalar_subquery()
    },
    converted={
        "keywords": lambda value: tuple(value or ()),
        "metadata": _to_dict,
        "sources": lambda value: tuple(value.split(_SEPARATOR)) if value else (),
    },
)


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Pieces short enough for one statement."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def read(
    connection: Connection, where: Where, after: Position | None, limit: int, newest_first: bool
) -> list[Row]:
    """Visible messages and notes in time order, beyond `after`."""
    spaces = visible_spaces(connection, where)
    found: list[Stored[Any]] = []
    for table in (messages, notes):
        found += read_rows(connection, table, where, spaces, after, limit, newest_first)
    rows = [it.row for it in found]
    return sorted(rows, key=lambda row: row.position, reverse=newest_first)[:limit]


def read_rows(
    connection: Connection,
    table: RowTable[R],
    where: Where,
    spaces: Sequence[Space],
    after: Position | None,
    limit: int,
    newest_first: bool,
) -> list[Stored[R]]:
    """The visible rows of one table, given the visible spaces."""
    spaces = table.spaces(spaces, where)
    if not spaces or limit < 1:
        return []
    if where.ids is not None:
        found = named(connection, table, spaces, sorted(where.ids))
        return _visible_in_order(found, where, after, newest_first)[:limit]
    shape, values = shape_of(where), values_of(where, spaces)
    condition = to_condition(where.filters, table) if where.filters else None

    def page(after: Position | None, limit: int) -> list[Stored[R]]:
        statement = _in_time_order(table, shape, after is not None, newest_first)
        if condition is not None:
            statement = statement.where(condition.sql)
        place = {} if after is None else {"after_ts": after.ts, "after_arrival": after.arrival}
        return table.load(connection.execute(statement, {**values, **place, "most": limit}))

    if condition is None or condition.exact:
        return page(after, limit)
    return _passing(page, where, after, limit)


def _passing(
    page: Callable[[Position | None, int], list[Stored[R]]],
    where: Where,
    after: Position | None,
    limit: int,
) -> list[Stored[R]]:
    """Rows in order that a Where admits, where the database cannot tell: page by page."""
    kept: list[Stored[R]] = []
    while len(kept) < limit:
        rows = page(after, CHUNK)
        kept += [stored for stored in rows if where.matches(stored.row)]
        if len(rows) < CHUNK:
            break
        after = rows[-1].row.position
    return kept[:limit]


def _visible_in_order(
    found: Iterable[Stored[R]], where: Where, after: Position | None, newest_first: bool
) -> list[Stored[R]]:
    """Those that a Where admits, in time order, beyond `after`."""
    visible = [
        stored
        for stored in found
        if where.matches(stored.row) and stored.row.position.is_beyond(after, newest_first)
    ]
    return sorted(visible, key=lambda stored: stored.row.position, reverse=newest_first)


@cache
def _in_time_order(
    table: RowTable[Any], shape: "Shape", beyond: bool, newest_first: bool
) -> Statement:
    """The statement for one combination of conditions, built once."""
    time, arrival = table.time, table.arrival
    conditions = list(conditions_of(table, shape))
    if beyond:
        at: BindParameter[int] = bindparam("after_ts")
        row: BindParameter[int] = bindparam("after_arrival")
        further = time < at if newest_first else time > at
        level = arrival < row if newest_first else arrival > row
        conditions.append(or_(further, and_(time == at, level)))
        # Implied by the line above, but it is what lets an index seek.
        conditions.append(time <= at if newest_first else time >= at)
    # By itself, the index of the time is read to its end where only the last messages are wanted.
    first = time + 0 if shape.beyond and table is messages else time
    order = [it.desc() if newest_first else it.asc() for it in (first, arrival)]
    return select(*table.columns).where(*conditions).order_by(*order).limit(bindparam("most"))


class Shape(NamedTuple):
    """Which conditions a Where makes; their values are bound."""

    session: bool
    since: bool
    until: bool
    role: bool
    valid_at: bool
    known_by: bool
    marks: bool
    sources: bool
    beyond: bool
    ids: bool
    sensitive: bool  # they are seen


def shape_of(where: Where) -> Shape:
    """The shape of a Where."""
    return Shape(
        where.scope.session_id is not None,
        where.since is not None,
        where.until is not None,
        where.role is not None,
        where.valid_at is not None,
        where.known_by is not None,
        where.marks is not None,
        where.sources is not None,
        where.beyond is not None,
        where.ids is not None,
        where.sensitive,
    )


def values_of(where: Where, spaces: Sequence[Space]) -> Values:
    """What is bound to the conditions of a Where; a value that none asks for does no harm."""
    shared = [it.space_no for it in spaces if (it.agent_id, it.user_id) == (where.shared, "")]
    return {
        "spaces": [each.space_no for each in spaces],
        "kinds": sorted(where.kinds),
        "shared": shared,
        "session_id": where.scope.session_id,
        "since": where.since,
        "until": where.until,
        "role": where.role,
        "valid_at": where.valid_at,
        "known_by": where.known_by,
        "marks": sorted(where.marks or ()),
        "sources": sorted(where.sources or ()),
        "beyond": where.beyond,
        "ids": sorted(where.ids or ()),
    }


def one_of(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """A column that has one of the values bound under a name."""
    return column.in_(bindparam(name, expanding=True))


@cache
def conditions_of(table: RowTable[Any], shape: Shape) -> tuple[ColumnElement[bool], ...]:
    """All that a Where demands of the rows of a table, except for its filters."""
    columns = table.table.c
    conditions = [one_of(columns.space_no, "spaces")]
    if shape.since:
        conditions.append(table.time >= bindparam("since"))
    if shape.until:
        conditions.append(table.time < bindparam("until"))
    if shape.ids:
        conditions.append(one_of(table.name, "ids"))
    if not shape.sensitive:
        conditions.append(~columns.sensitive)
    own = columns.session_id == bindparam("session_id")
    if table is messages:
        if shape.session:
            conditions.append(own)
        if shape.known_by:
            conditions.append(table.time <= bindparam("known_by"))
        if shape.role:
            conditions.append(columns.role == bindparam("role"))
        if shape.beyond:
            conditions.append(columns.sequence_no > bindparam("beyond"))
        return tuple(conditions)
    conditions.append(one_of(columns.kind, "kinds"))
    if shape.session:
        conditions.append(or_(own, one_of(columns.space_no, "shared")))
    if shape.valid_at:
        ends = (columns.valid_until, columns.expire_time)
        conditions += [or_(end.is_(None), end > bindparam("valid_at")) for end in ends]
    if shape.known_by:
        conditions.append(columns.valid_from <= bindparam("known_by"))
    if shape.marks:
        conditions.append(or_(one_of(columns.digest, "marks"), one_of(columns.topic, "marks")))
    if shape.sources:
        citing = select(note_source.c.note_row).where(
            one_of(note_source.c.space_no, "spaces"), in_list(note_source.c.message_id, "sources")
        )
        conditions.append(columns.id.in_(citing))  # the number of a row holds that of its space
    return tuple(conditions)


def matching_ids(
    connection: Connection, where: Where, spaces: Sequence[Space]
) -> tuple[Sequence[int], bool]:
    """The numbers of the rows that a Where may admit, ids aside, and whether it admits them all."""
    statements, exact, shape = [], True, shape_of(replace(where, ids=None))
    tables: tuple[RowTable[Any], ...] = (messages, notes)
    for table in tables:
        if table.spaces(spaces, where):
            conditions = [*conditions_of(table, shape)]
            if where.filters is not None:
                condition = to_condition(where.filters, table)
                conditions.append(condition.sql)
                exact &= condition.exact
            statements.append(select(table.table.c.id).where(*conditions))
    if not statements:
        return (), True
    values = values_of(where, spaces)
    return connection.execute(union_all(*statements), values).scalars().all(), exact


def named(
    connection: Connection, table: RowTable[R], spaces: Sequence[Space], names: Iterable[str]
) -> list[Stored[R]]:
    """Rows by the names that callers know them by; those that do not exist are left out."""
    numbers = [space.space_no for space in spaces]
    return _matching(connection, table, table.name, numbers, sorted(set(names)))


def keyed(connection: Connection, table: RowTable[R], keys: Sequence[int]) -> list[Stored[R]]:
    """Rows by their numbers, which hold those of their spaces."""
    spaces = sorted({key >> SEQ_BITS for key in keys})
    return _matching(connection, table, table.table.c.id, spaces, keys)


def open_notes(connection: Connection, space: Space, digests: Iterable[str]) -> list[Stored[Note]]:
    """Notes of a space that say one of these things and have not been replaced."""
    wanted = sorted(set(digests))
    found = _matching(connection, notes, note.c.digest, [space.space_no], wanted)
    return [stored for stored in found if stored.row.valid_until is None]


def _matching(
    connection: Connection,
    table: RowTable[R],
    column: Column[Any],
    spaces: Sequence[int],
    values: Sequence[Any],
) -> list[Stored[R]]:
    if not spaces or not values:
        return []
    bound = {"spaces": spaces, "values": values}
    return table.load(connection.execute(_by_values(table, column), bound))


@cache
def _by_values(table: RowTable[Any], column: Column[Any]) -> Statement:
    of_spaces = one_of(table.table.c.space_no, "spaces")
    return select(*table.columns).where(of_spaces, in_list(column, "values"))


def indexed_texts(rows: Iterable[Stored[Any]]) -> list[IndexedText]:
    """The search texts of rows as they are indexed."""
    return [IndexedText(it.space_no, it.id, index_text(it.row)) for it in rows]


def rebuild_words(connection: Connection, database: Database) -> None:
    """Empty the word index and derive it again from messages and notes."""
    database.clear_words(connection)
    tables: tuple[RowTable[Any], ...] = (messages, notes)
    for table in tables:
        columns = (table.table.c.space_no, table.table.c.id)
        page = select(*table.columns).order_by(*columns).limit(CHUNK)
        texts = indexed_texts(table.load(connection.execute(page)))
        while texts:
            database.add_words(connection, texts)
            last = tuple_(texts[-1].space_no, texts[-1].id)
            rows = connection.execute(page.where(tuple_(*columns) > last))
            texts = indexed_texts(table.load(rows))
