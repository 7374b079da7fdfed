"""Messages and notes as rows: the column of each field, and conditions on rows."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa

from kemem.records import NOTES, Message, Note, Row, Where
from kemem.records.filters import COMPARISONS, Filter
from kemem.store.database import Space, Values, in_list, json_holds
from kemem.store.schema import message, note, note_source

R = TypeVar("R", bound=Row)
Shape = frozenset[str]  # names of the conditions that a Where makes

SEPARATOR = "\x1f"  # no id contains it
_in_order = (
    sa.select(note_source.c.message_id)
    .where(note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id)
    .order_by(note_source.c.position)
    .correlate(note)
    .subquery()
)
_sources = sa.select(sa.func.aggregate_strings(_in_order.c.message_id, SEPARATOR)).scalar_subquery()
_LOADED: dict[str, Callable[[Any], Any]] = {  # field -> its value from that of the column
    "keywords": lambda value: tuple(value or ()),
    "metadata": lambda value: value or {},
    "sources": lambda value: tuple(value.split(SEPARATOR)) if value else (),
}
_DUMPED: dict[str, Any] = {"keywords": list, "metadata": dict}  # empty ones are stored as NULL
_FILTERS = {  # what a filter calls the fields that messages and notes share
    **{name: name for name in ("user_id", "agent_id", "session_id", "sensitive", "ts")},
    **{"run_id": "session_id", "timestamp": "ts"},
}
_MOST_VALUES = 200
_LARGEST = 1 << 53  # of a whole number that every engine compares exactly
_KEY = re.compile(r'[^"\\\x00-\x1f\x7f]{1,200}')  # of metadata, as a JSON path can name it
_NEGATED = {"ne": "eq", "nin": "in"}
_ORDERS = {"gt": sa.sql.operators.gt, "gte": sa.sql.operators.ge}
_ORDERS |= {"lt": sa.sql.operators.lt, "lte": sa.sql.operators.le}
_NOT_COMPARED = {"content", "memory", "data", "keywords"}  # in SQL: only `matches` compares them
_CONDITIONS = ["since", "until", "role", "valid_at", "known_by"]
_CONDITIONS += ["marks", "sources", "beyond", "ids"]


class Stored(NamedTuple, Generic[R]):
    """A message or note and where it is stored."""

    space_no: int
    id: int
    row: R


class RowTable(Generic[R]):
    """A table of records: which column holds each field, and which field a filter means."""

    def __init__(
        self, table: sa.Table, record: type[R], filters: Mapping[str, str], **renamed: str
    ) -> None:
        self.table, self.record = table, record
        names = [each.name for each in fields(record)]
        self.fields: dict[str, Any] = {
            name: _sources if name == "sources" else table.c[renamed.get(name, name)]
            for name in names
        }
        self.name = self.fields[names[0]]  # what callers know a row by
        self.time, self.arrival = self.fields["ts"], self.fields["arrival"]  # the order of rows
        self.columns = (table.c.space_no, table.c.id, *self.fields.values())
        self.filters = {key: self.fields[name] for key, name in {**_FILTERS, **filters}.items()}
        self.filters |= {"id": self.name, "memory_id": self.name}
        self._loaded = [(names.index(name), _LOADED[name]) for name in names if name in _LOADED]

    def load(self, rows: Iterable[Sequence[Any]]) -> list[Stored[R]]:
        """Records from the columns above."""
        stored = []
        for space_no, key, *values in rows:
            for at, convert in self._loaded:
                values[at] = convert(values[at])
            stored.append(Stored(space_no, key, self.record(*values)))
        return stored

    def values(self, row: Values) -> list[Any]:
        """The columns above, from those of a row of the table alone."""
        own = (None if name == "sources" else row[it.name] for name, it in self.fields.items())
        return [row["space_no"], row["id"], *own]

    def dump(self, rows: Sequence[R]) -> dict[str, list[Any]]:
        """The columns of records; sources have a table of their own."""
        columns = {}
        for name, column in self.fields.items():
            if name != "sources":
                values = [*map(attrgetter(name), rows)]
                if name in _DUMPED:
                    values = [_DUMPED[name](it) or None for it in values]
                columns[column.name] = values
        return columns

    def spaces(self, spaces: Sequence[Space], where: Where) -> list[Space]:
        """The spaces among those of a Where whose rows of this table it may admit."""
        if self.record is Note:
            return list(spaces) if where.kinds & NOTES and where.role is None else []
        if "message" not in where.kinds or where.marks is not None or where.sources is not None:
            return []
        return [it for it in spaces if (it.agent_id, it.user_id) != (where.shared, "")]


messages = RowTable(
    message,
    Message,
    {"role": "role", "created_at": "ingest_time", "updated_at": "ingest_time"},
    ts="create_time",
    arrival="id",
)
notes = RowTable(
    note,
    Note,
    {name: name for name in ("kind", "memory_type", "topic", "importance")}
    | {"created_at": "created", "updated_at": "updated"},
    ts="event_time",
    created="create_time",
    updated="update_time",
    expires="expire_time",
    uses="use_count",
    used="use_time",
)
TABLES: tuple[RowTable[Any], ...] = (messages, notes)


def shape_of(where: Where) -> Shape:
    """Which conditions a Where makes; their values are bound."""
    names = {name for name in _CONDITIONS if getattr(where, name) is not None}
    extra = {"session": where.scope.session_id is not None, "sensitive": where.sensitive}
    extra |= {"withdrawn": where.withdrawn}
    return frozenset(names | {name for name, holds in extra.items() if holds})


def values_of(where: Where, spaces: Sequence[Space]) -> Values:
    """What is bound to the conditions of a Where; a value that none asks for does no harm."""
    lists = ("kinds", "marks", "sources", "ids")
    return {
        **{name: getattr(where, name) for name in _CONDITIONS},
        **{name: sorted(getattr(where, name) or ()) for name in lists},
        "session_id": where.scope.session_id,
        "spaces": [each.space_no for each in spaces],
        "shared": [it.space_no for it in spaces if (it.agent_id, it.user_id) == (where.shared, "")],
    }


def one_of(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """A column that has one of the values bound under a name."""
    return column.in_(sa.bindparam(name, expanding=True))


@cache
def conditions_of(table: RowTable[Any], shape: Shape) -> tuple[sa.ColumnElement[bool], ...]:
    """All that a Where demands of the rows of a table, except for its filters."""
    columns, bound = table.table.c, sa.bindparam
    own = columns.session_id == bound("session_id")
    possible = {
        "since": table.time >= bound("since"),
        "until": table.time < bound("until"),
        "ids": one_of(table.name, "ids"),
    }
    required = [one_of(columns.space_no, "spaces")]
    if "sensitive" not in shape:
        required.append(~columns.sensitive)
    if table is messages:
        required += [] if "withdrawn" in shape else [~columns.withdrawn]
        possible |= {
            "session": own,
            "valid_at": sa.or_(
                columns.valid_until.is_(None), columns.valid_until > bound("valid_at")
            ),
            "known_by": table.time <= bound("known_by"),
            "role": columns.role == bound("role"),
            "beyond": columns.sequence_no > bound("beyond"),
        }
    else:
        required.append(one_of(columns.kind, "kinds"))
        ends = (columns.valid_until, columns.expire_time)
        citing = sa.select(note_source.c.note_row).where(
            one_of(note_source.c.space_no, "spaces"), in_list(note_source.c.message_id, "sources")
        )
        possible |= {
            "session": sa.or_(own, one_of(columns.space_no, "shared")),
            "valid_at": sa.and_(*(sa.or_(it.is_(None), it > bound("valid_at")) for it in ends)),
            "known_by": columns.valid_from <= bound("known_by"),
            "marks": sa.or_(one_of(columns.digest, "marks"), one_of(columns.topic, "marks")),
            "sources": columns.id.in_(citing),  # the number of a row holds that of its space
        }
    return (*required, *(sql for name, sql in possible.items() if name in shape))


class Condition(NamedTuple):
    """A condition that every row that matches fulfils; where it is exact, no other row does.

    `Filter.matches` is the definition. What a condition cannot tell is checked by it afterwards.
    """

    sql: sa.ColumnElement[bool]
    exact: bool


_UNKNOWN = Condition(sa.true(), False)


def to_condition(filters: Filter, table: RowTable[Any]) -> Condition:
    """A filter as an SQL condition: exact where both engines can tell, else too weak."""
    operator = filters.operator
    if operator in ("AND", "OR", "NOT"):
        parts = [to_condition(part, table) for part in filters.parts]
        if operator == "AND":
            every = sa.and_(sa.true(), *(part.sql for part in parts))
            return Condition(every, all(part.exact for part in parts))
        return _any(parts) if operator == "OR" else _negated(_any(parts))
    if operator in _NEGATED:
        return _negated(_compare(_NEGATED[operator], filters.key, filters.value, table))
    return _compare(operator, filters.key, filters.value, table)


def _negated(condition: Condition) -> Condition:
    return Condition(sa.not_(condition.sql), True) if condition.exact else _UNKNOWN


def _any(parts: Sequence[Condition]) -> Condition:
    sql = sa.or_(sa.false(), *(part.sql for part in parts))
    return Condition(sql, all(part.exact for part in parts))


def _compare(operator: str, key: str, value: Any, table: RowTable[Any]) -> Condition:
    if operator == "in":
        if not isinstance(value, list | tuple) or len(value) > _MOST_VALUES:
            return _UNKNOWN
        return _any([_compare("eq", key, each, table) for each in value])
    if key in ("role", "kind") and key not in table.filters:
        holds = COMPARISONS[operator]("message" if key == "kind" else None, value)
        return Condition(sa.true() if holds else sa.false(), True)
    if key == "memory_type" and table is notes:  # its own, or one in the metadata
        typed = _compare_column(operator, table.filters[key], value)
        given = _compare_metadata(operator, key, value, table)
        return Condition(sa.or_(typed.sql, given.sql), False)
    if key in table.filters:
        return _compare_column(operator, table.filters[key], value)
    if key in _NOT_COMPARED:
        return _UNKNOWN
    if key == "sources" and table is notes:
        if operator not in ("eq", "contains") or not isinstance(value, str) or "\0" in value:
            return _UNKNOWN
        own = (note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id)
        return Condition(sa.exists().where(*own, note_source.c.message_id == value), True)
    return _compare_metadata(operator, key, value, table)


def _compare_metadata(operator: str, key: str, value: Any, table: RowTable[Any]) -> Condition:
    key, metadata = key.removeprefix("metadata."), table.table.c.metadata
    is_text = isinstance(value, str) and value.isprintable()
    if operator != "eq" or not (is_text and _KEY.fullmatch(key)):
        return _UNKNOWN
    return Condition(sa.and_(metadata.is_not(None), json_holds(metadata, key, value)), False)


def _compare_column(operator: str, column: sa.ColumnElement[Any], value: Any) -> Condition:
    if operator == "eq" and value is None:
        return Condition(column.is_(None), True)
    if not _has_type(column, value):
        # A text equals no number, and a truth value neither.
        is_unequal = operator == "eq" and not isinstance(value, int | float)
        return Condition(sa.false(), True) if is_unequal else _UNKNOWN
    if operator == "eq":
        return Condition(sa.and_(column.is_not(None), column == value), True)
    if operator in _ORDERS and not isinstance(column.type, sa.Boolean | sa.String):
        return Condition(_ORDERS[operator](column, value), True)
    return _UNKNOWN  # texts have another order in some collations


def _has_type(column: sa.ColumnElement[Any], value: Any) -> bool:
    """Whether a value can be bound to a column and compared exactly."""
    if isinstance(column.type, sa.Boolean):
        return isinstance(value, bool)
    if isinstance(column.type, sa.String):
        return isinstance(value, str) and "\0" not in value and value.isprintable()
    if isinstance(value, float) and not isinstance(column.type, sa.Float):
        return False
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < _LARGEST
