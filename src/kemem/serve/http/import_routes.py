"""Imports over HTTP: a file is uploaded, a job takes it in, and its progress can be asked for."""

from email.message import Message as MimeHeader
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from kemem.errors import InvalidArgument
from kemem.imports.recipe import Target
from kemem.imports.service import AsyncImports, ImportState
from kemem.serve.http.routing import GuardedRoute
from kemem.serve.http.schemas import Id, Items, PathId, QueryString

PATH = "/v1/import"
# What a web page of another site could send without a CORS preflight.
_SIMPLE = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded")

router = APIRouter(route_class=GuardedRoute, tags=["imports"])


class ImportQuery(QueryString):
    name: Annotated[
        str, Field(description="The name of the file; its extension identifies CSV and Markdown.")
    ]
    user_id: Annotated[Id | None, Field(description="The user for data that names none.")] = None
    agent_id: Id = "default"
    session_id: Id = "default"
    infer: Annotated[bool, Field(description="Extract facts from messages.")] = False


class ImportsQuery(QueryString):
    user_id: Id | None = None


_FILE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_BODY = {"required": True, "content": {"application/octet-stream": _FILE}}


@router.post(PATH, openapi_extra={"requestBody": _BODY})
async def import_file(query: Annotated[ImportQuery, Query()], request: Request) -> ImportState:
    """Import the file in the body: a job reads it and reports its progress."""
    _check_content_type(request.headers.get("content-type", ""))
    is_bound = request.state.caller.user_id is not None
    ids = (query.user_id, query.agent_id, query.session_id)
    target = Target(*ids, infer=query.infer, is_bound=is_bound)
    state = await imports_of(request).upload(query.name, request.stream(), target)
    request.app.state.wake_worker()
    return state


@router.get(PATH)
async def list_imports(
    query: Annotated[ImportsQuery, Query()], request: Request
) -> Items[ImportState]:
    """The imports of all users or of one, newest first."""
    return Items(items=await imports_of(request).states(query.user_id))


@router.get(PATH + "/{job_id}")
async def read_import(
    job_id: PathId, query: Annotated[ImportsQuery, Query()], request: Request
) -> ImportState:
    """The progress of an import, and what it stored."""
    return await imports_of(request).state(job_id, query.user_id)


def imports_of(request: Request) -> AsyncImports:
    """The imports of this server; what a caller who is bound to a user may import is checked by
    the target. A file may name any agent, so that a key of one agent imports nothing.
    """
    request.state.caller.check_any_agent()
    imports: AsyncImports = request.app.state.memory.imports
    return imports


def _check_content_type(header: str) -> None:
    mime = MimeHeader()
    mime["content-type"] = header
    if not header or mime.get_content_type() in _SIMPLE:
        reason = f"content-type must be application/octet-stream, not {header!r:.80}"
        raise InvalidArgument(reason, field="content-type")
