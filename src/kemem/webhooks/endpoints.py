"""Endpoints of webhooks: made, listed, tested and deleted."""

import builtins
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from kemem.errors import InvalidArgument, NotFound
from kemem.ports import Deps
from kemem.ports.webhooks import WebhookStore
from kemem.records.batch import Batch
from kemem.records.webhooks import (
    DELIVERIES,
    EVENTS,
    LAST_DELIVERY,
    TEST,
    Delivery,
    EventType,
    Webhook,
    new_secret,
)
from kemem.scope import Id, check_flag
from kemem.text.ids import check_id, encode, new_id
from kemem.webhooks.sending import body_of, is_refused, open_client, post

MAX_URL = 2000  # characters


class AsyncWebhooks:
    """The endpoints of a store."""

    def __init__(self, deps: Callable[[], Awaitable[Deps]]) -> None:
        self._deps = deps

    async def create(
        self,
        url: str,
        events: Sequence[str] | None = None,
        *,
        agent_id: Id = None,
        user_id: Id = None,
        include_text: bool = False,
    ) -> Webhook:
        """A new endpoint for these events, by default all.

        With an agent or a user it hears only of these. With `include_text` events about notes
        carry the note, unless that is sensitive; without, they carry ids only.
        """
        for name, value in (("agent_id", agent_id), ("user_id", user_id)):
            if value is not None:
                check_id(value, name)
        store, now = await self._store(), (await self._deps()).clock()
        webhook = Webhook(
            webhook_id=new_id("wh", now),
            url=check_url(url),
            events=_check_events(events),
            secret=new_secret(),
            created=now,
            agent_id=agent_id,
            user_id=user_id,
            include_text=check_flag(include_text, "include_text"),
        )
        await store.change_webhooks(add=[webhook])
        return webhook

    async def list(self) -> list[Webhook]:
        """All endpoints, oldest first, each with its last delivery."""
        webhooks = await (await self._store()).webhooks()
        lines = await (await self._deps()).store.journal(LAST_DELIVERY)
        last = {line.id: Delivery.of(line) for line in lines}
        return [replace(it, last_delivery=last.get(it.webhook_id)) for it in webhooks]

    async def delete(self, webhook_id: str) -> Webhook:
        """Remove an endpoint, and what waits to be delivered there."""
        webhook = await self._find(webhook_id)
        if not await (await self._store()).change_webhooks(remove=[webhook_id]):
            raise _not_found(webhook_id)
        return webhook

    async def test(self, webhook_id: str) -> Delivery:
        """Send a `webhook.test` event to an endpoint now, once; returns the result."""
        webhook, deps = await self._find(webhook_id), await self._deps()
        now = deps.clock()
        event_id = new_id("evt", now)
        body = body_of(event_id, TEST, now, {"webhook_id": webhook_id})
        async with await open_client() as client:
            status, error = await post(client, webhook, event_id, body, now)
        delivery = Delivery(event_id, webhook_id, TEST, now, 1, status, error)
        await deps.store.apply(Batch(journal=delivery.to_lines()))
        return delivery

    async def deliveries(self, limit: int = 50) -> builtins.list[Delivery]:
        """The newest deliveries, newest first, each with the result of its last attempt."""
        lines = await (await self._deps()).store.journal(DELIVERIES, limit=limit)
        return [Delivery.of(line) for line in lines]

    async def _find(self, webhook_id: str) -> Webhook:
        check_id(webhook_id, "webhook_id")
        for webhook in await self.list():
            if webhook.webhook_id == webhook_id:
                return webhook
        raise _not_found(webhook_id)

    async def _store(self) -> WebhookStore:
        store = (await self._deps()).store
        if not isinstance(store, WebhookStore):
            raise InvalidArgument("this store keeps no webhooks")
        return store


def check_url(url: object) -> str:
    """The address itself, if it is one of HTTP that events may be sent to."""
    if not isinstance(url, str) or not 1 <= len(url) <= MAX_URL:
        raise InvalidArgument(f"url must be 1-{MAX_URL} characters, not {url!r:.80}", field="url")
    encode(url, "url")
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_http = False
    if not is_http or not url.isprintable() or " " in url:
        reason = f"url must be like https://example.com/hook, not {url!r:.80}"
        raise InvalidArgument(reason, field="url")
    if "@" in parts.netloc:
        reason = "url must have no user and password: receivers check the signature instead"
        raise InvalidArgument(reason, field="url")
    if _is_refused_literal(parts.hostname or ""):
        reason = (
            "url must not be a link-local address or a metadata service, where nothing is sent:"
            f" {url!r:.80}"
        )
        raise InvalidArgument(reason, field="url")
    return url


def _is_refused_literal(host: str) -> bool:
    """Whether a host is an IP address that nothing is sent to; names are looked up when sending."""
    try:
        return is_refused(host)
    except ValueError:
        return False


def _check_events(events: Sequence[str] | None) -> tuple[EventType, ...]:
    if events is None:
        return EVENTS
    wrong = [it for it in events if it not in EVENTS]
    if wrong or not events:
        given = wrong[0] if wrong else events
        reason = f"events must be some of {', '.join(EVENTS)}, not {given!r:.80}"
        raise InvalidArgument(reason, field="events")
    return tuple(it for it in EVENTS if it in events)


def _not_found(webhook_id: str) -> NotFound:
    return NotFound(f"no webhook {webhook_id!r:.80}", webhook_id=webhook_id)
