"""The outbox: later work that was promised in the same transaction as the data that needs it."""

from dataclasses import replace

from kemem.ports import Parts
from kemem.text.ids import new_id
from kemem.types import Batch, Job, Micros, Position, Where
from kemem.writing.embed import embed

LEASE: Micros = 300_000_000
PAGE = 256
_ALL = 1_000_000


async def prepare(parts: Parts, *, again: bool = False) -> None:
    """Note which model is in use; where it has changed (or `again`), ask for new vectors.

    Jobs that were open give way: the new ones cover all messages.
    """
    if parts.model is None:
        return
    if await parts.store.embedded_by(parts.model) == parts.model and not again:
        return
    now = parts.clock()
    fresh = tuple(
        Job(new_id("j", now), "reembed", scope, now) for scope in await parts.store.scopes()
    )
    replaced = tuple(job.job_id for job in await parts.store.jobs(_ALL))
    await parts.store.apply(Batch(jobs=fresh, done=replaced))


async def run_due(parts: Parts) -> int:
    """Work through the jobs that are due; returns how many steps were done."""
    done = 0
    while parts.embedder and (job := await parts.store.claim(parts.clock(), LEASE)):
        await _run(job, parts)
        done += 1
    return done


async def _run(job: Job, parts: Parts) -> None:
    if job.kind == "embed":
        where = Where(job.scope, ids=frozenset(job.message_ids))
        await embed(await parts.store.scan(where, limit=len(job.message_ids)), job, parts)
        return
    page = await parts.store.scan(Where(job.scope), after=job.after, limit=PAGE, newest_first=True)
    if await embed(page, job, parts) and len(page) == PAGE:
        last = Position(page[-1].ts, page[-1].message_id)
        rest = replace(job, after=last, due=parts.clock(), attempts=0, error=None)
        await parts.store.apply(Batch(jobs=(rest,)))
