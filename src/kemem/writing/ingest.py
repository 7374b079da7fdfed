"""The recipe of ingest: parse, keep, embed. Messages are durable before any model is asked."""

from kemem.ports import Parts
from kemem.text.ids import new_id
from kemem.types import Batch, Ingested, Job, Messages, Scope
from kemem.writing.embed import embed
from kemem.writing.parse import Owner, parse_messages

_GRACE = 60_000_000  # microseconds in which only the writer itself works on its job


async def ingest(
    messages: Messages, owner: Owner, max_content_bytes: int, parts: Parts
) -> Ingested:
    """Store messages as one batch and make them searchable."""
    now = parts.clock()
    parsed, truncated = parse_messages(messages, owner, now, max_content_bytes)
    ids = tuple(message.message_id for message in parsed)
    job = Job(new_id("j", now), "embed", Scope(user_id=owner.user_id), now + _GRACE, ids)
    wanted = parts.embedder is not None
    applied = await parts.store.apply(Batch(put=tuple(parsed), jobs=(job,) if wanted else ()))
    embedded = not wanted or await embed(applied.inserted, job, parts)
    return Ingested(
        inserted=tuple(message.message_id for message in applied.inserted),
        ignored=applied.ignored,
        truncated=truncated,
        pending=not embedded,
    )
