"""Filters as SQL conditions: exact where both engines can tell, else a condition that is too weak.

`Filter.matches` is the definition. What a condition cannot tell is checked by it afterwards.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Float,
    String,
    and_,
    exists,
    false,
    not_,
    or_,
    true,
)

from kemem.records import Note
from kemem.records.filters import COMPARISONS, Filter
from kemem.store.database import json_holds
from kemem.store.schema import note, note_source

_MOST_VALUES = 200
_LARGEST = 1 << 53  # of a whole number that every engine compares exactly
_KEY = re.compile(r'[^"\\\x00-\x1f\x7f]{1,200}')  # of metadata, as a JSON path can name it
_NEGATED = {"ne": "eq", "nin": "in"}
_ORDERS: dict[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "gt": lambda column, value: column > value,
    "gte": lambda column, value: column >= value,
    "lt": lambda column, value: column < value,
    "lte": lambda column, value: column <= value,
}
_COLUMNS = {  # what a filter calls the columns that messages and notes share
    "user_id": "user_id",
    "agent_id": "agent_id",
    "session_id": "session_id",
    "run_id": "session_id",
    "sensitive": "sensitive",
}
_OF_MESSAGES = {
    **_COLUMNS,
    **{"id": "message_id", "memory_id": "message_id", "role": "role"},
    **{"ts": "create_time", "timestamp": "create_time"},
    **{"created_at": "ingest_time", "updated_at": "ingest_time"},
}
_OF_NOTES = {
    **_COLUMNS,
    **{"id": "note_id", "memory_id": "note_id", "kind": "kind", "memory_type": "memory_type"},
    **{"ts": "event_time", "timestamp": "event_time", "topic": "topic"},
    **{"created_at": "create_time", "updated_at": "update_time", "importance": "importance"},
}
_UNTOLD = {"content", "memory", "data", "keywords"}  # fields that only `matches` compares


class Condition(NamedTuple):
    """A condition that every row that matches fulfils; where it is exact, no other row does."""

    sql: ColumnElement[bool]
    exact: bool


_UNKNOWN = Condition(true(), False)


def to_condition(filters: Filter, table: Any) -> Condition:
    """The condition of a filter on the rows of a RowTable."""
    if filters.operator in ("AND", "OR", "NOT"):
        parts = [to_condition(part, table) for part in filters.parts]
        exact = all(part.exact for part in parts)
        if filters.operator == "AND":
            return Condition(and_(true(), *(part.sql for part in parts)), exact)
        anyone = Condition(or_(false(), *(part.sql for part in parts)), exact)
        return anyone if filters.operator == "OR" else _negated(anyone)
    if filters.operator in _NEGATED:
        return _negated(_compare(_NEGATED[filters.operator], filters.key, filters.value, table))
    return _compare(filters.operator, filters.key, filters.value, table)


def _negated(condition: Condition) -> Condition:
    return Condition(not_(condition.sql), True) if condition.exact else _UNKNOWN


def _any(parts: Iterable[Condition]) -> Condition:
    found = [*parts]
    return Condition(or_(false(), *(it.sql for it in found)), all(it.exact for it in found))


def _compare(operator: str, key: str, value: Any, table: Any) -> Condition:
    if operator == "in":
        if not isinstance(value, list | tuple) or len(value) > _MOST_VALUES:
            return _UNKNOWN
        return _any(_compare("eq", key, each, table) for each in value)
    of_notes = table.record is Note
    if key == "role" and of_notes:
        return _constant(operator, None, value)
    if key == "kind" and not of_notes:
        return _constant(operator, "message", value)
    name = (_OF_NOTES if of_notes else _OF_MESSAGES).get(key)
    if name is not None:
        return _column(operator, table.table.c[name], value)
    if key in _UNTOLD:
        return _UNKNOWN
    if key == "sources" and of_notes:
        return _cited(operator, value)
    return _metadata(operator, key.removeprefix("metadata."), value, table)


def _constant(operator: str, stored: Any, value: Any) -> Condition:
    return Condition(true() if COMPARISONS[operator](stored, value) else false(), True)


def _column(operator: str, column: ColumnElement[Any], value: Any) -> Condition:
    if operator == "eq" and value is None:
        return Condition(column.is_(None), True)
    if operator == "eq" and not _has_type(column, value):
        # A text equals no number, and a truth value neither.
        return _UNKNOWN if isinstance(value, int | float) else Condition(false(), True)
    if not _has_type(column, value):
        return _UNKNOWN
    if operator == "eq":
        return Condition(and_(column.is_not(None), column == value), True)
    if operator in _ORDERS and not isinstance(column.type, Boolean | String):
        return Condition(_ORDERS[operator](column, value), True)
    return _UNKNOWN  # texts have another order in some collations


def _has_type(column: ColumnElement[Any], value: Any) -> bool:
    """Whether a value can be bound to a column and compared exactly."""
    if isinstance(column.type, Boolean):
        return isinstance(value, bool)
    if isinstance(column.type, String):
        return isinstance(value, str) and "\0" not in value and value.isprintable()
    if isinstance(value, float) and not isinstance(column.type, Float):
        return False
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < _LARGEST


def _cited(operator: str, value: Any) -> Condition:
    """Notes that cite a message."""
    if operator not in ("eq", "contains") or not isinstance(value, str) or "\0" in value:
        return _UNKNOWN
    own = (note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id)
    return Condition(exists().where(*own, note_source.c.message_id == value), True)


def _metadata(operator: str, key: str, value: Any, table: Any) -> Condition:
    """Rows whose metadata has a text under a key, alone or in a list."""
    if operator != "eq" or not isinstance(value, str) or not value.isprintable():
        return _UNKNOWN
    if not _KEY.fullmatch(key):
        return _UNKNOWN
    metadata = table.table.c.metadata
    return Condition(and_(metadata.is_not(None), json_holds(metadata, key, value)), False)
