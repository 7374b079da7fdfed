"""JSON-RPC 2.0: the bytes of a request in, those of its response out, whatever carries them."""

import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model, model_validator

from kemem.errors import InvalidArgument, KeMemError
from kemem.serve.http.errors import invalid_values, parse_json, public_error

MAX_BATCH = 100
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
CODES = {
    "INVALID_ARGUMENT": -32602,
    "PERMISSION_DENIED": -32003,
    "NOT_FOUND": -32004,
    "CONFLICT": -32009,
    "RESOURCE_EXHAUSTED": -32013,
    "UNAVAILABLE": -32050,
    "INTERNAL": -32603,
}

Method = Callable[..., Awaitable[object]]
Response = dict[str, Any]
OnCall = Callable[[str, KeMemError | None], Awaitable[None]]  # the method, and its error


class Params(BaseModel):
    """The parameters of a call, read strictly; one that is null counts as left out."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in values.items() if value is not None}


@cache
def params_model(method: Method) -> type[Params]:
    """The model of the parameters in a method's signature."""
    parameters = dict(inspect.signature(method, eval_str=True).parameters)
    parameters.pop("self", None)
    fields: dict[str, Any] = {
        name: (each.annotation, ... if each.default is each.empty else each.default)
        for name, each in parameters.items()
    }
    return create_model(method.__name__, __base__=Params, **fields)


async def respond(
    raw: bytes, methods: Mapping[str, Method], on_call: OnCall | None = None
) -> bytes | None:
    """The response to a request or a batch; None where only notifications came.

    `on_call` hears of each call of a method when it has ended.
    """
    try:
        message = parse_json(raw)
    except (ValueError, RecursionError):
        return error_response(PARSE_ERROR, "Parse error")
    if not isinstance(message, list):
        response = await _respond(message, methods, on_call)
        return None if response is None else _dump(response)
    if not message:
        return error_response(INVALID_REQUEST, "Invalid Request")
    if len(message) > MAX_BATCH:
        reason = f"a batch has at most {MAX_BATCH} requests, not {len(message)}"
        return error_response(INVALID_REQUEST, f"Invalid Request: {reason}")
    responses = [await _respond(each, methods, on_call) for each in message]
    responses = [response for response in responses if response is not None]
    return _dump(responses) if responses else None


def error_response(code: int, message: str) -> bytes:
    """The response to a request whose id could not be read."""
    return _dump(_error(code, message, None))


async def _respond(
    message: Any, methods: Mapping[str, Method], on_call: OnCall | None
) -> Response | None:
    """The response to one request; a notification, which has no id, gets none."""
    request = message if isinstance(message, dict) else {}
    id_, params = request.get("id"), request.get("params", {})
    name, version = request.get("method"), request.get("jsonrpc")
    if not _is_id(id_):
        return _error(INVALID_REQUEST, "Invalid Request", None)
    if version != "2.0" or not isinstance(name, str) or not isinstance(params, list | dict):
        return _error(INVALID_REQUEST, "Invalid Request", id_)
    if name not in methods:
        response = _error(METHOD_NOT_FOUND, f"Method not found: {name!r:.80}", id_)
    else:
        error = None
        try:
            result = await methods[name](**_arguments(methods[name], params))
            response = {"jsonrpc": "2.0", "result": result, "id": id_}
        except Exception as failure:  # the edge: whatever a method does, the caller is answered
            error = public_error(failure)
            prefix = "Invalid params: " if isinstance(error, InvalidArgument) else ""
            code = CODES.get(error.code, CODES["INTERNAL"])
            response = _error(code, f"{prefix}{error.message}", id_, {"code": error.code})
        if on_call is not None:
            await on_call(name, error)
    return response if "id" in request else None


def _is_id(value: object) -> bool:
    """Whether the specification allows this id: a string, a finite number or null."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _arguments(method: Method, params: list[Any] | dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, whose parameters go by name or by position."""
    model = params_model(getattr(method, "__func__", method))  # all instances share one
    names = list(model.model_fields)
    if isinstance(params, list):
        if len(params) > len(names):
            raise InvalidArgument(f"at most {len(names)} parameters, not {len(params)}")
        params = dict(zip(names, params, strict=False))
    try:
        return dict(model.model_validate(params))
    except ValidationError as error:
        raise invalid_values(error.errors(include_url=False), [model]) from None


def _error(code: int, message: str, id_: object, data: Mapping[str, str] | None = None) -> Response:
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    return {"jsonrpc": "2.0", "error": error, "id": id_}


def _dump(response: object) -> bytes:
    return json.dumps(response, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
