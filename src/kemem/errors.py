"""Every error a caller can meet.

KeMemError
├── InvalidArgument    400  the caller's value is wrong; the message says what would be right
├── Unauthenticated    401  no credential, or a wrong one
├── PermissionDenied   403  a right one that does not reach this far
├── NotFound           404  does not exist for this caller; a stranger's row looks the same
├── Conflict           409  it exists already, with other content
├── Exhausted          413  larger than a limit allows
├── Unavailable        503  the store or a model cannot serve now; nothing was half-written
└── Internal           500  a fault of ours
"""

from typing import ClassVar


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


class Internal(KeMemError):
    """A fault of ours."""
