"""Values of any kind as JSON that every store can keep."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from kemem.records import Message

MAX_DEPTH = 24
MAX_VALUES = 20_000
_CUT = "…"


def dumped(value: object) -> str:
    """A value as the text of its JSON."""
    return json.dumps(jsonable(value), ensure_ascii=False)


def jsonable(value: object) -> Any:
    """A value as JSON; what JSON does not have becomes a text, what is too deep or too long "…"."""
    return _jsonable(value, MAX_DEPTH, [MAX_VALUES])


def _jsonable(value: object, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        return _CUT
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else _CUT
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes, sha256 {sha256(value).hexdigest()}>"
    if isinstance(value, date):
        return value.isoformat()
    return _container(value, depth, left)


def _container(value: object, depth: int, left: list[int]) -> Any:
    if not depth:
        return _CUT
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)[: left[0] + 1]
        return [_jsonable(item, depth - 1, left) for item in items]
    found = to_fields(value)
    if found is None:
        return f"<{type(value).__name__}>"
    pairs = list(found.items())[: left[0] + 1]
    return {_jsonable(str(k), 1, left): _jsonable(v, depth - 1, left) for k, v in pairs}


def to_fields(item: object) -> Mapping[str, Any] | None:
    """The fields of a dict or an object of a client library; None for what has none."""
    if item is None:
        return None
    if isinstance(item, Mapping):
        return item
    if isinstance(item, Message):
        return item.to_dict()
    if isinstance(item, BaseModel):
        return dict(item)
    if is_dataclass(item) and not isinstance(item, type):
        return {it.name: getattr(item, it.name) for it in fields(item)}
    return None
