"""The recipe of ingest: parse, keep, embed. Messages are durable before any model is asked."""

from kemem.add.embed import embed
from kemem.add.keep import embed_job, keep
from kemem.add.parse import parse_messages
from kemem.ports import Deps
from kemem.records import Messages
from kemem.results import Ingested
from kemem.scope import Owner


async def ingest(messages: Messages, owner: Owner, max_content_bytes: int, deps: Deps) -> Ingested:
    """Store messages as one batch and make them searchable."""
    now = deps.clock()
    parsed, truncated = parse_messages(messages, owner, now, max_content_bytes)
    applied, jobs = await keep(parsed, embed_job(parsed, now, deps), deps)
    pending = False
    for job in jobs:
        pending = not await embed(applied.inserted, job, deps)
    return Ingested(
        inserted=tuple(message.message_id for message in applied.inserted),
        ignored=applied.ignored,
        truncated=truncated,
        pending=pending,
    )
