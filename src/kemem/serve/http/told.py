"""What a caller is told of a failure, whatever the protocol."""

import traceback

import structlog

from kemem.errors import Internal, KeMemError, Unavailable

log = structlog.get_logger("kemem")

_FRAMES = 8  # of a traceback: where it happened, never what it said


def told(error: Exception) -> KeMemError:
    """The error for a caller; one that is no fault of theirs is logged and not explained."""
    if isinstance(error, Unavailable):
        log.warning("cannot serve now", reason=error.message)  # it may name hosts and paths
        return Unavailable("the server cannot do this now; nothing was half-written")
    if isinstance(error, KeMemError) and error.code != Internal.code:
        return error
    log.error("request failed", kind=type(error).__name__, at=_places(error))
    return Internal("a fault of this server; it has been logged")


def _places(error: Exception) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
