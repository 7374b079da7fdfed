"""What comes from outside, read strictly, whatever the protocol."""

import json
from collections.abc import Sequence
from reprlib import repr as shortened
from typing import Any, NoReturn

from kemem.errors import InvalidArgument


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8, with finite numbers and whole characters.

    Anything else is a ValueError, or, where it is nested too deeply, a RecursionError.
    """
    found = json.loads(raw.decode(), parse_constant=_refuse_constant)
    if b"\\u" in raw:  # an escape can smuggle in half a character, which is no text
        json.dumps(found, ensure_ascii=False).encode()
    return found


def refusal(problem: Any, place: Sequence[int | str]) -> InvalidArgument:
    """What pydantic finds wrong with a value, by its field."""
    field = ".".join(str(part) for part in place)[:80]
    match problem["type"]:
        case "missing":
            reason = f"{field} is missing"
        case "extra_forbidden":
            reason = f"{field} is not a field of this request"
        case _:
            reason = f"{field}: {problem['msg']}, not {shortened(problem['input'])}"
    return InvalidArgument(reason, field=field)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
