"""Filters as callers write them, checked and turned into conditions."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from reprlib import repr as shown
from typing import Any

from kemem.errors import InvalidArgument
from kemem.records import MESSAGES, NOTE_KINDS, ROLES, TIME_FIELDS
from kemem.records.filters import COMPARISONS, Filter
from kemem.records.times import to_micros, to_rfc3339

MAX_DEPTH = 8
MAX_CONDITIONS = 200
MAX_VALUES = 1_000
_ID_FIELDS = {name: name for name in ("user_id", "agent_id", "session_id")}
_ID_FIELDS |= {"run_id": "session_id"}
_TEXTS = frozenset({"id", "memory_id", "content", "memory", "data"})
_NAMES: Mapping[str, tuple[str | None, ...]] = {
    "kind": (*MESSAGES, *NOTE_KINDS),
    "role": (*ROLES, None),  # notes have none
}


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


def required(filters: Filter | None, key: str) -> frozenset[Any] | None:
    """The values of which a row must have one under a key; None where any will do."""
    values: frozenset[Any] | None = None
    for condition in _flat([filters] if filters else []):
        if condition.key == key and condition.operator in ("eq", "in"):
            own = [condition.value] if condition.operator == "eq" else condition.value
            values = frozenset(own) if values is None else values.intersection(own)
    return values


def check_satisfiable(filters: Filter | None, kinds: Collection[str]) -> None:
    """Refuse a filter that no row of these kinds can fulfil: to find nothing would hide that."""
    wanted, roles = required(filters, "kind"), required(filters, "role")
    left = frozenset(kinds) if wanted is None else wanted.intersection(kinds)
    if wanted is not None and not left:
        named = ", ".join(sorted(wanted)) or "two things at once"
        raise _wrong(f"kind is demanded to be {named}, but this call reads {_listed(kinds)} only")
    if roles == frozenset():
        raise _wrong("role is demanded to be two things at once")
    if roles and None not in roles and "message" not in left:
        raise _wrong(
            f"only messages have the role {_listed(roles)}, but this call reads {_listed(left)}; "
            "pass kinds=['message'], or name 'metadata.role' for notes added with infer=False"
        )
    if roles == frozenset({None}) and left == MESSAGES:
        raise _wrong("role is demanded to be None, but every message has one")
    for key in TIME_FIELDS:
        _check_order([it for it in _flat([filters] if filters else []) if it.key == key])


def _check_order(times: Iterable[Filter]) -> None:
    """Refuse bounds of one time between which there is nothing."""
    bounds = {it.operator: it for it in times}
    for lower, upper in product(("gt", "gte"), ("lt", "lte")):
        if lower in bounds and upper in bounds:
            first, last = bounds[lower].value, bounds[upper].value
            if first > last or (first == last and (lower, upper) != ("gte", "lte")):
                shown_times = f"{lower} {to_rfc3339(first)} and {upper} {to_rfc3339(last)}"
                raise _wrong(f"no {bounds[lower].key} is {shown_times}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


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
        return Filter(operator, key, _value(key, value, operator))
    least = 1 if operator == "in" else 0  # nothing is one of none, everything is none of them
    if not isinstance(value, list | tuple) or not least <= len(value) <= MAX_VALUES:
        sizes = f"{least}-{MAX_VALUES}"
        raise _wrong(f"{key!r:.80}: {operator} takes a list of {sizes} values, not {shown(value)}")
    return Filter(operator, key, tuple(_value(key, each, operator) for each in value))


def _value(key: str, value: object, operator: str) -> Any:
    if key in _ID_FIELDS and not isinstance(value, str):
        raise _wrong(f"{key} must be a text, not {shown(value)}")
    if key in TIME_FIELDS:
        return to_micros(value, key)  # type: ignore[arg-type]  # it refuses what is no time
    plain = value is None or isinstance(value, str | bool | int)
    if not plain and not (isinstance(value, float) and math.isfinite(value)):
        raise _wrong(f"{key!r:.80} is compared with {shown(value)}, which is no plain value")
    right = _possible(key, value, operator)
    if right:
        raise _wrong(f"{key} must be {right}, not {shown(value)}; metadata is 'metadata.{key}'")
    return value


def _possible(key: str, value: object, operator: str) -> str:
    """What would be right where a field never has such a value; "" where it may."""
    if key in _TEXTS and not isinstance(value, str):
        return "a text"
    if key == "sensitive" and not isinstance(value, bool):
        return "True or False"
    compared = operator in ("eq", "ne", "in", "nin")
    if compared and key in _NAMES and value not in _NAMES[key]:
        return f"one of {', '.join(filter(None, _NAMES[key]))}"
    return ""


def _wrong(problem: str) -> InvalidArgument:
    return InvalidArgument(f"filters: {problem}", field="filters")
