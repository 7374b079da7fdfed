"""Stores with one fault each in messages; the suite must find every one of them."""

import asyncio
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kemem.errors import KeMemError
from kemem.testing.ram import RamStore, Tables
from kemem.types import (
    Applied,
    Batch,
    Message,
    Model,
    Position,
    Scope,
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


class ModelForgotten(RamStore):
    async def embedded_by(self, model: Model) -> Model | None:
        await super().embedded_by(model)
        return model


class AnswersWhenClosed(RamStore):
    async def close(self) -> None:
        return None
