"""Filters as callers write them, checked and turned into conditions."""

import math
from collections.abc import Iterable, Iterator, Mapping
from reprlib import repr as shown
from typing import Any

from kemem.errors import InvalidArgument
from kemem.records import TIME_FIELDS
from kemem.records.filters import COMPARISONS, Filter
from kemem.records.times import to_micros

MAX_DEPTH = 8
MAX_CONDITIONS = 200
MAX_VALUES = 1_000
_ID_FIELDS = {name: name for name in ("user_id", "agent_id", "session_id")}
_ID_FIELDS |= {"run_id": "session_id"}


def split_filters(filters: object) -> tuple[dict[str, str], Filter | None]:
    """The ids that a filter demands, and the condition that is left.

    {"user_id": "u_1", "tag": "x"} -> {"user_id": "u_1"}, tag == "x"
    """
    if filters is None:
        return {}, None
    ids: dict[str, str] = {}
    conditions = list(_conditions(filters, 0))
    if sum(map(_size, conditions)) > MAX_CONDITIONS:
        raise _wrong(f"more than {MAX_CONDITIONS} conditions")
    rest = []
    for condition in _flat(conditions):
        name = _ID_FIELDS.get(condition.key)
        if name is None or condition.operator != "eq":
            rest.append(condition)
        elif ids.setdefault(name, condition.value) != condition.value:
            raise _wrong(f"{condition.key} is demanded to be two things at once")
    return ids, Filter("AND", parts=tuple(rest)) if rest else None


def check_for_erasing(filters: object) -> None:
    """Refuse a filter that demands nothing: what is erased would be everything."""
    if filters is not None and split_filters(filters) == ({}, None):
        raise _wrong(f"must hold a condition, not {shown(filters)}; to erase everything, pass none")


def _size(condition: Filter) -> int:
    return 1 + sum(map(_size, condition.parts))


def _flat(conditions: Iterable[Filter]) -> Iterator[Filter]:
    """Conditions that must all hold, without the ANDs around them."""
    for condition in conditions:
        yield from _flat(condition.parts) if condition.operator == "AND" else (condition,)


def _conditions(filters: object, depth: int) -> Iterator[Filter]:
    if not isinstance(filters, Mapping):
        raise _wrong(f"must be an object such as {{'tag': 'work'}}, not {shown(filters)}")
    if depth > MAX_DEPTH:
        raise _wrong(f"nested deeper than {MAX_DEPTH}")
    for key, value in filters.items():
        if not isinstance(key, str) or not 1 <= len(key) <= 256:
            raise _wrong(f"a key must be a text of 1-256 characters, not {shown(key)}")
        if key in ("AND", "OR", "NOT"):
            members = [value] if isinstance(value, Mapping) and key == "NOT" else value
            if not isinstance(members, list | tuple) or not members:
                raise _wrong(f"{key} takes a list of filters, not {shown(value)}")
            groups = (tuple(_conditions(member, depth + 1)) for member in members)
            yield Filter(key, parts=tuple(Filter("AND", parts=group) for group in groups))
        elif isinstance(value, Mapping):
            if not value:
                raise _wrong(f"{key!r:.80} has no operator")
            yield from (_compared(key, name, operand) for name, operand in value.items())
        else:
            yield _compared(key, "in" if isinstance(value, list | tuple) else "eq", value)


def _compared(key: str, operator: object, value: object) -> Filter:
    if not isinstance(operator, str) or operator not in COMPARISONS:
        operators = ", ".join(COMPARISONS)
        raise _wrong(f"{key!r:.80} has the operator {shown(operator)}; there are {operators}")
    if operator not in ("in", "nin"):
        return Filter(operator, key, _value(key, value))
    if not isinstance(value, list | tuple) or len(value) > MAX_VALUES:
        raise _wrong(f"{operator} takes a list of at most {MAX_VALUES} values, not {shown(value)}")
    return Filter(operator, key, tuple(_value(key, each) for each in value))


def _value(key: str, value: object) -> Any:
    if key in _ID_FIELDS and not isinstance(value, str):
        raise _wrong(f"{key} must be a text, not {shown(value)}")
    if key in TIME_FIELDS:
        return to_micros(value, key)  # type: ignore[arg-type]  # it refuses what is no time
    plain = value is None or isinstance(value, str | bool | int)
    if not plain and not (isinstance(value, float) and math.isfinite(value)):
        raise _wrong(f"{key!r:.80} is compared with {shown(value)}, which is no plain value")
    return value


def _wrong(problem: str) -> InvalidArgument:
    return InvalidArgument(f"filters: {problem}", field="filters")
