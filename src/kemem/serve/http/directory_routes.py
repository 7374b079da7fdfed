"""Agents, users and jobs over HTTP: for those who run the server."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from kemem.serve.http.guarded import Memory, OperatorRoute
from kemem.serve.http.schemas import ID_LIMITS
from kemem.serve.http.session_schemas import (
    Directory,
    JobItem,
    Jobs,
    JobsQuery,
    PageQuery,
    UsersQuery,
    Worked,
    directory_of,
    job_item,
)

JobId = Annotated[str, Path(json_schema_extra=ID_LIMITS)]

router = APIRouter(route_class=OperatorRoute, tags=["operators"])


@router.get("/v1/agents")
async def list_agents(asked: Annotated[PageQuery, Query()], memory: Memory) -> Directory:
    """Every agent, in the order of their ids."""
    return directory_of(await memory.agents(limit=asked.limit, cursor=asked.cursor))


@router.get("/v1/users")
async def list_users(asked: Annotated[UsersQuery, Query()], memory: Memory) -> Directory:
    """Every user, or those of an agent, in the order of their ids."""
    return directory_of(await memory.users(asked.agent_id, limit=asked.limit, cursor=asked.cursor))


@router.get("/v1/jobs")
async def list_jobs(asked: Annotated[JobsQuery, Query()], memory: Memory) -> Jobs:
    """Work that waits or has failed."""
    return Jobs(items=[job_item(job) for job in await memory.jobs(asked.limit)])


@router.post("/v1/jobs/run")
async def run_jobs(memory: Memory) -> Worked:
    """Do the work that is due now."""
    return Worked(done=await memory.run_jobs())


@router.post("/v1/jobs/{job_id}/retry")
async def retry_job(job_id: JobId, memory: Memory) -> JobItem:
    """Let a job that was given up be tried again."""
    return job_item(await memory.retry_job(job_id))
