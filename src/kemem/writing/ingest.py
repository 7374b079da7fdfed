"""The recipe of ingest: parse, keep, embed. Messages are durable before any model is asked."""

from kemem.answers import Ingested
from kemem.ports import Parts
from kemem.types import Messages
from kemem.writing.embed import embed
from kemem.writing.keep import embed_job, keep
from kemem.writing.parse import Owner, parse_messages


async def ingest(
    messages: Messages, owner: Owner, max_content_bytes: int, parts: Parts
) -> Ingested:
    """Store messages as one batch and make them searchable."""
    now = parts.clock()
    parsed, truncated = parse_messages(messages, owner, now, max_content_bytes)
    applied, jobs = await keep(parsed, embed_job(parsed, now, parts), parts)
    pending = False
    for job in jobs:
        pending = not await embed(applied.inserted, job, parts)
    return Ingested(
        inserted=tuple(message.message_id for message in applied.inserted),
        ignored=applied.ignored,
        truncated=truncated,
        pending=pending,
    )
