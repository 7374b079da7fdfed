"""Input from outside, read strictly, whatever the protocol."""

import json
from collections.abc import Sequence
from reprlib import repr as shortened
from typing import Any, NoReturn

from kemem.errors import InvalidArgument


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8, with finite numbers and no lone surrogates.

    Anything else is a ValueError, or, where it is nested too deeply, a RecursionError.
    """
    value = json.loads(raw.decode(), parse_constant=_refuse_constant)
    if b"\\u" in raw:  # an escape can smuggle in half a character, which is not text
        json.dumps(value, ensure_ascii=False).encode()
    return value


def parse_object(raw: bytes, name: str = "the body", **details: object) -> dict[str, Any]:
    """The JSON object in a body, or in what has another name."""
    try:
        value = parse_json(raw)
    except RecursionError:
        raise InvalidArgument(f"{name} is nested too deeply", **details) from None
    except ValueError as error:
        reason = f"{name} must be JSON in UTF-8: {_reason(error)}"
        raise InvalidArgument(reason, **details) from None
    if not isinstance(value, dict):
        reason = f"{name} must be a JSON object, not {shortened(value)}"
        raise InvalidArgument(reason, **details)
    return value


def invalid_value(problem: Any, place: Sequence[int | str]) -> InvalidArgument:
    """What pydantic finds wrong with a value, by its field."""
    field = ".".join(str(part) for part in place)[:80]
    match problem["type"]:
        case "missing":
            reason = f"{field} is required"
        case "extra_forbidden":
            reason = f"{field} is not a field of this request"
        case _:
            reason = f"{field}: {problem['msg']}, not {shortened(problem['input'])}"
    return InvalidArgument(reason, field=field)


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "an escape stands for half a character"
    return str(error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
