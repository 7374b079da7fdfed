"""JSON-RPC 2.0: the text of a request in, the text of its answer out, whatever carries them."""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from kemem.errors import InvalidArgument
from kemem.serve.http.strict import parse_json, refusal
from kemem.serve.http.told import told

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


@dataclass(frozen=True, slots=True)
class Method:
    """What can be called: the model of what it takes, and the function that does it."""

    takes: type[BaseModel]
    does: Callable[[Any], Awaitable[object]]


async def respond(raw: bytes, methods: Mapping[str, Method]) -> bytes | None:
    """The answer to a request or a batch; None where only notifications came."""
    try:
        sent = parse_json(raw)
    except (ValueError, RecursionError):
        return refused(PARSE_ERROR, "Parse error")
    if not isinstance(sent, list):
        answer = await _answer(sent, methods)
        return None if answer is None else _text(answer)
    if not sent:
        return refused(INVALID_REQUEST, "Invalid Request")
    if len(sent) > MAX_BATCH:
        reason = f"a batch has at most {MAX_BATCH} requests, not {len(sent)}"
        return refused(INVALID_REQUEST, f"Invalid Request: {reason}")
    answers = [await _answer(each, methods) for each in sent]
    given = [answer for answer in answers if answer is not None]
    return _text(given) if given else None


def refused(code: int, message: str) -> bytes:
    """The answer to what is no request, or has no id that could be read."""
    return _text(_error(code, message, None))


async def _answer(sent: Any, methods: Mapping[str, Method]) -> dict[str, Any] | None:
    """The answer to one request; a notification, which has no id, gets none."""
    asked = sent if isinstance(sent, dict) else {}
    id_ = asked.get("id") if _is_id(asked.get("id")) else None
    match asked:
        case {"jsonrpc": "2.0", "method": str(name)} if asked.get("id") == id_:
            params = asked.get("params", {})
        case _:
            params = None
    if not isinstance(params, list | dict):
        return _error(INVALID_REQUEST, "Invalid Request", id_)
    if name not in methods:
        answer = _error(METHOD_NOT_FOUND, "Method not found", id_)
    else:
        answer = await _called(methods[name], params, id_)
    return answer if "id" in asked else None


async def _called(
    method: Method, params: list[Any] | dict[str, Any], id_: object
) -> dict[str, Any]:
    try:
        result = await method.does(_checked(params, method.takes))
    except Exception as error:  # the edge: whatever a method does, the caller is answered
        shown = told(error)
        code = CODES.get(shown.code, CODES["INTERNAL"])
        message = shown.message
        if isinstance(shown, InvalidArgument):
            message = f"Invalid params: {message}"
        return _error(code, message, id_, {"code": shown.code})
    return {"jsonrpc": "2.0", "result": result, "id": id_}


def _is_id(value: object) -> bool:
    """Whether a request can be known by this: a text, a number or null."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _checked(params: list[Any] | dict[str, Any], model: type[BaseModel]) -> BaseModel:
    """Parameters, by name or in order, as the model has them."""
    names = list(model.model_fields)
    if isinstance(params, list):
        if len(params) > len(names):
            raise InvalidArgument(f"at most {len(names)} parameters, not {len(params)}")
        params = dict(zip(names, params, strict=False))
    try:
        return model.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise refusal(first, first["loc"]) from None


def _error(
    code: int, message: str, id_: object, data: Mapping[str, str] | None = None
) -> dict[str, Any]:
    reason = {"code": code, "message": message, **({"data": data} if data else {})}
    return {"jsonrpc": "2.0", "error": reason, "id": id_}


def _text(answer: object) -> bytes:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
