"""Errors and strict JSON, whatever the protocol; needs no package of the server."""

import json
import traceback
from collections.abc import Sequence
from reprlib import repr as shortened
from typing import Any, NoReturn

import structlog
from pydantic import BaseModel

from kemem.errors import (
    Internal,
    InvalidArgument,
    KeMemError,
    NotConfigured,
    Unavailable,
    plain_reason,
)

NOT_FOUND = "not found"  # the same for what does not exist and for what belongs to another user

READ_ONLY = "this key is read-only"

_FRAMES = 8  # of a traceback: where it happened, never what it said

log = structlog.get_logger("kemem")


class Reason(BaseModel):
    """The error."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Failure(BaseModel):
    """The body of every error response."""

    error: Reason


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request is rejected."},
    "5XX": {"model": Failure, "description": "The server is unavailable."},
}


def public_error(error: Exception) -> KeMemError:
    """The error for a caller, whatever the protocol; internals are logged and not disclosed."""
    if isinstance(error, Unavailable) and not isinstance(error, NotConfigured):
        log.warning("cannot serve now", reason=error.message)  # it may name hosts and paths
        return Unavailable("temporarily unavailable; nothing was half-written")
    if isinstance(error, KeMemError) and error.code != Internal.code:
        return error
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    log.error("request failed", kind=type(error).__name__, at=places)
    return Internal("internal error")


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8, with finite numbers and no lone surrogates.

    Anything else is a ValueError, or, where it is nested too deeply, a RecursionError.
    """
    value = json.loads(raw.decode(), parse_constant=_refuse_constant)
    if b"\\u" in raw:  # an escape can smuggle in half a character, which is not text
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def parse_object(raw: bytes, name: str = "the body", **details: object) -> dict[str, Any]:
    """The JSON object in a body, or in what has another name."""
    if not raw.strip():
        raise InvalidArgument(f"{name} is empty; it must be a JSON object", **details)
    try:
        value = parse_json(raw)
    except RecursionError:
        raise InvalidArgument(f"{name} is nested too deeply", **details) from None
    except ValueError as error:
        reason = str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = f"byte {error.start} is not UTF-8"
        elif isinstance(error, UnicodeEncodeError):
            reason = "an escape stands for half a character"
        raise InvalidArgument(f"{name} must be JSON in UTF-8: {reason}", **details) from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} must be a JSON object, not {shortened(value)}", **details)
    return value


def invalid_value(problem: Any, place: Sequence[int | str]) -> InvalidArgument:
    """What pydantic finds wrong with a value, by its field."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    field = path.removeprefix(".")[:80]
    reasons = {"missing": "is required", "extra_forbidden": "is not a field of this request"}
    if short := reasons.get(problem["type"]):
        return InvalidArgument(f"{field} {short}", field=field)
    reason = f"{field}{plain_reason(problem)}, not {shortened(problem['input'])}"
    return InvalidArgument(reason, field=field)
