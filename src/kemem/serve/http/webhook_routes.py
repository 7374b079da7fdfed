"""Webhooks over HTTP, for operators: endpoints are made, listed, tested and deleted."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from kemem.records.webhooks import Delivery, EventType, Webhook
from kemem.serve.http.routing import OperatorRoute
from kemem.serve.http.schemas import Id, Items, PathId, StrictModel, limited, many
from kemem.webhooks.endpoints import MAX_URL, AsyncWebhooks

router = APIRouter(route_class=OperatorRoute, tags=["webhooks"])


class WebhookRequest(StrictModel):
    """An endpoint to make."""

    url: Annotated[str, limited(pattern="^https?://", maxLength=MAX_URL)]
    events: Annotated[list[EventType] | None, many(minItems=1)] = None
    agent_id: Annotated[Id | None, Field(description="Only events about this agent.")] = None
    user_id: Annotated[Id | None, Field(description="Only events about this user.")] = None
    include_text: bool = False


@dataclass(frozen=True, slots=True)
class NewWebhook(Webhook):
    """An endpoint that was made; its `secret` is never shown again."""

    secret: str


@router.post("/v1/webhooks")
async def create_webhook(body: WebhookRequest, request: Request) -> NewWebhook:
    """Make an endpoint. Its signing secret is in this answer only."""
    request.state.shown_once = True
    made = await _webhooks(request).create(**body.arguments())
    request.app.state.wake_worker()
    return NewWebhook(**{it: getattr(made, it) for it in Webhook.__dataclass_fields__})


@router.get("/v1/webhooks")
async def list_webhooks(request: Request) -> Items[Webhook]:
    """All endpoints, oldest first, each with its last delivery and without its secret."""
    return Items(items=await _webhooks(request).list())


@router.post("/v1/webhooks/{webhook_id}/test")
async def test_webhook(webhook_id: PathId, request: Request) -> Delivery:
    """Send a `webhook.test` event to an endpoint now, once; the answer has the result."""
    return await _webhooks(request).test(webhook_id)


@router.delete("/v1/webhooks/{webhook_id}")
async def delete_webhook(webhook_id: PathId, request: Request) -> Webhook:
    """Delete an endpoint, and what waits to be delivered there."""
    return await _webhooks(request).delete(webhook_id)


def _webhooks(request: Request) -> AsyncWebhooks:
    webhooks: AsyncWebhooks = request.app.state.webhooks
    return webhooks
