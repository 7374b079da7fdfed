"""Errors and strict JSON, whatever the protocol; needs no package of the server."""

import json
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from reprlib import repr as shortened
from typing import Any, NoReturn, get_args

import structlog
from pydantic import AliasChoices, BaseModel

from kemem.errors import (
    Internal,
    InvalidArgument,
    KeMemError,
    NotConfigured,
    StoreMoved,
    Unavailable,
    did_you_mean,
    plain_reason,
)
from kemem.serve.telemetry.seldom import seldom

NOT_FOUND = "not found"  # the same for what does not exist and for what belongs to another user

READ_ONLY = "this key is read-only"

_PROBLEMS = 4  # in one message
_JSON_WORDS = {"None": "null", "True": "true", "False": "false"}
# Of a value, not of a text in it.
_PYTHON_WORDS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\b(?:None|True|False)\b")
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
    if isinstance(error, StoreMoved):
        seldom.warn_moved(error)
        return StoreMoved("the store was moved; nothing was written")
    if isinstance(error, Unavailable) and not isinstance(error, NotConfigured):
        seldom.warn("cannot serve now", reason=error.message)  # it may name hosts and paths
        return Unavailable("temporarily unavailable; nothing was half-written")
    if isinstance(error, KeMemError) and error.code != Internal.code:
        return _in_json_words(error)
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    log.error("request failed", kind=type(error).__name__, at=places)
    return Internal("internal error")


def _in_json_words(error: KeMemError) -> KeMemError:
    """An error that names a value as JSON does.  "…, not None" -> "…, not null" """
    reason, comma, value = error.message.rpartition(", not ")
    words = _PYTHON_WORDS.sub(lambda it: _JSON_WORDS.get(it[0], it[0]), value)
    if not comma or words == value:
        return error
    shown = copy(error)
    shown.message = f"{reason}{comma}{words}"
    return shown


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


def invalid_values(problems: Sequence[Any], models: Iterable[object] = ()) -> InvalidArgument:
    """What pydantic finds wrong with the fields of models: a wrong value, or what is missing.

    Unknown fields are named beside it: they are often what is missing, misspelt.
    """
    unknown = [it for it in problems if it["type"] == "extra_forbidden"]
    missing = [it for it in problems if it["type"] == "missing"]
    wrong = [it for it in problems if it not in unknown and it not in missing]
    named = (wrong[:1] or missing) + unknown
    reasons = [_invalid(it, models) for it in named[:_PROBLEMS]]
    return InvalidArgument("; ".join(reasons), field=_path(named[0]["loc"]))


def _invalid(problem: Any, models: Iterable[object]) -> str:
    """A field and what is wrong with it."""
    field = _path(problem["loc"])
    if problem["type"] == "missing":
        return f"{field} is required"
    if problem["type"] == "extra_forbidden":
        *within, name = problem["loc"]
        advice = did_you_mean(str(name), _field_names(models, within))
        return f"{field} is not a field of this request{advice}"
    return field + plain_reason(problem, field)


def _path(place: Iterable[int | str]) -> str:
    """("messages", 0, "role") -> "messages[0].role" """
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return path.removeprefix(".")[:80]


def _field_names(annotations: Iterable[object], within: Sequence[int | str]) -> list[str]:
    """The names that the fields of models have in a request, or those of a model within them."""
    models = [it for each in annotations for it in _models(each)]
    for part in within:
        fields = (it.model_fields.get(str(part)) for it in models)
        models = [inner for it in fields if it for inner in _models(it.annotation)] or models
    names: list[str] = []
    for name, field in (it for model in models for it in model.model_fields.items()):
        also = field.validation_alias
        choices = also.choices if isinstance(also, AliasChoices) else [field.alias or name]
        names += [str(it) for it in choices]
    return names


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in an annotation, as in `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
