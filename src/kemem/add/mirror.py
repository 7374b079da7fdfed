"""Changes carried over to a graph database and a vector database beside the store."""

from collections.abc import Sequence

from kemem.errors import Unavailable
from kemem.ports import Deps, GraphMirror, VectorIndex, read_notes, read_relations
from kemem.ports.request import Neighborhood
from kemem.records import MESSAGES, NOTES, Embedded, Micros, Model, Note, Position, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.text.ids import new_id

_PAGE = 100
_RELATIONS = 1_000  # of one note


def mirror_jobs(scope: Scope, ids: Sequence[str], now: Micros, deps: Deps) -> tuple[Job, ...]:
    """The job that carries changed rows over to the databases beside the store, if there are any.

    Without ids all of the scope is carried over again.
    """
    if deps.graph is None and deps.vectors is None:
        return ()
    return (Job(new_id("j", now), "mirror", scope, now, tuple(ids)),)


def vector_jobs(vectors: Sequence[Embedded], now: Micros, deps: Deps) -> tuple[Job, ...]:
    """The jobs that carry vectors over to a vector database beside the store, if there is one."""
    jobs = [mirror_jobs(each.scope, each.ids, now, deps) for each in vectors if deps.vectors]
    return tuple(job for each in jobs for job in each)


async def run_mirror(job: Job, deps: Deps) -> None:
    """Bring rows up to date in the databases beside; a job without ids means all of its scope."""
    try:
        if deps.graph is not None:
            await _carry(job, deps.graph, deps)
        if deps.vectors is not None and deps.model is not None:
            await _index(job, deps.vectors, deps.model, deps)
    except Exception as error:  # the database's code or network, which may raise anything
        raise Unavailable(f"a database beside the store: {type(error).__name__}") from error
    await deps.store.apply(Batch(done=(job.job_id,)))


async def _index(job: Job, vectors: VectorIndex, model: Model, deps: Deps) -> None:
    """Embed the rows of a job again and upsert their vectors; those of rows that are gone go."""
    ids = frozenset(job.ids) or None
    where = Where(job.scope, kinds=MESSAGES | NOTES, ids=ids)
    if ids is None:
        await vectors.remove(job.scope)
    after: Position | None = None
    present: set[str] = set()
    while page := await deps.store.read(where, after=after, limit=_PAGE):
        for owner in {Scope(row.agent_id, row.user_id) for row in page}:
            rows = [row for row in page if (row.agent_id, row.user_id) == _pair(owner)]
            matrix = await deps.embed([row.content for row in rows], purpose="passage")
            await vectors.put(Embedded(owner, model, tuple(row.id for row in rows), matrix))
        present |= {row.id for row in page}
        after = page[-1].position
    gone = sorted((ids or frozenset()) - present)
    if gone:
        await vectors.remove(job.scope, gone)


def _pair(owner: Scope) -> tuple[str | None, str | None]:
    return owner.agent_id, owner.user_id


async def _carry(job: Job, graph: GraphMirror, deps: Deps) -> None:
    if job.ids:
        where = Where(job.scope, kinds=NOTES, ids=frozenset(job.ids))
        notes = await read_notes(deps.store, where, limit=len(job.ids))
        present = {note.note_id for note in notes}
        await graph.remove(job.scope, [name for name in job.ids if name not in present])
        await _put(notes, graph, deps)
        return
    await graph.remove(job.scope)
    after: Position | None = None
    while page := await read_notes(
        deps.store, Where(job.scope, kinds=NOTES), after=after, limit=_PAGE
    ):
        await _put(page, graph, deps)
        after = page[-1].position


async def _put(notes: Sequence[Note], graph: GraphMirror, deps: Deps) -> None:
    for note in notes:
        owner = Scope(note.agent_id, note.user_id)
        where = Where(owner, kinds=NOTES, ids=frozenset([note.note_id]))
        await graph.put(
            note, await read_relations(deps.store, Neighborhood(where, limit=_RELATIONS))
        )
