"""Errors as responses: {"error": {"code", "message", "details"?}}, whatever went wrong."""

import json
import traceback
from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kemem.errors import Internal, InvalidArgument, KeMemError, Unauthenticated, Unavailable

NOT_FOUND = "not found"  # the same for what does not exist and for what belongs to another user

_FRAMES = 8  # of a traceback: where it happened, never what it said

log = structlog.get_logger("kemem")


class Reason(BaseModel):
    """What went wrong."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Failure(BaseModel):
    """The body of every answer that is not a success."""

    error: Reason


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request is refused."},
    "5XX": {"model": Failure, "description": "The server cannot answer now."},
}


def public_error(error: Exception) -> KeMemError:
    """The error for a caller, whatever the protocol; internals are logged and not disclosed."""
    if isinstance(error, ClientDisconnect):
        return InvalidArgument("the body ended early")
    if isinstance(error, Unavailable):
        log.warning("cannot serve now", reason=error.message)  # it may name hosts and paths
        return Unavailable("temporarily unavailable; nothing was half-written")
    if isinstance(error, KeMemError) and error.code != Internal.code:
        return error
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    log.error("request failed", kind=type(error).__name__, at=places)
    return Internal("internal error")


def error_response(error: Exception) -> Response:
    """The response to an error."""
    shown = public_error(error)
    challenge = {"WWW-Authenticate": "Bearer"} if isinstance(shown, Unauthenticated) else None
    return refusal(shown.status, shown.code, shown.message, shown.details, challenge)


def to_json(value: object) -> bytes:
    """JSON in UTF-8; a lone surrogate, which only an escape can bring, goes back as that escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace")


def refusal(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, object],
    headers: Mapping[str, str] | None,
) -> Response:
    """A response in the form of all errors."""
    reason = {"code": code, "message": message, **({"details": details} if details else {})}
    return Response(to_json({"error": reason}), status, headers, media_type="application/json")
