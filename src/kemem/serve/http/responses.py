"""Responses: JSON, and errors as {"error": {"code", "message", "details"?}}."""

import json
from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kemem.errors import InvalidArgument, NotFound, Unauthenticated
from kemem.serve.http.errors import NOT_FOUND, public_error
from kemem.serve.http.strict import invalid_value


def to_json(value: object) -> bytes:
    """JSON in UTF-8; a lone surrogate, which only an escape can bring, goes back as that escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace")


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, headers, media_type="application/json")


def error_response(error: Exception) -> Response:
    """The response to an error, of FastAPI's too."""
    match error:
        case ClientDisconnect():
            error = InvalidArgument("the body ended early")
        case RequestValidationError():
            error = invalid_request(error)
        case HTTPException(status_code=404):
            error = NotFound(NOT_FOUND)
        case HTTPException():
            error = InvalidArgument(str(error.detail))
    shown = public_error(error)
    reason = {"code": shown.code, "message": shown.message}
    body = {"error": {**reason, **({"details": shown.details} if shown.details else {})}}
    challenge = {"WWW-Authenticate": "Bearer"} if isinstance(shown, Unauthenticated) else None
    return json_response(body, shown.status, challenge)


def invalid_request(error: RequestValidationError) -> InvalidArgument:
    """The first thing that is wrong with a request."""
    first = error.errors()[0]
    return invalid_value(first, first["loc"][1:])
