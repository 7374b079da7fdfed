"""Routes for those who run the server: its directory, its jobs, its state and its API's page."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from jinja2 import Environment
from prometheus_client import CONTENT_TYPE_LATEST
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.errors import Unavailable
from kemem.records import Entry, Page
from kemem.records.batch import Job
from kemem.serve.http.requests import ID_LIMITS, Id, Items, PageQuery, QueryString, Size
from kemem.serve.http.routing import GuardedRoute, Memory, OperatorRoute
from kemem.serve.telemetry.prometheus import report

_NOTHING_LOADED = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_DOCS = Path(__file__).with_name("docs.html")

JobId = Annotated[str, InPath(json_schema_extra=ID_LIMITS)]

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
async def retry_job(job_id: JobId, memory: Memory) -> Job:
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
    page = _docs_page(request.app.openapi())
    return Response(page, media_type="text/html", headers=_NOTHING_LOADED)


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


def _docs_page(openapi: dict[str, Any]) -> str:
    """The operations of an OpenAPI description as HTML."""
    template = Environment(autoescape=True, trim_blocks=True).from_string(_DOCS.read_text("utf-8"))
    names = partial(_input_names, schemas=openapi["components"]["schemas"])
    return template.render(openapi=openapi, input_names=names)


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
