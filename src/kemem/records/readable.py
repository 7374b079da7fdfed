"""Records as people read them in a terminal: short, with times as text."""

from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, NamedTuple, get_args

from pydantic import PlainSerializer
from pydantic.fields import FieldInfo

from kemem.records.times import to_rfc3339

_TEXT = 100  # characters of a text
_ITEMS = 20  # of a list, each on a line of its own
_IDS = 3  # of a list within a record


class _Shown(NamedTuple):
    name: str
    default: Any
    is_time: bool


def readable(record: Any) -> str:
    """A record without what is internal or as it is by default.  -> "Deletion(deleted=1)" """
    kind: Any = type(record)
    parts = []
    for name, default, is_time in _shown_fields(kind):
        value = getattr(record, name)
        if value != default:
            text = f"'{to_rfc3339(value)}'" if is_time and value is not None else short(value)
            parts.append(f"{name}={text}")
    return f"{kind.__name__}({', '.join(parts)})"


def readable_list(name: str, items: tuple[Any, ...], **others: Any) -> str:
    """A list of records, one on each line.  -> "Page([])" """
    lines = [f"\n    {item!r}," for item in items[:_ITEMS]]
    if len(items) > _ITEMS:
        lines.append(f"\n    … {len(items) - _ITEMS} more,")
    shown = "".join(lines) + ("\n" if lines else "")
    rest = "".join(f", {key}={short(value)}" for key, value in others.items() if value)
    return f"{name}([{shown}]{rest})"


def short(value: Any) -> str:
    """A value as code, with its end cut off where it is long.  -> "('m_1', 'm_2', … 5 more)" """
    if isinstance(value, str) and len(value) > _TEXT:
        return repr(value[: _TEXT - 1] + "…")
    if isinstance(value, tuple) and len(value) > _IDS:
        return f"({', '.join(map(short, value[:_IDS]))}, … {len(value) - _IDS} more)"
    if isinstance(value, tuple):
        return f"({', '.join(map(short, value))}{',' if len(value) == 1 else ''})"
    shown = repr(value)
    return shown if len(shown) <= _TEXT or not isinstance(value, dict) else f"{shown[:_TEXT]}…"


@cache
def _shown_fields(kind: Any) -> list[_Shown]:
    found = []
    for each in fields(kind):
        marks = list(_marks(each.type))
        is_hidden = any(isinstance(it, FieldInfo) and it.exclude for it in marks)
        if each.repr and not is_hidden:
            is_time = any(isinstance(it, PlainSerializer) and it.func is to_rfc3339 for it in marks)
            found.append(_Shown(each.name, _default(each), is_time))
    return found


def _marks(annotation: Any) -> list[Any]:
    """What an annotation says, however deep: types, and the marks of `Annotated`."""
    return [it for each in get_args(annotation) for it in (each, *_marks(each))]


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default  # of a field that must be given: MISSING, which no value equals
