"""JSON-RPC over HTTP: one route for all methods, for those who run the server."""

from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.serve.http.routing import Memory, OperatorRoute, check_content_type
from kemem.serve.rpc.jsonrpc import MAX_BATCH, respond
from kemem.serve.rpc.methods import MemoryTools

_ID = {"type": ["string", "number", "null"]}
_REQUEST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "method": {"type": "string"},
        "params": {"type": ["object", "array"]},
        "id": {**_ID, "description": "Without one there is no answer."},
    },
    "required": ["jsonrpc", "method"],
}
_ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "result": {"type": "object"},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "message": {"type": "string"},
                "data": {"type": "object"},
            },
            "required": ["code", "message"],
        },
        "id": _ID,
    },
    "required": ["jsonrpc", "id"],
}


def _one_or_many(schema: dict[str, Any], **limits: int) -> dict[str, Any]:
    batch = {"type": "array", "items": schema, **limits}
    return {"content": {"application/json": {"schema": {"oneOf": [schema, batch]}}}}


router = APIRouter(route_class=OperatorRoute, tags=["operators"])


@router.post(
    "/rpc",
    response_class=Response,
    openapi_extra={
        "requestBody": {"required": True, **_one_or_many(_REQUEST, minItems=1, maxItems=MAX_BATCH)}
    },
    responses={
        200: _one_or_many(_ANSWER),
        204: {"description": "Only notifications came."},
    },
)
async def rpc(request: Request, memory: Memory) -> Response:
    """The memory tools over JSON-RPC 2.0, one request or a batch."""
    check_content_type(request.headers.get("content-type", ""))
    tools = MemoryTools(memory, memory.settings.rpc_agent)
    answer = await respond(await request.body(), tools.methods)
    if answer is None:
        return Response(status_code=204)
    return Response(answer, media_type="application/json")
