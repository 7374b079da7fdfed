"""Vectors for stored rows. A model may fail in any way: the rows stay, a job remembers."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from kemem.batch import Batch, Job
from kemem.errors import Unavailable
from kemem.ports import Deps, read_owners
from kemem.records import Embedded, Micros, Row, Scope
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


async def embed(rows: Sequence[Row], job: Job, deps: Deps) -> bool:
    """Store the vectors of one scope's rows and finish the job, or put the job off."""
    try:
        vectors = await _vectors(rows, deps)
    except Unavailable as error:
        log.warning("%s; job %s will try again", error.message, job.job_id)
        await deps.store.apply(later(job, error, deps.clock()))
        return False
    jobs = tuple(
        Job(new_id("j", deps.clock()), "mirror", each.scope, deps.clock(), each.ids)
        for each in vectors
        if deps.vectors is not None
    )
    await deps.store.apply(Batch(vectors=vectors, jobs=jobs, done=(job.job_id,)))
    return True


async def _vectors(rows: Sequence[Row], deps: Deps) -> tuple[Embedded, ...]:
    if not rows or deps.model is None:
        return ()
    matrix = await deps.embed([row.content for row in rows], purpose="passage")
    places: dict[Scope, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(Scope(row.agent_id, row.user_id), []).append(place)
    return tuple(
        Embedded(scope, deps.model, tuple(rows[place].id for place in chosen), matrix[chosen])
        for scope, chosen in places.items()
    )


def later(job: Job, error: Unavailable, now: Micros) -> Batch:
    """The job put off, unless its scope was erased and the job with it."""
    return Batch(jobs=(put_off(job, error, now),), only_if=job.job_id)


def put_off(job: Job, error: Unavailable, now: Micros) -> Job:
    """The job to be tried again later, ever more rarely, and in the end given up visibly."""
    attempts = max(job.attempts, 1)
    pause = min(_FIRST_PAUSE << (attempts - 1), _LONGEST_PAUSE)
    return replace(
        job,
        attempts=attempts,
        due=now + pause,
        state="failed" if attempts >= MAX_ATTEMPTS else "pending",
        error=error.message[:500],
    )
