"""Notes that a question asks for by their topic, in whatever words they say it."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.ports import Deps, read_notes
from kemem.ports.request import Candidates, SearchRequest
from kemem.records import NOTES, Match, Vector, Where
from kemem.records.filters import Filter
from kemem.text.advice import ADVISING
from kemem.text.reading import Question

_OF_TOPICS = 5  # notes of the topics that a question asks for
_FOR_ADVICE = 12  # notes that advice takes account of


async def asked_notes(
    question: Question | None, advice: Vector | None, where: Where, deps: Deps
) -> Sequence[Match]:
    """The notes of the topics that a question asks for; for advice, those nearest to a vector."""
    if question is None or not where.kinds & NOTES:
        return ()
    if advice is not None:
        return await _for_advice(advice, where, deps)
    if not question.topics:
        return ()
    within = replace(where, marks=question.topics)
    return [Match.of(it, 1.0) for it in await read_notes(deps.store, within, limit=_OF_TOPICS)]


async def _for_advice(advice: Vector, where: Where, deps: Deps) -> list[Match]:
    """Notes of tastes and limits."""
    own = () if where.filters is None else (where.filters,)
    known = Filter("AND", parts=(*own, Filter("in", "memory_type", ADVISING)))
    notes, nearest = replace(where, kinds=where.kinds & NOTES, filters=known), list[Match]()

    def select(candidates: Candidates) -> Sequence[Match]:
        nearest[:] = candidates.vectors[0] if candidates.vectors else ()
        return ()

    request = SearchRequest(notes, vectors=advice[None], model=deps.model, limit=_FOR_ADVICE)
    await deps.store.search(replace(request, select=select))
    return [it._replace(score=1.0) for it in nearest]
