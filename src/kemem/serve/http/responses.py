"""Responses: JSON, and errors as {"error": {"code", "message", "details"?}}."""

import json
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kemem.errors import InvalidArgument, Unauthenticated
from kemem.serve.http.errors import public_error


def error_response(error: Exception) -> Response:
    """The response to an error."""
    if isinstance(error, ClientDisconnect):
        error = InvalidArgument("the body ended early")
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
