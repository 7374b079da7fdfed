"""The outbox: later work that was promised in the same transaction as the data that needs it."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from kemem.batch import Batch, Job
from kemem.errors import NotFound, Unavailable
from kemem.ports import Parts
from kemem.text.ids import new_id
from kemem.types import MESSAGES, NOTES, Micros, Position, Row, Scope, Where
from kemem.writing.condense import condense
from kemem.writing.draw import draw
from kemem.writing.embed import embed, later
from kemem.writing.end import end
from kemem.writing.forget import Policy, forget
from kemem.writing.mirror import mirror
from kemem.writing.task import mirror_jobs

LEASE: Micros = 300_000_000
DAY: Micros = 86_400_000_000
PAGE = 256
_ALL = 1_000_000

log = logging.getLogger("kemem")


async def prepare(parts: Parts, *, again: bool = False) -> None:
    """Note which model is in use; where it has changed (or `again`), ask for new vectors.

    Jobs for vectors that were open give way: the new ones cover all rows.
    """
    if parts.model is None:
        return
    if await parts.store.embedded_by(parts.model) == parts.model and not again:
        return
    now = parts.clock()
    fresh = tuple(
        Job(new_id("j", now), "reembed", scope, now) for scope in await parts.store.scopes()
    )
    kinds = ("embed", "reembed")
    replaced = [job.job_id for job in await parts.store.jobs(_ALL) if job.kind in kinds]
    await parts.store.apply(Batch(jobs=fresh, done=tuple(replaced)))


async def ask_to_forget(parts: Parts) -> None:
    """A job for each owner, which applies the policy of forgetting."""
    now = parts.clock()
    jobs = [Job(new_id("j", now), "forget", scope, now) for scope in await parts.store.scopes()]
    open_jobs = {job.scope for job in await parts.store.jobs(_ALL) if job.kind == "forget"}
    await parts.store.apply(Batch(jobs=tuple(job for job in jobs if job.scope not in open_jobs)))


async def mirror_all(parts: Parts, before: Iterable[Scope] = ()) -> None:
    """Carry the whole graph over to the database beside the store, if there is one.

    Owners of `before` who have nothing any more have nothing there, either.
    """
    now = parts.clock()
    scopes = {*before, *await parts.store.scopes()}
    jobs = [mirror_jobs(scope, (), now, parts) for scope in scopes]
    await parts.store.apply(Batch(jobs=tuple(job for each in jobs for job in each)))


async def retry(job_id: str, parts: Parts) -> Job:
    """Try a job again now, from the first attempt on."""
    found = [job for job in await parts.store.jobs(_ALL) if job.job_id == job_id]
    if not found:
        raise NotFound(f"no job {job_id!r:.80}", job_id=job_id)
    job = replace(found[0], state="pending", due=parts.clock(), attempts=0)
    await parts.store.apply(Batch(jobs=(job,)))
    return job


async def run_due(parts: Parts, policy: Policy) -> int:
    """Work through the jobs that are due; returns how many steps were done."""
    done = 0
    while job := await parts.store.claim(parts.clock(), LEASE):
        try:
            await _run(job, policy, parts)
        except Exception as error:  # one job's fault must not keep the others waiting
            reason = error if isinstance(error, Unavailable) else _fault(error)
            log.warning("%s; job %s will try again", reason.message, job.job_id)
            await parts.store.apply(later(job, reason, parts.clock()))
        done += 1
    return done


def _fault(error: Exception) -> Unavailable:
    return Unavailable(f"the job failed: {type(error).__name__}")


async def _run(job: Job, policy: Policy, parts: Parts) -> None:
    match job.kind:
        case "embed":
            await embed(await _rows(job.scope, frozenset(job.ids), None, parts), job, parts)
        case "reembed":
            await _reembed(job, parts)
        case "extract":
            await draw(job, parts)
        case "condense":
            await condense(job.scope, parts, budget=job.details["budget"])
            await parts.store.apply(Batch(done=(job.job_id,)))
        case "end":
            await end(job, parts)
        case "forget":
            await forget(job.scope, policy, parts)
            await parts.store.apply(Batch(done=(job.job_id,)))
        case "mirror":
            await mirror(job, parts)


async def _reembed(job: Job, parts: Parts) -> None:
    """A page of a scope gets new vectors; the job goes on with the next."""
    page = await _rows(job.scope, None, job.after, parts)
    if await embed(page, job, parts) and len(page) == PAGE:
        last = Position(page[-1].ts, page[-1].id)
        rest = replace(job, after=last, due=parts.clock(), attempts=0, error=None)
        await parts.store.apply(Batch(jobs=(rest,)))


async def _rows(
    scope: Scope, ids: frozenset[str] | None, after: Position | None, parts: Parts
) -> list[Row]:
    """Messages and notes of a scope, newest first: those named, or a page beyond `after`."""
    where = Where(scope, ids=ids, kinds=MESSAGES | NOTES)
    limit = PAGE if ids is None else len(ids)
    rows: list[Row] = [*await parts.store.scan(where, after=after, limit=limit)]
    rows += await parts.store.notes(where, after=after, limit=limit)
    rows.sort(key=lambda row: (-row.ts, row.id))
    return rows if ids is not None else rows[:limit]
