"""Every error a caller can meet.

KeMemError
├── InvalidArgument    400  the caller's value is wrong; the message says what would be right
├── Unauthenticated    401  no credential, or a wrong one
├── PermissionDenied   403  a right one that does not reach this far
├── NotFound           404  does not exist for this caller; a stranger's row looks the same
├── Conflict           409  it exists already, with other content
├── Exhausted          413  larger than a limit allows
├── Unavailable        503  the store or a model cannot serve now; nothing was half-written
│   ├── NotConfigured  501  a model is missing or refuses its key; the message names the setting
│   └── StoreMoved     503  the store is somewhere else now; no waiting helps
└── Internal           500  a fault of ours
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

_PLAIN = {  # pydantic's kinds of errors
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    "string_type": "must be a text",
    "list_type": "must be a list",
    "path_type": "must be a path",
    "json_invalid": "must be JSON ({error})",
    "literal_error": "must be {expected}",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
}
_MOST_NAMES = 25  # that are listed in a message
_SECRET = re.compile(r"(?:key|secret|password|token)$", re.IGNORECASE)  # fields never shown


class KeMemError(Exception):
    """A failure with a stable code, a message for people and details for programs."""

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidArgument(KeMemError, ValueError):
    """The caller's value is wrong."""

    code = "INVALID_ARGUMENT"
    status = 400


class Unauthenticated(KeMemError):
    """No credential, or a wrong one."""

    code = "UNAUTHENTICATED"
    status = 401


class PermissionDenied(KeMemError):
    """A valid credential that does not reach this far."""

    code = "PERMISSION_DENIED"
    status = 403


class NotFound(KeMemError, LookupError):
    """Nothing of that name exists for this caller."""

    code = "NOT_FOUND"
    status = 404


class Conflict(KeMemError):
    """It exists already, with other content."""

    code = "CONFLICT"
    status = 409


class Exhausted(KeMemError):
    """Larger than a limit allows."""

    code = "RESOURCE_EXHAUSTED"
    status = 413


class Unavailable(KeMemError):
    """The store or a model cannot serve now."""

    code = "UNAVAILABLE"
    status = 503


class NotConfigured(Unavailable):
    """What the call needs is not set, or set wrongly; the message names the setting."""

    status = 501


class StoreMoved(Unavailable):
    """The store was moved and takes no more writes; `details["place"]` says where it is."""


class Internal(KeMemError):
    """A fault of ours."""


def plain_reason(problem: Any, field: str = "") -> str:
    """What pydantic finds wrong with a value, and the value, as both follow the name of the field.

    -> " must be at least 1, not 0"
    """
    reason = _reason(problem)
    if "input" not in problem or ", not " in reason or _SECRET.search(field):
        return reason
    return f"{reason}, not {shortened(problem['input'])}"


def _reason(problem: Any) -> str:
    kind, context = problem["type"], problem.get("ctx") or {}
    if context.get("field_type") == "Value":  # a secret, which is a text
        kind = "string_too_short"
    if plain := _PLAIN.get(kind):
        text = plain.format(**context)
        return f" {text.removesuffix('s') if context.get('min_length') == 1 else text}"
    reason = problem["msg"].removeprefix("Value error, ")
    return f" {reason}" if reason.startswith("must ") else f": {reason}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What a misspelt name may stand for; else the names that would be right, unless too many.

    "limt", ["limit", "query"] -> " (did you mean 'limit'?)"
    """
    names = list(known)
    if close := get_close_matches(name.lower(), names, 1):
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(names)})" if 0 < len(names) <= _MOST_NAMES else ""


def shown_address(url: str) -> str:
    """Where a URL leads, without its secrets.  "http://key@host/v1?k=1" -> "http://host/v1" """
    try:
        scheme, place, path, *_ = urlsplit(url)
    except ValueError:
        return "***"
    return urlunsplit((scheme, place.rpartition("@")[2], path, "", "")) if place else "***"
