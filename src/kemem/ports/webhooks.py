"""What the core asks of a store that keeps webhooks."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kemem.records import Micros
from kemem.records.batch import Job
from kemem.records.webhooks import Webhook


@runtime_checkable
class WebhookStore(Protocol):
    """A store that keeps endpoints, and writes a job for each with the changes it wants.

    `Store.claim` returns none of these jobs: each endpoint has a queue of its own.
    """

    async def webhooks(self) -> list[Webhook]:
        """All endpoints, oldest first."""

    async def change_webhooks(
        self, *, add: Sequence[Webhook] = (), remove: Sequence[str] = ()
    ) -> int:
        """Add endpoints, or remove those with these ids and what waits to be delivered there.

        Returns how many were removed.
        """

    async def claim_delivery(self, webhook_id: str, now: Micros, lease: Micros) -> Job | None:
        """A delivery to an endpoint that is due, hidden from other workers until the lease ends."""
