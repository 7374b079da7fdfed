"""API keys over HTTP, for operators: made, listed and revoked."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from kemem.errors import InvalidArgument, NotFound
from kemem.keys import MAX_DAYS, MAX_NAME, AsyncKeys
from kemem.memory import AsyncMemory
from kemem.records.keys import ApiKey, Role
from kemem.serve.http import schemas
from kemem.serve.http.errors import NOT_FOUND
from kemem.serve.http.routing import OperatorRoute
from kemem.serve.http.schemas import Id, Items, PathId, StrictModel, limited
from kemem.settings import unknown_project

router = APIRouter(route_class=OperatorRoute, tags=["keys"])


class KeyRequest(StrictModel):
    """A key to create."""

    name: Annotated[str, limited(pattern=r"\S", maxLength=MAX_NAME)]
    role: Annotated[
        Role, Field(description="admin: everything; service: all users; user: one user.")
    ]
    agent_id: Annotated[Id | None, Field(description="The only agent that it can access.")] = None
    user_id: Annotated[Id | None, Field(description="The user of a key with the role user.")] = None
    read_only: bool = False
    sensitive: Annotated[
        bool, Field(description="Give a key with the role `user` access to sensitive memories.")
    ] = False
    expires_at: schemas.Time | None = None
    days: Annotated[int, limited(minimum=1, maximum=MAX_DAYS)] | None = None
    project: Annotated[
        str | None, Field(description="The project that it reaches, if not the default memory.")
    ] = None


@dataclass(frozen=True, slots=True)
class NewKey(ApiKey):
    """A new key; `key` is its text, which is shown only once."""

    key: str = ""


@router.post("/v1/keys")
async def create_key(body: KeyRequest, request: Request) -> NewKey:
    """Create an API key. Only this response contains it; the store keeps a digest."""
    request.state.shown_once = True
    fields = body.arguments()
    fields["project"] = project_of(request, fields["project"])
    key, text = await _keys(request).create(expires=fields.pop("expires_at"), **fields)
    return NewKey(**{it: getattr(key, it) for it in ApiKey.__dataclass_fields__}, key=text)


@router.get("/v1/keys")
async def list_keys(request: Request) -> Items[ApiKey]:
    """All API keys, oldest first, without their texts; in a project, those of that project."""
    return Items(items=await _keys(request).list(project_of(request)))


@router.delete("/v1/keys/{key_id}")
async def revoke_key(key_id: PathId, request: Request) -> ApiKey:
    """Revoke an API key: immediately on this server, within a second on all others."""
    return await _keys(request).revoke(key_id, project_of(request))


def keys_of(memory: AsyncMemory) -> AsyncKeys:
    """The API keys in the store of a memory."""
    return AsyncKeys(memory.runtime.deps, has_admin=memory.settings.api_key is not None)


def project_of(request: Request, named: str | None = None) -> str | None:
    """The project that a request about keys is for: in a project no other one can be named."""
    own, settings = request.app.state.project, request.app.state.memory.settings
    if own is not None and named not in (None, own):
        raise NotFound(NOT_FOUND)
    if own is None and named is not None and named not in settings.projects:
        raise InvalidArgument(unknown_project(named, settings.projects), field="project")
    return own or named


def _keys(request: Request) -> AsyncKeys:
    keys: AsyncKeys = request.app.state.keys
    return keys
