"""Routes for those who run the server: directory, jobs, state, JSON-RPC and the API's own page."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Query, Request, Response
from jinja2 import Environment, Template
from prometheus_client import CONTENT_TYPE_LATEST
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.errors import Unavailable
from kemem.records import Entry, Page
from kemem.records.batch import Job
from kemem.serve.http.routing import GuardedRoute, Memory, OperatorRoute, check_content_type
from kemem.serve.http.schemas import Id, Items, PageQuery, PathId, QueryString, Size
from kemem.serve.rpc.jsonrpc import MAX_BATCH, respond
from kemem.serve.rpc.methods import MemoryTools
from kemem.serve.telemetry.prometheus import report

_NOTHING_LOADED = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}

log = structlog.get_logger("kemem")

router = APIRouter(route_class=OperatorRoute, tags=["operators"])
probes = APIRouter(route_class=GuardedRoute, tags=["operators"])  # they need no credential


class UsersQuery(PageQuery):
    """The query string of a list of users."""

    agent_id: Id | None = None


class JobsQuery(QueryString):
    """The query string of a list of jobs."""

    limit: Size = 100


class JobsRun(TypedDict):
    """How many steps were done."""

    done: int


class Status(TypedDict):
    """The state of the server in one word."""

    status: Literal["alive", "ready"]


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def _one_or_many(schema: dict[str, Any], **limits: int) -> dict[str, Any]:
    batch = {"type": "array", "items": schema, **limits}
    return {"content": {"application/json": {"schema": {"oneOf": [schema, batch]}}}}


_VERSION = {"const": "2.0"}
_RPC_ID = {"type": ["string", "number", "null"]}
_RPC_REQUEST = _object(
    "jsonrpc",
    "method",
    jsonrpc=_VERSION,
    method={"type": "string"},
    params={"type": ["object", "array"]},
    id={**_RPC_ID, "description": "Without one there is no answer."},
)
_RPC_ERROR = _object(
    "code",
    "message",
    code={"type": "integer"},
    message={"type": "string"},
    data={"type": "object"},
)
_RPC_ANSWER = _object(
    "jsonrpc", "id", jsonrpc=_VERSION, result={"type": "object"}, error=_RPC_ERROR, id=_RPC_ID
)
_RPC_BODY = {"required": True, **_one_or_many(_RPC_REQUEST, minItems=1, maxItems=MAX_BATCH)}
_RPC_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: _one_or_many(_RPC_ANSWER),
    204: {"description": "Only notifications came."},
}


@router.post(
    "/rpc",
    response_class=Response,
    openapi_extra={"requestBody": _RPC_BODY},
    responses=_RPC_RESPONSES,
)
async def rpc(request: Request, memory: Memory) -> Response:
    """The memory tools over JSON-RPC 2.0, one request or a batch."""
    check_content_type(request.headers.get("content-type", ""))
    tools = MemoryTools(memory, memory.settings.rpc_agent)
    answer = await respond(await request.body(), tools.methods)
    if answer is None:
        return Response(status_code=204)
    return Response(answer, media_type="application/json")


@router.get("/v1/agents")
async def list_agents(query: Annotated[PageQuery, Query()], memory: Memory) -> Page[Entry]:
    """Every agent, in the order of their ids."""
    return await memory.agents(**query.arguments())


@router.get("/v1/users")
async def list_users(query: Annotated[UsersQuery, Query()], memory: Memory) -> Page[Entry]:
    """Every user, or those of an agent, in the order of their ids."""
    return await memory.users(**query.arguments())


@router.get("/v1/jobs")
async def list_jobs(query: Annotated[JobsQuery, Query()], memory: Memory) -> Items[Job]:
    """Work that waits or has failed."""
    return Items(items=await memory.jobs(**query.arguments()))


@router.post("/v1/jobs/run")
async def run_jobs(memory: Memory) -> JobsRun:
    """Do the work that is due now."""
    return JobsRun(done=await memory.run_jobs())


@router.post("/v1/jobs/{job_id}/retry")
async def retry_job(job_id: PathId, memory: Memory) -> Job:
    """Let a job that was given up be tried again."""
    return await memory.retry_job(job_id)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counts and times in the text format of Prometheus."""
    text = await report(request.app.state.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """This API, described for programs."""
    described: dict[str, Any] = request.app.openapi()
    return described


@router.get("/docs", response_class=Response, responses={200: {"content": {"text/html": {}}}})
async def docs(request: Request) -> Response:
    """This API, described for people."""
    described = request.app.openapi()
    names = partial(_input_names, schemas=described["components"]["schemas"])
    page = _docs_template().render(openapi=described, input_names=names)
    return Response(page, media_type="text/html", headers=_NOTHING_LOADED)


@cache
def _docs_template() -> Template:
    source = Path(__file__).with_name("docs.html").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True).from_string(source)


def _input_names(operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """The names of what an operation takes; optional ones end in "?"."""
    for parameter in operation.get("parameters", []):
        yield parameter["name"] + ("" if parameter["required"] else "?")
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content:
        schema = content["schema"]
        one = schema.get("oneOf", [schema])[0]  # of what may also come as a list
        body = schemas[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        for name in body["properties"]:
            yield name + ("" if name in body.get("required", ()) else "?")


@probes.get("/healthz")
async def healthz() -> Status:
    """Whether the process lives; the store is not asked."""
    return Status(status="alive")


@probes.get("/readyz")
async def readyz(memory: Memory) -> Status:
    """Whether the store answers."""
    try:
        await memory.jobs(limit=1)  # a small read; counting all rows is for /metrics
    except Exception as error:  # whatever keeps the store from answering, requests must wait
        log.warning("store does not answer", kind=type(error).__name__)
        raise Unavailable("the store does not answer") from None
    return Status(status="ready")
