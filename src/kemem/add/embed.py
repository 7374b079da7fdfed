"""Vectors of rows, and copies in databases beside the store; where these fail, a job remembers."""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from kemem.errors import Unavailable
from kemem.ports import (
    Deps,
    GraphMirror,
    Store,
    VectorIndex,
    read_owners,
    read_relations,
)
from kemem.ports.request import Neighborhood
from kemem.records import MESSAGES, NOTES, Embedded, Micros, Model, Note, Row, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.text.ids import new_id

MAX_ATTEMPTS = 24  # over about 15 hours
_FIRST_PAUSE: Micros = 10_000_000
_LONGEST_PAUSE: Micros = 3_600_000_000
_PAGE = 100  # rows that are copied at once
_RELATIONS = 1_000  # of one note

R = TypeVar("R", bound=Row)
log = logging.getLogger("kemem")


async def read_pages(
    where: Where, store: Store, size: int = 500, *, newest_first: bool = True
) -> AsyncIterator[list[Row]]:
    """All rows that a Where admits, page by page."""
    after = None
    while page := await store.read(where, after=after, limit=size, newest_first=newest_first):
        yield page
        if len(page) < size:
            break
        after = page[-1].position


async def read_all(kind: type[R], where: Where, store: Store, newest_first: bool = True) -> list[R]:
    """All messages, or all notes, that a Where admits."""
    pages = read_pages(where, store, newest_first=newest_first)
    return [row async for page in pages for row in page if isinstance(row, kind)]


def by_owner(rows: Iterable[R]) -> dict[Scope, list[R]]:
    """Rows of each agent and user."""
    owned: dict[Scope, list[R]] = {}
    for row in rows:
        owned.setdefault(Scope(row.agent_id, row.user_id), []).append(row)
    return owned


async def learn_width(deps: Deps, *, again: bool = False) -> None:
    """Ask an embedder that does not know its width, or `again` one that has learned it."""
    embedder = deps.embedder
    if embedder is None or not getattr(embedder, "learns_width", False):
        return
    known = embedder.width
    if known and not again:
        return
    embedder.width = 0
    try:
        await deps.embed(["width"], purpose="query")
    finally:
        embedder.width = embedder.width or known


async def prepare(deps: Deps, *, again: bool = False) -> bool:
    """Record which model is in use; where it has changed (or `again`), ask for new vectors.

    Jobs for vectors that were open give way: the new ones cover all rows. False while the model
    has an unknown width, so that its vectors cannot be told from others.
    """
    if again:
        await learn_width(deps, again=True)
    if deps.model is None:
        return deps.embedder is None
    if (await deps.store.info()).model == deps.model and not again:
        return True
    now = deps.clock()
    owners = await read_owners(deps.store)
    fresh = tuple(Job(new_id("j", now), "reembed", owner, now) for owner in owners)
    replaced = await deps.store.jobs(None, kinds=("embed", "reembed"))
    done = tuple(job.job_id for job in replaced)
    deps.settled.clear()
    await deps.store.apply(Batch(jobs=fresh, done=done, model=deps.model))
    return True


async def embed_rows(
    rows: Sequence[Row], now: Micros, deps: Deps
) -> tuple[tuple[Embedded, ...], tuple[Job, ...]]:
    """The vectors of rows; if the embedder fails, jobs that make them later."""
    try:
        return await _vectors(rows, deps), ()
    except Unavailable as error:
        log.warning("%s; vectors follow later", error.message)
        failure = error.message[:500]
        jobs = (
            Job(new_id("j", now), "embed", owner, now, tuple(row.id for row in own), error=failure)
            for owner, own in by_owner(rows).items()
        )
        return (), tuple(jobs)


async def run_embed(
    rows: Sequence[Row], job: Job, deps: Deps, rest: Job | None = None
) -> str | None:
    """Store the vectors of a job's rows and finish it, or go on with the `rest`; or reschedule it.

    Vectors and rest are one write: a process that is killed leaves either this page or the next.
    Returns what the embedder failed with.
    """
    is_new = deps.model is None
    try:
        vectors = await _vectors(rows, deps)
    except Unavailable as error:
        log.warning("%s; job %s will try again", error.message, job.job_id)
        await put_back(job, error, deps)
        return error.message
    now = deps.clock()
    batch = Batch(vectors=vectors, jobs=vector_jobs(vectors, now, deps), done=(job.job_id,))
    if rest is not None:  # unless another change of the embedder has replaced the job
        later = replace(rest, due=now, attempts=0, error=None)
        batch = replace(batch, jobs=(*batch.jobs, later), done=(), only_if=(job,))
    if is_new and (await deps.store.info()).model is None:  # the first vectors of all
        batch = replace(batch, model=deps.model)
    await deps.store.apply(batch)
    return None


async def _vectors(rows: Sequence[Row], deps: Deps) -> tuple[Embedded, ...]:
    if not rows or deps.embedder is None:
        return ()
    owned = by_owner(rows)
    texts = [row.content for own in owned.values() for row in own]
    matrix = await deps.embed(texts, purpose="passage")
    model = Model(deps.embedder.name, matrix.shape[1])  # whose width may not have been known before
    parts = np.split(matrix, np.cumsum([len(own) for own in owned.values()])[:-1])
    return tuple(
        Embedded(owner, model, tuple(row.id for row in own), part)
        for (owner, own), part in zip(owned.items(), parts, strict=True)
    )


async def put_back(job: Job, error: Unavailable, deps: Deps) -> None:
    """Reschedule a job; if the store is away, whoever runs jobs next takes it up again."""
    try:
        await deps.store.apply(reschedule(job, error, deps.clock()))
    except Unavailable:
        deps.held.add(job)
        raise


def reschedule(job: Job, error: Unavailable, now: Micros) -> Batch:
    """The job due again after an exponential backoff, if it is still there; at last failed."""
    attempts = max(job.attempts, 1)
    again = replace(
        job,
        attempts=attempts,
        due=now + min(_FIRST_PAUSE << (attempts - 1), _LONGEST_PAUSE),
        state="failed" if attempts >= MAX_ATTEMPTS else "pending",
        error=error.message[:500],
    )
    return Batch(jobs=(again,), only_if=(job,), at=now)


def mirror_jobs(scope: Scope, ids: Sequence[str], now: Micros, deps: Deps) -> tuple[Job, ...]:
    """The job that copies rows, without ids all of a scope, to databases beside the store."""
    if deps.graph is None and deps.vectors is None:
        return ()
    return (Job(new_id("j", now), "mirror", scope, now, tuple(ids)),)


def vector_jobs(vectors: Sequence[Embedded], now: Micros, deps: Deps) -> tuple[Job, ...]:
    """The jobs that copy vectors to a vector database beside the store, if there is one."""
    new = vectors if deps.vectors else ()
    return tuple(job for each in new for job in mirror_jobs(each.scope, each.ids, now, deps))


async def run_mirror(job: Job, deps: Deps) -> None:
    """Bring rows up to date in the databases beside; a job without ids means all of its scope."""
    graph, vectors = deps.graph, deps.vectors
    try:
        if graph is not None:
            async for page in _pages_to_copy(job, NOTES, graph, deps):
                for note in (row for row in page if isinstance(row, Note)):
                    own = Where(
                        Scope(note.agent_id, note.user_id), kinds=NOTES, ids=frozenset([note.id])
                    )
                    around = Neighborhood(own, limit=_RELATIONS)
                    await graph.put(note, await read_relations(deps.store, around))
        if vectors is not None and deps.embedder is not None:
            async for page in _pages_to_copy(job, MESSAGES | NOTES, vectors, deps):
                for embedded in await _vectors(page, deps):
                    await vectors.put(embedded)
    except Exception as error:  # the database's code or network, which may raise anything
        raise Unavailable(f"a database beside the store: {type(error).__name__}") from error
    await deps.store.apply(Batch(done=(job.job_id,)))


async def _pages_to_copy(
    job: Job, kinds: frozenset[str], target: GraphMirror | VectorIndex, deps: Deps
) -> AsyncIterator[list[Row]]:
    """The rows of a job, after what is gone of them is removed from the target."""
    where = Where(job.scope, kinds=kinds, ids=frozenset(job.ids) or None)
    gone: list[str] | None = None
    if job.ids:
        present = {row.id async for page in read_pages(where, deps.store) for row in page}
        gone = sorted(set(job.ids) - present)
    if gone != []:  # an empty list could be taken for all
        await target.remove(job.scope, gone)
    async for page in read_pages(where, deps.store, _PAGE):
        yield page
