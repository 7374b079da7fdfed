"""Vectors for stored rows. A model may fail in any way: the rows stay, a job remembers."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from kemem.add.mirror import vector_jobs
from kemem.errors import Unavailable
from kemem.ports import Deps, read_owners
from kemem.records import Embedded, Micros, Row, Scope
from kemem.records.batch import Batch, Job
from kemem.text.ids import new_id

_ALL = 1_000_000
MAX_ATTEMPTS = 24  # over about 15 hours
_FIRST_PAUSE: Micros = 10_000_000
_LONGEST_PAUSE: Micros = 3_600_000_000

log = logging.getLogger("kemem")


async def prepare(deps: Deps, *, again: bool = False) -> None:
    """Record which model is in use; where it has changed (or `again`), ask for new vectors.

    Jobs for vectors that were open give way: the new ones cover all rows.
    """
    if deps.model is None:
        return
    if (await deps.store.info()).model == deps.model and not again:
        return
    now = deps.clock()
    owners = await read_owners(deps.store)
    fresh = tuple(Job(new_id("j", now), "reembed", owner, now) for owner in owners)
    replaced = await deps.store.jobs(_ALL, kinds=("embed", "reembed"))
    done = tuple(job.job_id for job in replaced)
    await deps.store.apply(Batch(jobs=fresh, done=done, model=deps.model))


async def embed_rows(
    rows: Sequence[Row], now: Micros, deps: Deps
) -> tuple[tuple[Embedded, ...], tuple[Job, ...]]:
    """The vectors of rows; if the embedder fails, jobs that make them later."""
    if not rows or deps.model is None:
        return (), ()
    try:
        return await _vectors(rows, deps), ()
    except Unavailable as error:
        log.warning("%s; vectors follow later", error.message)
        failure = error.message[:500]
        jobs = (
            Job(new_id("j", now), "embed", owner, now, tuple(row.id for row in own), error=failure)
            for owner, own in _by_owner(rows).items()
        )
        return (), tuple(jobs)


async def run_embed(rows: Sequence[Row], job: Job, deps: Deps) -> bool:
    """Store the vectors of a job's rows and finish it, or reschedule it."""
    try:
        vectors = await _vectors(rows, deps)
    except Unavailable as error:
        log.warning("%s; job %s will try again", error.message, job.job_id)
        await deps.store.apply(reschedule(job, error, deps.clock()))
        return False
    jobs = vector_jobs(vectors, deps.clock(), deps)
    await deps.store.apply(Batch(vectors=vectors, jobs=jobs, done=(job.job_id,)))
    return True


async def _vectors(rows: Sequence[Row], deps: Deps) -> tuple[Embedded, ...]:
    if not rows or deps.model is None:
        return ()
    ordered = [row for own in _by_owner(rows).values() for row in own]
    matrix = await deps.embed([row.content for row in ordered], purpose="passage")
    vectors, start = [], 0
    for owner, own in _by_owner(rows).items():
        ids = tuple(row.id for row in own)
        vectors.append(Embedded(owner, deps.model, ids, matrix[start : start + len(own)]))
        start += len(own)
    return tuple(vectors)


def _by_owner(rows: Sequence[Row]) -> dict[Scope, list[Row]]:
    owned: dict[Scope, list[Row]] = {}
    for row in rows:
        owned.setdefault(Scope(row.agent_id, row.user_id), []).append(row)
    return owned


def reschedule(job: Job, error: Unavailable, now: Micros) -> Batch:
    """The job with a later due time, unless its scope was erased and the job with it."""
    return Batch(jobs=(backoff(job, error, now),), only_if=job.job_id)


def backoff(job: Job, error: Unavailable, now: Micros) -> Job:
    """The job due again after an exponential backoff; failed after the last attempt."""
    attempts = max(job.attempts, 1)
    pause = min(_FIRST_PAUSE << (attempts - 1), _LONGEST_PAUSE)
    return replace(
        job,
        attempts=attempts,
        due=now + pause,
        state="failed" if attempts >= MAX_ATTEMPTS else "pending",
        error=error.message[:500],
    )
