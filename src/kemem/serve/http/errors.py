"""Errors as callers see them, whatever the protocol; needs no package of the server."""

import traceback
from typing import Any

import structlog
from pydantic import BaseModel

from kemem.errors import Internal, KeMemError, Unavailable

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
    if isinstance(error, Unavailable):
        log.warning("cannot serve now", reason=error.message)  # it may name hosts and paths
        return Unavailable("temporarily unavailable; nothing was half-written")
    if isinstance(error, KeMemError) and error.code != Internal.code:
        return error
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    log.error("request failed", kind=type(error).__name__, at=places)
    return Internal("internal error")
