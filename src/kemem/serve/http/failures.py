"""Every failure in the one form of the API: {"error": {"code", "message", "details"?}}."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kemem.errors import InvalidArgument, KeMemError, NotFound, Unauthenticated
from kemem.serve.http.auth import NOTHING_HERE
from kemem.serve.http.strict import refusal
from kemem.serve.http.told import told


class Reason(BaseModel):
    """What went wrong."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Failure(BaseModel):
    """The body of every answer that is not a success."""

    error: Reason


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request is refused."},
    "5XX": {"model": Failure, "description": "The server cannot answer now."},
}


def handle_failures(app: FastAPI) -> None:
    """Give the failures of routing, validation and kemem their form."""

    async def known(request: Request, error: Exception) -> Response:
        return failure(error)

    async def unrouted(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _unrouted(request, error)

    app.add_exception_handler(KeMemError, known)
    app.add_exception_handler(RequestValidationError, known)
    app.add_exception_handler(HTTPException, unrouted)


def failure(error: Exception) -> Response:
    """The answer to a failure; one that is no fault of the caller is logged and not explained."""
    match error:
        case RequestValidationError():
            return failure(invalid(error))
        case ClientDisconnect():
            return failure(InvalidArgument("the body ended early"))
        case Unauthenticated():
            return _answer(error, {"WWW-Authenticate": "Bearer"})
        case _:
            return _answer(told(error))


def to_json(value: object) -> bytes:
    """JSON in UTF-8; what came as the escape of half a character goes back as that escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace")


def _answer(error: KeMemError, headers: Mapping[str, str] | None = None) -> Response:
    return _body(error.status, error.code, error.message, error.details, headers)


def _body(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> Response:
    reason = {"code": code, "message": message, **({"details": details} if details else {})}
    return Response(to_json({"error": reason}), status, headers, media_type="application/json")


def invalid(error: RequestValidationError) -> InvalidArgument:
    """The first thing that is wrong with a request."""
    first = error.errors()[0]
    return refusal(first, first["loc"][1:])


def _unrouted(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return failure(NotFound(NOTHING_HERE))
    if error.status_code == 405:
        described = request.app.openapi()["paths"]
        methods = described.get(request.scope["route"].path)  # the pages are not described
        allowed = _names(methods) if methods else (error.headers or {}).get("Allow", "GET")
        message = f"{request.method} is not possible here, only {allowed}"
        return _body(405, "METHOD_NOT_ALLOWED", message, {}, {"Allow": allowed})
    return failure(InvalidArgument(str(error.detail)))


def _names(methods: Mapping[str, object]) -> str:
    return ", ".join(sorted(method.upper() for method in methods))
