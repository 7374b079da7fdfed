"""Deliveries of events that are due, by whichever process runs jobs."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

from kemem.errors import KeMemError
from kemem.ports import Deps, read_notes
from kemem.ports.webhooks import WebhookStore
from kemem.records import NOTES, Micros, Where
from kemem.records.batch import Batch, Job, Trim
from kemem.records.webhooks import DELIVERIES, Delivery, Event, Webhook
from kemem.webhooks.sending import body_of, open_client, post

PAUSES = (5, 60, 300, 1800, 7200, 18_000, 43_200)  # seconds after each failure: 20 hours in all
MAX_ATTEMPTS = len(PAUSES) + 1
_JITTER = 0.1  # of a pause, longer or shorter: deliveries that failed together come apart
_LEASE: Micros = 30_000_000  # after which others deliver what a killed process had begun
_AT_ONCE = 4  # deliveries to one endpoint
_POLL = 1.0  # seconds between two looks for deliveries
_KEPT = 1000  # results of deliveries

log = logging.getLogger("kemem")


class Deliveries:
    """Delivers events that are due: to each endpoint by itself, so that none waits for another."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[int]] = {}  # by endpoint
        self._polling: asyncio.Task[None] | None = None
        self._is_failing = False  # which is said once

    async def beside(self, work: Awaitable[int], deps: Deps, *, wait: bool) -> int:
        """Do other work, then deliver what is due; returns the steps of both.

        Who does not `wait` calls this again and again: deliveries go on in the background, as long
        as there are endpoints, so that a slow one delays nothing.
        """
        if wait:
            done = await work
            await self._start(deps)
            return done + sum(await asyncio.gather(*self._tasks.values()))
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(deps))
        return await work

    async def close(self) -> None:
        """Stop; what was being delivered is delivered again later."""
        tasks = [*self._tasks.values(), *([self._polling] if self._polling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self, deps: Deps) -> None:
        try:
            while await self._start(deps):
                self._is_failing = False
                await asyncio.sleep(_POLL)
            self._is_failing = False
        except KeMemError as error:  # the store may be away for a while
            if not self._is_failing:
                log.warning("%s; webhooks are delivered later", error.message)
            self._is_failing = True

    async def _start(self, deps: Deps) -> bool:
        """Start to deliver to every endpoint that is idle; False if there are no endpoints."""
        store = deps.store
        if not isinstance(store, WebhookStore):
            return False
        webhooks = await store.webhooks()
        self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        for webhook in webhooks:
            if webhook.webhook_id not in self._tasks:
                work = asyncio.create_task(_drain(webhook, store, deps))
                self._tasks[webhook.webhook_id] = work
        return bool(webhooks)


async def _drain(webhook: Webhook, store: WebhookStore, deps: Deps) -> int:
    """Deliver what is due to one endpoint, some at once; after a failure the rest waits a while."""
    results: list[bool] = []

    async def claim() -> Job | None:
        return await store.claim_delivery(webhook.webhook_id, deps.clock(), _LEASE)

    async def work(client: Any) -> None:
        while all(results) and (job := await claim()):
            results.append(await _deliver(client, webhook, job, deps))

    try:
        if job := await claim():
            async with await open_client() as client, asyncio.TaskGroup() as workers:
                results.append(await _deliver(client, webhook, job, deps))
                for _ in range(_AT_ONCE):
                    workers.create_task(work(client))
            await deps.store.apply(Batch(trim=(Trim(DELIVERIES, keep=_KEPT),)))
    except* KeMemError as failed:  # of the store: what it does not know of is delivered again
        log.warning("%s; webhooks are delivered later", failed.exceptions[0])
    return len(results)


async def _deliver(client: Any, webhook: Webhook, job: Job, deps: Deps) -> bool:
    """Attempt a delivery and write the result; False if it failed."""
    event, now = Event.of(job), deps.clock()
    body = body_of(event.event_id, event.type, event.at, await _data(event, webhook, deps))
    status, error = await post(client, webhook, event.event_id, body, now)
    place = (event.event_id, webhook.webhook_id, event.type)
    batch = Batch(
        journal=Delivery(*place, now, job.attempts, status, error).to_lines(),
        only_if=(job,),  # it is gone if its endpoint was deleted
    )
    if error is None:
        batch = replace(batch, done=(job.job_id,))
    else:
        log.warning("webhook %s %s", webhook.webhook_id, error)
        batch = replace(batch, jobs=(_postponed(job, error, deps.clock()),))
    await deps.store.apply(batch)
    return error is None


def _postponed(job: Job, error: str, now: Micros) -> Job:
    """A delivery that failed, due again after a pause that grows; at last given up."""
    if job.attempts >= MAX_ATTEMPTS:
        return replace(job, state="failed", due=now, error=error)
    pause = PAUSES[job.attempts - 1] * random.uniform(1 - _JITTER, 1 + _JITTER)
    return replace(job, due=now + round(pause * 1_000_000), error=error)


async def _data(event: Event, webhook: Webhook, deps: Deps) -> Mapping[str, Any]:
    """What an event tells: ids, and, where its endpoint asks for it, the note as it is now."""
    if webhook.include_text and event.type in ("memory.added", "memory.updated"):
        owner, ids = replace(event.scope, session_id=None), frozenset([event.data["id"]])
        where = Where(owner, kinds=NOTES, ids=ids, sensitive=False)
        for note in await read_notes(deps.store, where, limit=1):
            return note.to_dict()
    return {**event.data, **event.scope.to_dict()}
