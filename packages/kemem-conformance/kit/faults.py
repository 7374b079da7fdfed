"""Stores with one fault each in messages; the suite must find every one of them."""

import asyncio
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kemem.errors import KeMemError
from kemem.records import Message, Model, Position, Row, Scope, Where
from kemem.records.batch import Applied, Batch
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_tables import Tables, key


class InclusiveUntil(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        until = None if where.until is None else where.until + 1
        return replace(where, until=until).matches(row)


class ExclusiveSince(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(row) and row.ts != where.since


class UserIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(replace(row, user_id=where.scope.user_id or row.user_id))


class UserAsPattern(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        asked = where.scope.user_id or row.user_id
        alike = row.user_id.startswith(asked)
        return where.matches(replace(row, user_id=asked) if alike else row)


class AgentIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(replace(row, agent_id=where.scope.agent_id or row.agent_id))


class SessionIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        asked = where.scope.session_id or row.session_id or ""
        return where.matches(replace(row, session_id=asked))


class RoleIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, role=None).matches(row)


class IdsIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, ids=None).matches(row)


class SensitiveSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, sensitive=True).matches(row)


class SensitiveMessagesSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        shown = replace(row, sensitive=False) if isinstance(row, Message) else row
        return where.matches(shown)


class SensitiveScanned(RamStore):
    def _messages(self, where: Where, **options: Any) -> list[Message]:
        return super()._messages(replace(where, sensitive=True), **options)


class NoIdsMeansAll(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, ids=where.ids or None).matches(row)


class CursorSkipsTies(RamStore):
    def _messages(
        self, where: Where, *, after: Position | None = None, **options: Any
    ) -> list[Message]:
        seen = super()._messages(where, after=after, **options)
        return [one for one in seen if after is None or one.ts != after.ts]


class CursorRepeatsTies(RamStore):
    def _messages(
        self, where: Where, *, after: Position | None = None, **options: Any
    ) -> list[Message]:
        is_newest_first = options.get("newest_first", True)
        start = after and replace(after, arrival=2**62 if is_newest_first else 0)
        return super()._messages(where, after=start, **options)


class TiesBackwards(RamStore):
    async def read(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Row]:
        seen = await super().read(where, limit=10**9, newest_first=newest_first)
        sign = -1 if newest_first else 1
        seen.sort(key=lambda one: (sign * one.ts, -sign * one.arrival))
        places = [one.position for one in seen]
        start = places.index(after) + 1 if after in places else 0
        return seen[start : start + limit]


class LimitBeforeFilter(RamStore):
    def _messages(self, where: Where, *, limit: int = 100, **options: Any) -> list[Message]:
        seen = super()._messages(Where(where.scope), limit=limit, **options)
        return [one for one in seen if where.matches(one)]


class ChangeIgnored(RamStore):
    def _same(self, known: Message, told: Message) -> bool:
        return True


class ChangeOverwrites(RamStore):
    def _put(
        self, draft: Tables, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        for message in messages:
            stored = draft.rows.get(key(message))
            known = stored.row if stored else None
            if isinstance(known, Message) and not self._same(known, message):
                del draft.rows[key(message)]
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


class Changed(RamStore):
    """Stores each message after a change; the base of some faults."""

    def _insert(self, draft: Tables, message: Message) -> Message:
        stored = super()._insert(draft, message)
        changed = self._changed(draft, stored, message)
        draft.rows[key(stored)] = replace(draft.rows[key(stored)], row=changed)
        return changed

    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        raise NotImplementedError


class TiesById(RamStore):
    async def read(self, where: Where, **options: Any) -> list[Row]:
        seen = await super().read(where, **options)
        sign = -1 if options.get("newest_first", True) else 1
        return sorted(seen, key=lambda one: (sign * one.ts, one.id))


class GivenTimesAreMoved(RamStore):
    def _insert(self, draft: Tables, message: Message) -> Message:
        stored = super()._insert(draft, replace(message, ingest_time=message.ts))
        changed = replace(stored, ingest_time=message.ingest_time)
        draft.rows[key(stored)] = replace(draft.rows[key(stored)], row=changed)
        return changed


class EqualTimesStayEqual(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, ts=told.ts)


class SequenceDoesNotGrow(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, sequence_no=1)


class SequenceCountsRows(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        session = Where(Scope(stored.agent_id, stored.user_id, stored.session_id))
        rows = [one for one in draft.rows.values() if session.matches(one.row)]
        return replace(stored, sequence_no=len(rows))


class FlagNotKept(Changed):
    def _changed(self, draft: Tables, stored: Message, told: Message) -> Message:
        return replace(stored, sensitive=False)


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


class ModelForgotten(RamStore):
    def _record(self, draft: Tables, model: Model) -> None:
        pass


class AnswersWhenClosed(RamStore):
    async def close(self) -> None:
        return None
