"""Stores with one fault each in words, vectors or jobs; the suite must find every one of them."""

from dataclasses import replace

from kemem.errors import KeMemError
from kemem.ports.request import Ranking
from kemem.records import (
    Embedded,
    Match,
    Message,
    Micros,
    Model,
    Rank,
    Row,
    Scope,
    Vector,
    Where,
)
from kemem.records.batch import Applied, Batch, Job
from kemem.text.query import ASKING, Query, spoken_by
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_ranking import Direction, Stored
from kemem_conformance.ram_tables import Key, Tables, key


class DropLeavesWords(RamStore):
    """The rows are gone, but a search still finds them."""

    def __init__(self) -> None:
        super().__init__()
        self._ghosts: dict[Key, Stored] = {}

    async def apply(self, batch: Batch) -> Applied:
        before = self._open().rows
        applied = await super().apply(batch)
        after = self._open().rows
        self._ghosts |= {key: row for key, row in before.items() if key not in after}
        return applied

    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        seen = Where(where.scope, kinds=where.kinds)
        ghosts = [one for one in self._ghosts.values() if seen.matches(one.row)]
        return [*super()._ranked(where, mark), *ghosts]


class DropLeavesStatistics(DropLeavesWords):
    """Dropped rows are not found, but they still count."""

    def _ranking(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Ranking:
        found = super()._ranking(where, query, limit=10**9, after=after)
        ghosts = [Match.of(one.row, 0) for one in self._ghosts.values()]
        hits = tuple(hit for hit in found.matches if hit._replace(score=0) not in ghosts)
        gone = len(found.matches) - len(hits)
        return replace(found, matches=hits[:limit], total=found.total - gone)


class DropLeavesVectors(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        vectors = dict(draft.vectors)
        dropped = super()._drop(draft, where, batch)
        draft.vectors.update(vectors)
        return dropped


class SharedStatistics(RamStore):
    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        return [row for row in self._open().rows.values() if row.arrival <= mark]


class FilteredStatistics(RamStore):
    """Statistics of the session that was asked for instead of the whole pair."""

    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        seen = Where(where.scope, kinds=where.kinds)
        return [one for one in super()._ranked(where, mark) if seen.matches(one.row)]


class PagesSeeNewRows(RamStore):
    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        return super()._ranked(where, 10**9)


class SearchIgnoresItsCursor(RamStore):
    def _ranking(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Ranking:
        start = None if after is None else replace(after, score=2, id="")
        return super()._ranking(where, query, limit=limit, after=start)


class SensitiveFoundByWords(RamStore):
    def _ranking(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Ranking:
        shown = replace(where, sensitive=True)
        return super()._ranking(shown, query, limit=limit, after=after)


class SensitiveIsNear(RamStore):
    def _nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        return super()._nearest(replace(where, sensitive=True), vector, model, limit)


class FreedNumbersAreTakenAgain(RamStore):
    """A dropped row's place in the order of arrival goes to the next that comes."""

    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        dropped = super()._drop(draft, where, batch)
        draft.arrivals = max((row.arrival for row in draft.rows.values()), default=0)
        return dropped


class TotalOfThePage(RamStore):
    def _ranking(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Ranking:
        found = super()._ranking(where, query, limit=limit, after=after)
        return replace(found, total=len(found.matches))


class WordsNotRebuilt(RamStore):
    def _rebuild(self, draft: Tables) -> None:
        rows = draft.rows
        rows.update({key: replace(row, words="") for key, row in rows.items()})


class SpeakersNotIndexed(RamStore):
    def _insert(self, draft: Tables, message: Message) -> Message:
        silent = super()._insert(draft, replace(message, metadata={}))
        stored = replace(silent, metadata=message.metadata)
        draft.rows[key(stored)] = replace(draft.rows[key(stored)], row=stored)
        return stored


class NothingIsLent(RamStore):
    def _lends(self, where: Where, row: Row) -> bool:
        return False


class SensitiveWordsLent(RamStore):
    def _lends(self, where: Where, row: Row) -> bool:
        return super()._lends(replace(where, sensitive=True), row)


class LaterWordsLent(RamStore):
    def _lends(self, where: Where, row: Row) -> bool:
        return super()._lends(replace(where, until=None, known_by=None), row)


class OnlyAnswersLend(RamStore):
    def _lends(self, where: Where, row: Row) -> bool:
        return self._sees(where, row)


class MarksLost(RamStore):
    """The words are indexed, some of the marks behind them are not."""

    lost: str

    def _arrive(self, draft: Tables, row: Row) -> None:
        super()._arrive(draft, row)
        stored = draft.rows[key(row)]
        kept = [it for it in stored.words.split(" ") if not it.startswith(self.lost)]
        draft.rows[key(row)] = replace(stored, words=" ".join(kept))


class SpeakersNotMarked(MarksLost):
    lost = spoken_by("")


class QuestionsNotMarked(MarksLost):
    (lost,) = ASKING.tokens


class OtherModelsCompared(RamStore):
    def _embedded(self, model: Model) -> dict[Key, Direction]:
        vectors = self._open().vectors
        return {key: way for key, (by, way) in vectors.items() if by.width == model.width}


class FirstVectorStays(RamStore):
    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        before = dict(draft.vectors)
        super()._embed(draft, embedded)
        draft.vectors.update(before)


class VectorsIgnoreTheirScope(RamStore):
    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        for scope in {Scope(one.row.agent_id) for one in draft.rows.values()}:
            super()._embed(draft, replace(embedded, scope=scope))


class BadVectorsSkipped(RamStore):
    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        try:
            super()._embed(draft, embedded)
        except KeMemError:
            return


class NegativeSimilarity(RamStore):
    def _nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        hits = super()._nearest(where, vector, model, limit)
        return [hit._replace(score=2 * hit.score - 1) for hit in hits]


class JobClaimedTwice(RamStore):
    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        return await super().claim(now, 0)


class FailedJobClaimed(RamStore):
    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        jobs = self._open().jobs
        jobs.update({name: replace(job, state="pending") for name, job in jobs.items()})
        return await super().claim(now, lease)


class JobNeverComesBack(RamStore):
    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        return await super().claim(now, 10**18)


class JobClaimedEarly(RamStore):
    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        return await super().claim(now + 1, lease)
