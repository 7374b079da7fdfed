"""Relations carried over to a graph database beside the store."""

from collections.abc import Sequence

from kemem.batch import Batch, Job
from kemem.errors import Unavailable
from kemem.ports import GraphMirror, Parts
from kemem.types import NOTES, Note, Position, Scope, Where

_PAGE = 100
_RELATIONS = 1_000  # of one note


async def mirror(job: Job, parts: Parts) -> None:
    """Bring notes up to date in the mirror; a job without ids means all of its scope."""
    graph = parts.graph
    if graph is not None:
        try:
            await _carry(job, graph, parts)
        except Exception as error:  # the database's code or network, which may raise anything
            raise Unavailable(f"the graph database failed: {type(error).__name__}") from error
    await parts.store.apply(Batch(done=(job.job_id,)))


async def _carry(job: Job, graph: GraphMirror, parts: Parts) -> None:
    if job.ids:
        where = Where(job.scope, kinds=NOTES, ids=frozenset(job.ids))
        notes = await parts.store.notes(where, limit=len(job.ids))
        present = {note.note_id for note in notes}
        await graph.remove(job.scope, [name for name in job.ids if name not in present])
        await _put(notes, graph, parts)
        return
    await graph.remove(job.scope)
    after: Position | None = None
    while page := await parts.store.notes(Where(job.scope, kinds=NOTES), after=after, limit=_PAGE):
        await _put(page, graph, parts)
        after = Position(page[-1].ts, page[-1].note_id)


async def _put(notes: Sequence[Note], graph: GraphMirror, parts: Parts) -> None:
    for note in notes:
        owner = Scope(note.agent_id, note.user_id)
        where = Where(owner, kinds=NOTES, ids=frozenset([note.note_id]))
        await graph.put(note, await parts.store.around(where, (), limit=_RELATIONS))
