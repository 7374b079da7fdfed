"""Stores with one fault each; the suite must find every one of them."""

import asyncio
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kemem.errors import KeMemError
from kemem.testing.ram import Direction, Key, RamStore, Row, Tables
from kemem.text.query import Query
from kemem.types import (
    Applied,
    Batch,
    Embedded,
    Found,
    Hit,
    Job,
    Message,
    Micros,
    Model,
    Position,
    Rank,
    Scope,
    Vector,
    Where,
)


class InclusiveUntil(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        until = None if where.until is None else where.until + 1
        return replace(where, until=until).matches(message)


class ExclusiveSince(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        return where.matches(message) and message.ts != where.since


class UserIgnored(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        return where.matches(replace(message, user_id=where.scope.user_id or message.user_id))


class UserAsPattern(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        asked = where.scope.user_id or message.user_id
        alike = message.user_id.startswith(asked)
        return where.matches(replace(message, user_id=asked) if alike else message)


class AgentIgnored(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        return where.matches(replace(message, agent_id=where.scope.agent_id or message.agent_id))


class SessionIgnored(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        asked = where.scope.session_id or message.session_id
        return where.matches(replace(message, session_id=asked))


class RoleIgnored(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        return replace(where, role=None).matches(message)


class IdsIgnored(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        return replace(where, ids=None).matches(message)


class NoIdsMeansAll(RamStore):
    def _sees(self, where: Where, message: Message) -> bool:
        return replace(where, ids=where.ids or None).matches(message)


class CursorSkipsTies(RamStore):
    async def scan(
        self, where: Where, *, after: Position | None = None, **options: Any
    ) -> list[Message]:
        seen = await super().scan(where, after=after, **options)
        return [one for one in seen if after is None or one.ts != after.ts]


class CursorRepeatsTies(RamStore):
    async def scan(
        self, where: Where, *, after: Position | None = None, **options: Any
    ) -> list[Message]:
        start = None if after is None else replace(after, message_id="")
        return await super().scan(where, after=start, **options)


class TiesBackwards(RamStore):
    async def scan(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Message]:
        seen = await super().scan(where, limit=10**9, newest_first=not newest_first)
        seen.reverse()
        places = [(one.ts, one.message_id) for one in seen]
        start = places.index((after.ts, after.message_id)) + 1 if after else 0
        return seen[start : start + limit]


class LimitBeforeFilter(RamStore):
    async def scan(self, where: Where, *, limit: int = 100, **options: Any) -> list[Message]:
        seen = await super().scan(Where(where.scope), limit=limit, **options)
        return [one for one in seen if where.matches(one)]


class ChangeIgnored(RamStore):
    def _same(self, known: Message, told: Message) -> bool:
        return True


class ChangeOverwrites(RamStore):
    def _put(
        self, draft: Tables, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        for message in messages:
            row = draft.rows.get((message.user_id, message.message_id))
            if row and not self._same(row.message, message):
                del draft.rows[message.user_id, message.message_id]
        return super()._put(draft, messages)


class RetryWithAnotherTimeRefused(RamStore):
    def _same(self, known: Message, told: Message) -> bool:
        return super()._same(known, told) and known.ts == told.ts


class MetadataNotCompared(RamStore):
    def _same(self, known: Message, told: Message) -> bool:
        return super()._same(known, replace(told, metadata=known.metadata))


class NoTransaction(RamStore):
    def _draft(self) -> Tables:
        return self._open()


class JobsSurviveAFailure(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        try:
            return await super().apply(batch)
        except KeMemError:
            await super().apply(Batch(jobs=batch.jobs, done=batch.done))
            raise


class PutBeforeDrop(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        applied = await super().apply(replace(batch, drop=()))
        dropped = await super().apply(Batch(drop=batch.drop))
        return replace(applied, dropped=dropped.dropped)


class LostUpdates(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        before = self._open()
        self._tables = before.copy()
        applied = await super().apply(batch)
        after, self._tables = self._tables, before
        await asyncio.sleep(0)
        self._tables = after
        return applied


class DropLeavesWords(RamStore):
    """The rows are gone, but a search still finds them."""

    def __init__(self) -> None:
        super().__init__()
        self._ghosts: dict[Key, Row] = {}

    async def apply(self, batch: Batch) -> Applied:
        before = self._open().rows
        applied = await super().apply(batch)
        after = self._open().rows
        self._ghosts |= {key: row for key, row in before.items() if key not in after}
        return applied

    def _ranked(self, scope: Scope, mark: int) -> list[Row]:
        ghosts = [row for row in self._ghosts.values() if Where(scope).matches(row.message)]
        return [*super()._ranked(scope, mark), *ghosts]


class DropLeavesStatistics(DropLeavesWords):
    """Dropped rows are not found, but they still count."""

    async def search(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Found:
        found = await super().search(where, query, limit=10**9, after=after)
        ghosts = [row.message for row in self._ghosts.values()]
        hits = tuple(hit for hit in found.hits if hit.message not in ghosts)
        gone = len(found.hits) - len(hits)
        return replace(found, hits=hits[:limit], total=found.total - gone)


class DropLeavesVectors(RamStore):
    def _drop(self, draft: Tables, where: Where) -> int:
        vectors = dict(draft.vectors)
        dropped = super()._drop(draft, where)
        draft.vectors.update(vectors)
        return dropped


class SharedStatistics(RamStore):
    def _ranked(self, scope: Scope, mark: int) -> list[Row]:
        return [row for row in self._open().rows.values() if row.arrival <= mark]


class FilteredStatistics(RamStore):
    """Statistics of the session that was asked for instead of the whole pair."""

    def _ranked(self, scope: Scope, mark: int) -> list[Row]:
        return [row for row in super()._ranked(scope, mark) if Where(scope).matches(row.message)]


class PagesSeeNewRows(RamStore):
    def _ranked(self, scope: Scope, mark: int) -> list[Row]:
        return super()._ranked(scope, 10**9)


class FreedNumbersAreTakenAgain(RamStore):
    """A dropped row's place in the order of arrival goes to the next that comes."""

    def _drop(self, draft: Tables, where: Where) -> int:
        dropped = super()._drop(draft, where)
        draft.arrivals = max((row.arrival for row in draft.rows.values()), default=0)
        return dropped


class TotalOfThePage(RamStore):
    async def search(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Found:
        found = await super().search(where, query, limit=limit, after=after)
        return replace(found, total=len(found.hits))


class WordsNotRebuilt(RamStore):
    async def rebuild_words(self) -> None:
        rows = self._open().rows
        rows.update({key: replace(row, words="") for key, row in rows.items()})


class SpeakersNotIndexed(RamStore):
    def _insert(self, draft: Tables, message: Message) -> Message:
        silent = super()._insert(draft, replace(message, metadata={}))
        stored = replace(silent, metadata=message.metadata)
        key = (stored.user_id, stored.message_id)
        draft.rows[key] = replace(draft.rows[key], message=stored)
        return stored


class Changed(RamStore):
    """Stores each message after a change; the base of some faults."""

    def _insert(self, draft: Tables, message: Message) -> Message:
        stored = super()._insert(draft, message)
        key = (stored.user_id, stored.message_id)
        changed = self._changed(draft, stored, message)
        draft.rows[key] = replace(draft.rows[key], message=changed)
        return changed

    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        raise NotImplementedError


class EqualTimesStayEqual(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, ts=told.ts)


class SequenceDoesNotGrow(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, sequence_no=1)


class SequenceCountsRows(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        session = Where(Scope(stored.agent_id, stored.user_id, stored.session_id))
        rows = [row for row in draft.rows.values() if session.matches(row.message)]
        return replace(stored, sequence_no=len(rows))


class NulStripped(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, content=stored.content.replace("\0", ""))


class TextComposed(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, content=unicodedata.normalize("NFC", stored.content))


class AnswersAsTold(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        applied = await super().apply(batch)
        told = {(one.user_id, one.message_id): one for one in reversed(batch.put)}
        inserted = tuple(told[one.user_id, one.message_id] for one in applied.inserted)
        return replace(applied, inserted=inserted)


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
        for scope in {Scope(row.message.agent_id) for row in draft.rows.values()}:
            super()._embed(draft, replace(embedded, scope=scope))


class BadVectorsSkipped(RamStore):
    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        try:
            super()._embed(draft, embedded)
        except KeMemError:
            return


class NegativeSimilarity(RamStore):
    async def nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Hit]:
        hits = await super().nearest(where, vector, model, limit)
        return [replace(hit, score=2 * hit.score - 1) for hit in hits]


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


class ModelForgotten(RamStore):
    async def embedded_by(self, model: Model) -> Model | None:
        await super().embedded_by(model)
        return model


class AnswersWhenClosed(RamStore):
    async def close(self) -> None:
        return None
