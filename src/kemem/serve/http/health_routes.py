"""Routes for whatever watches the process; they need no credential and tell nothing else."""

from typing import Literal

import structlog
from fastapi import APIRouter
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.errors import Unavailable
from kemem.serve.http.guarded import GuardedRoute, Memory

log = structlog.get_logger("kemem")

router = APIRouter(route_class=GuardedRoute, tags=["operators"])


class Status(TypedDict):
    """The state of the server in one word."""

    status: Literal["alive", "ready"]


@router.get("/healthz")
async def healthz() -> Status:
    """Whether the process lives; the store is not asked."""
    return Status(status="alive")


@router.get("/readyz")
async def readyz(memory: Memory) -> Status:
    """Whether the store answers."""
    try:
        await memory.jobs(limit=1)  # a small read; counting all rows is for /metrics
    except Exception as error:  # whatever keeps the store from answering, requests must wait
        log.warning("store does not answer", kind=type(error).__name__)
        raise Unavailable("the store does not answer") from None
    return Status(status="ready")
