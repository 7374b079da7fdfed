"""Relations carried over to a graph database beside the store."""

from collections.abc import Sequence

from kemem.batch import Batch, Job
from kemem.errors import Unavailable
from kemem.ports import Deps, GraphMirror, read_notes, read_relations
from kemem.records import NOTES, Note, Position, Scope, Where
from kemem.request import Neighborhood

_PAGE = 100
_RELATIONS = 1_000  # of one note


async def mirror(job: Job, deps: Deps) -> None:
    """Bring notes up to date in the mirror; a job without ids means all of its scope."""
    graph = deps.graph
    if graph is not None:
        try:
            await _carry(job, graph, deps)
        except Exception as error:  # the database's code or network, which may raise anything
            raise Unavailable(f"the graph database failed: {type(error).__name__}") from error
    await deps.store.apply(Batch(done=(job.job_id,)))


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
        after = Position(page[-1].ts, page[-1].note_id)


async def _put(notes: Sequence[Note], graph: GraphMirror, deps: Deps) -> None:
    for note in notes:
        owner = Scope(note.agent_id, note.user_id)
        where = Where(owner, kinds=NOTES, ids=frozenset([note.note_id]))
        await graph.put(
            note, await read_relations(deps.store, Neighborhood(where, limit=_RELATIONS))
        )
