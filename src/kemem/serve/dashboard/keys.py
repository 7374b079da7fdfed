"""API keys on the dashboard: made, listed and revoked."""

from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.keys import MAX_DAYS, AsyncKeys
from kemem.records.keys import ROLES
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page
from kemem.serve.http.key_routes import project_of

PATH = "/dashboard/keys"

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def list_keys(request: Request) -> Response:
    """All keys, and a form for another."""
    return await _page(request)


@router.post(PATH)
async def create_key(request: Request) -> Response:
    """Make a key, whose text is shown this once."""
    fields = Fields(await request.form())
    try:
        days = fields.integer("days", MAX_DAYS, 1) if fields.text("days") else None
        key, text = await _keys(request).create(
            fields.text("name") or "",
            fields.one_of("role", ROLES, "service"),  # type: ignore[arg-type]
            agent_id=fields.text("agent_id"),
            user_id=fields.text("user_id"),
            read_only=fields.text("read_only") == "true",
            sensitive=fields.text("sensitive") == "true",
            days=days,
            project=project_of(request, fields.text("project")),
        )
    except InvalidArgument as problem:
        return await _page(request, **refusal(problem, fields))
    return await _page(request, made={"name": key.name, "text": text})


@router.get(PATH + "/{key_id}/revoke")
async def ask_to_revoke(request: Request, key_id: str) -> Response:
    """Ask whether a key is to be revoked."""
    keys = await _keys(request).list(project_of(request))
    key = next((it for it in keys if it.key_id == key_id), None)
    if key is None:
        raise NotFound(f"no key {key_id!r:.80}")
    return page(request, "keys_revoke.html", key=key)


@router.post(PATH + "/{key_id}/revoke")
async def revoke_key(request: Request, key_id: str) -> Response:
    """Revoke a key."""
    key = await _keys(request).revoke(key_id, project_of(request))
    return done(request, PATH, "key_revoked", name=key.name)


async def _page(request: Request, **values: Any) -> Response:
    keys = await _keys(request).list(project_of(request))
    shown: dict[str, Any] = {
        "keys": keys,
        "roles": ROLES,
        "longest": MAX_DAYS,
        "made": None,
    }
    return page(request, "keys.html", **shown | values)


def _keys(request: Request) -> AsyncKeys:
    keys: AsyncKeys = request.app.state.keys
    return keys
