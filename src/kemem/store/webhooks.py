"""Webhooks in the store: the endpoints, and the deliveries that are written with a change."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from kemem.records import Note, Scope
from kemem.records.batch import Batch, Job
from kemem.records.webhooks import LAST_DELIVERY, Event, EventType, Webhook
from kemem.store.database import COUNTED
from kemem.store.schema import Id, Json, job, journal, metadata
from kemem.text.ids import new_id

table = sa.Table(  # of no space, and in no backup: it holds secrets
    "webhook",
    metadata,
    sa.Column("webhook_id", Id, primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("events", Json, nullable=False),
    sa.Column("secret", sa.String(255), nullable=False),
    sa.Column("create_time", sa.BigInteger, nullable=False),
    sa.Column("agent_id", Id),
    sa.Column("user_id", Id),
    sa.Column("include_text", sa.Boolean, nullable=False),
    sqlite_with_rowid=False,
)

exist = sa.exists(sa.select(table.c.webhook_id))
_all = sa.select(table).order_by(table.c.create_time, table.c.webhook_id)
# Whoever deletes an endpoint waits for these, and then finds what they have written.
_locked = _all.with_for_update(read=True, key_share=True)


def read_webhooks(connection: sa.Connection) -> list[Webhook]:
    """All endpoints, oldest first."""
    return [_webhook(row) for row in connection.execute(_all)]


def change_webhooks(
    connection: sa.Connection, add: Sequence[Webhook], remove: Sequence[str]
) -> int:
    """Add endpoints; remove others with their deliveries. Returns how many were removed."""
    if add:
        connection.execute(sa.insert(table), [_row(each) for each in add])
    removed = 0
    for webhook_id in remove:
        gone = sa.delete(table).where(table.c.webhook_id == webhook_id)
        removed += connection.execute(gone, execution_options=COUNTED).rowcount
        connection.execute(sa.delete(job).where(*deliveries_to(webhook_id)))
        last = (journal.c.kind == LAST_DELIVERY, journal.c.line_id == webhook_id)
        connection.execute(sa.delete(journal).where(*last))
    return removed


def deliveries_to(webhook_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Which jobs are deliveries to an endpoint."""
    first, end = f"{webhook_id}.", f"{webhook_id}/"  # "/" follows "."
    return job.c.kind == "webhook", job.c.job_id > first, job.c.job_id < end


def delivery_jobs(connection: sa.Connection, events: Sequence[Event]) -> tuple[Job, ...]:
    """A job for each event and each endpoint that wants it."""
    endpoints = [_webhook(row) for row in connection.execute(_locked)]
    return tuple(it.to_job(to.webhook_id) for it in events for to in endpoints if to.wants(it))


def events_of(
    batch: Batch, notes: Iterable[tuple[EventType, Note]], failed: Iterable[Job]
) -> list[Event]:
    """What a batch changed: notes, sessions that it ended, jobs that are given up."""
    at = max([batch.at, *(it.updated for it in batch.notes), *(it.at for it in batch.ended)])

    def event(type: EventType, scope: Scope, **data: Any) -> Event:
        return Event(new_id("evt", at), type, at, scope, data)

    return [
        *(
            event(type, Scope(it.agent_id, it.user_id, it.session_id), id=it.note_id)
            for type, it in notes
        ),
        *(event("session.ended", it.scope) for it in batch.ended),
        *(event("job.failed", it.scope, **it.to_dict()) for it in failed),
    ]


def _row(webhook: Webhook) -> dict[str, Any]:
    names = ("webhook_id", "url", "secret", "agent_id", "user_id", "include_text")
    values = {name: getattr(webhook, name) for name in names}
    return {**values, "events": list(webhook.events), "create_time": webhook.created}


def _webhook(row: Any) -> Webhook:
    return Webhook(
        webhook_id=row.webhook_id,
        url=row.url,
        events=tuple(row.events),
        secret=row.secret,
        created=row.create_time,
        agent_id=row.agent_id,
        user_id=row.user_id,
        include_text=row.include_text,
    )
