"""Webhooks on the dashboard: endpoints, and how the last deliveries went."""

from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.records.webhooks import EVENTS
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page
from kemem.webhooks.endpoints import MAX_URL, AsyncWebhooks

PATH = "/dashboard/webhooks"
_SHOWN = 50  # deliveries

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def list_webhooks(request: Request) -> Response:
    """All endpoints, the last deliveries, and a form for another endpoint."""
    return await _page(request)


@router.post(PATH)
async def create_webhook(request: Request) -> Response:
    """Make an endpoint, whose secret is shown this once."""
    fields = Fields(await request.form())
    try:
        made = await _webhooks(request).create(
            fields.text("url") or "",
            fields.texts("events"),
            agent_id=fields.text("agent_id"),
            user_id=fields.text("user_id"),
            include_text=fields.text("include_text") == "true",
        )
    except InvalidArgument as problem:
        return await _page(request, **refusal(problem, fields))
    request.app.state.wake_worker()
    return await _page(request, made=made)


@router.post(PATH + "/{webhook_id}/test")
async def test_webhook(request: Request, webhook_id: str) -> Response:
    """Send a test event now."""
    result = await _webhooks(request).test(webhook_id)
    if result.error is None:
        return done(request, PATH, "webhook_tested", status=result.status)
    return done(request, PATH, "webhook_failed", error=result.error)


@router.get(PATH + "/{webhook_id}/delete")
async def ask_to_delete(request: Request, webhook_id: str) -> Response:
    """Ask whether an endpoint is to be deleted."""
    webhooks = await _webhooks(request).list()
    webhook = next((it for it in webhooks if it.webhook_id == webhook_id), None)
    if webhook is None:
        raise NotFound(f"no webhook {webhook_id!r:.80}")
    return page(request, "webhooks_delete.html", webhook=webhook)


@router.post(PATH + "/{webhook_id}/delete")
async def delete_webhook(request: Request, webhook_id: str) -> Response:
    """Delete an endpoint with what waits to be delivered there."""
    webhook = await _webhooks(request).delete(webhook_id)
    return done(request, PATH, "webhook_deleted", name=webhook.url)


async def _page(request: Request, **values: Any) -> Response:
    webhooks = _webhooks(request)
    shown: dict[str, Any] = {
        "webhooks": await webhooks.list(),
        "deliveries": await webhooks.deliveries(_SHOWN),
        "events": EVENTS,
        "longest": MAX_URL,
        "made": None,
    }
    return page(request, "webhooks.html", **shown | values)


def _webhooks(request: Request) -> AsyncWebhooks:
    webhooks: AsyncWebhooks = request.app.state.webhooks
    return webhooks
