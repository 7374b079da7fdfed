"""Routes for those who run the server: directory, jobs, state, JSON-RPC and the API's own page."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from jinja2 import Environment, Template
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field, create_model
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.errors import KeMemError, StoreMoved, Unavailable
from kemem.records import Entry, Page
from kemem.records.batch import MAX_NAME, MAX_TYPE, Job
from kemem.serve.dashboard.page import SWAGGER_FILES, has_all, static_url
from kemem.serve.http.routing import GuardedRoute, Memory, OperatorRoute, check_content_type
from kemem.serve.http.schemas import (
    Id,
    Items,
    LimitQuery,
    OwnerIds,
    PageQuery,
    PathId,
    StrictModel,
    described,
    limited,
)
from kemem.serve.rpc.jsonrpc import MAX_BATCH, respond
from kemem.serve.rpc.methods import READING, MemoryTools, reading_only
from kemem.serve.telemetry.prometheus import check_store, report
from kemem.serve.telemetry.seldom import seldom

_NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'"
_OWN_FILES = (  # Swagger UI has pictures in its styles
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(route_class=OperatorRoute, tags=["operators"])
probes = APIRouter(route_class=GuardedRoute, tags=["operators"])  # they need no credential


class UsersQuery(PageQuery):
    agent_id: Id | None = None


class ConfigureRequest(StrictModel):
    """The changes; an empty name or type removes it, `config` replaces the previous one."""

    name: Annotated[str, limited(maxLength=MAX_NAME)] | None = None
    type: Annotated[str, limited(maxLength=MAX_TYPE)] | None = None
    config: dict[str, Any] | None = None
    disabled: Annotated[
        bool | None, Field(description="Disabled: nothing new is stored, and nothing is returned.")
    ] = None


class ConfigureSessionRequest(ConfigureRequest, OwnerIds):
    """The changes, and the owner of the session if several sessions have this id."""


JobsRun = create_model("JobsRun", __doc__="The number of steps that ran.", done=int)


class Status(TypedDict):
    """The state of the server in one word."""

    status: Literal["alive", "ready"]


def _rpc_schema(name: str, **limits: int) -> dict[str, Any]:
    """A request or response of JSON-RPC, or a batch of them, as OpenAPI describes content."""
    schema = described("rpc")[name]
    batch = {"type": "array", "items": schema, **limits}
    return {"content": {"application/json": {"schema": {"oneOf": [schema, batch]}}}}


_RPC_BODY = {"required": True, **_rpc_schema("request", minItems=1, maxItems=MAX_BATCH)}


@router.post(
    "/rpc",
    response_class=Response,
    openapi_extra={"requestBody": _RPC_BODY},
    responses={
        200: _rpc_schema("response"),
        204: {"description": "The request contains only notifications."},
    },
)
async def rpc(request: Request, memory: Memory) -> Response:
    """The memory tools over JSON-RPC 2.0, one request or a batch."""
    check_content_type(request.headers.get("content-type", ""))
    tools = MemoryTools(memory, memory.settings.rpc_agent)
    methods = reading_only(tools.methods) if request.state.caller.read_only else tools.methods

    async def record(method: str, error: KeMemError | None) -> None:
        audit, writes = request.app.state.audit, method not in READING
        await audit.call(request.scope, "rpc", method, writes, error)

    answer = await respond(await request.body(), methods, record)
    if answer is None:
        return Response(status_code=204)
    return Response(answer, media_type="application/json")


@router.get("/v1/agents")
async def list_agents(query: Annotated[PageQuery, Query()], memory: Memory) -> Page[Entry]:
    """All agents, ordered by id."""
    return await memory.agents(**query.arguments())


@router.get("/v1/users")
async def list_users(query: Annotated[UsersQuery, Query()], memory: Memory) -> Page[Entry]:
    """All users, or those of an agent, ordered by id."""
    return await memory.users(**query.arguments())


@router.patch("/v1/agents/{agent_id}")
async def configure_agent(agent_id: PathId, body: ConfigureRequest, memory: Memory) -> Entry:
    """Name, type, configure, disable or enable an agent."""
    return await memory.configure("agent", agent_id, **body.arguments())


@router.patch("/v1/users/{user_id}")
async def configure_user(user_id: PathId, body: ConfigureRequest, memory: Memory) -> Entry:
    """Name, type, configure, disable or enable a user."""
    return await memory.configure("user", user_id, **body.arguments())


@router.patch("/v1/sessions/{session_id}")
async def configure_session(
    session_id: PathId, body: ConfigureSessionRequest, memory: Memory
) -> Entry:
    """Name, type, configure, disable or enable a session."""
    return await memory.configure("session", session_id, **body.arguments())


@router.get("/v1/jobs")
async def list_jobs(query: Annotated[LimitQuery, Query()], memory: Memory) -> Items[Job]:
    """Pending and failed jobs."""
    return Items(items=await memory.jobs(**query.arguments()))


@router.post("/v1/jobs/run", response_model=JobsRun)
async def run_jobs(memory: Memory) -> object:
    """Run the jobs that are due now."""
    return {"done": await memory.run_jobs()}


@router.post("/v1/jobs/{job_id}/retry")
async def retry_job(job_id: PathId, memory: Memory) -> Job:
    """Retry a failed job."""
    return await memory.retry_job(job_id)


_METRICS = {"text/plain": {"example": "kemem_requests_total 1"}}
_PAGE = {"text/html": {"example": "<!doctype html>"}}


@router.get("/metrics", response_class=Response, responses={200: {"content": _METRICS}})
async def metrics(request: Request) -> Response:
    """Counts and times in the text format of Prometheus."""
    text = await report(request.app.state.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@probes.get("/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """The OpenAPI document."""
    described: dict[str, Any] = request.app.openapi()
    return described


@probes.get("/docs", response_class=Response, responses={200: {"content": _PAGE}})
async def docs(request: Request) -> Response:
    """This API in Swagger UI, where you can try it; a plain list without npm."""
    has_swagger = has_all(request.app.state.vendor, SWAGGER_FILES)
    template = _docs_template("swagger.html" if has_swagger else "docs.html")
    page = template.render(openapi=request.app.openapi(), static=static_url)
    policy = {"Content-Security-Policy": _OWN_FILES if has_swagger else _NOTHING_LOADED}
    return Response(page, media_type="text/html", headers=policy)


@cache
def _docs_template(name: str) -> Template:
    source = Path(__file__).with_name(name).read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True).from_string(source)


@probes.get("/healthz")
async def healthz() -> Status:
    """Whether the process is alive; this does not query the store."""
    return Status(status="alive")


@probes.get("/readyz")
async def readyz(request: Request) -> Status:
    """Whether the store answers and was not moved, and those of all projects."""
    state = request.app.state
    memories = [state.memory, *(it.state.memory for it in state.projects.values())]
    try:  # a small read; counting all rows is for /metrics
        await asyncio.gather(*map(check_store, memories))
    except StoreMoved:
        raise
    except Exception as error:  # whatever keeps the store from answering, requests must wait
        seldom.warn("store does not answer", kind=type(error).__name__)
        raise Unavailable("the store does not answer") from None
    return Status(status="ready")
