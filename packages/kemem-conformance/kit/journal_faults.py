"""Stores with one fault each in the journal; the suite must find every one of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kemem.batch import Batch
from kemem.records import Line, Scope, Where
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_tables import Tables


class NothingIsReplaced(RamStore):
    async def note(self, lines: Sequence[Line]) -> None:
        known = self._open().journal
        await super().note([line for line in lines if (line.kind, line.id) not in known])


class KindsShareTheirIds(RamStore):
    async def note(self, lines: Sequence[Line]) -> None:
        journal = self._open().journal
        names = {line.id for line in lines}
        for at in [at for at in journal if at[1] in names]:
            del journal[at]
        await super().note(lines)


class BodiesLoseTheirDepth(RamStore):
    async def note(self, lines: Sequence[Line]) -> None:
        flat = [{key: str(value) for key, value in line.body.items()} for line in lines]
        await super().note(
            [replace(line, body=body) for line, body in zip(lines, flat, strict=True)]
        )


class OldestFirst(RamStore):
    async def lines(self, kind: str, **asked: Any) -> list[Line]:
        limit = asked.pop("limit", 1000)
        return (await super().lines(kind, **asked))[::-1][:limit]


class TiesUnordered(RamStore):
    async def lines(self, kind: str, **asked: Any) -> list[Line]:
        found = await super().lines(kind, **asked)
        return sorted(found, key=lambda line: (line.ts, line.id), reverse=True)


class SinceIsExclusive(RamStore):
    async def lines(self, kind: str, **asked: Any) -> list[Line]:
        since = asked.pop("since", None)
        return await super().lines(kind, since=None if since is None else since + 1, **asked)


class UntilIsInclusive(RamStore):
    async def lines(self, kind: str, **asked: Any) -> list[Line]:
        until = asked.pop("until", None)
        return await super().lines(kind, until=None if until is None else until + 1, **asked)


class NobodyIsEverybody(RamStore):
    async def lines(self, kind: str, **asked: Any) -> list[Line]:
        return await super().lines(kind, **{**asked, "user_id": asked.get("user_id") or None})


class TrimmedWithTheBorder(RamStore):
    async def trim(self, kind: str, *, before: int | None = None, keep: int | None = None) -> int:
        return await super().trim(kind, before=None if before is None else before + 1, keep=keep)


class OldestAreKept(RamStore):
    async def trim(self, kind: str, *, before: int | None = None, keep: int | None = None) -> int:
        gone = await super().trim(kind, before=before)
        newest = [] if keep is None else (await self.lines(kind))[::-1][keep:]
        for line in newest:
            del self._open().journal[kind, line.id]
        return gone + len(newest)


class TrimmedInEveryKind(RamStore):
    async def trim(self, kind: str, *, before: int | None = None, keep: int | None = None) -> int:
        for other in {at[0] for at in self._open().journal} - {kind}:
            await super().trim(other, before=before, keep=keep)
        return await super().trim(kind, before=before, keep=keep)


class ErasureLeavesTheJournal(RamStore):
    def _forget_lines(self, draft: Tables, scope: Scope) -> None:
        pass


class ErasureEmptiesTheJournal(RamStore):
    def _forget_lines(self, draft: Tables, scope: Scope) -> None:
        draft.journal.clear()


class AgentsLeaveTheirUsersLines(RamStore):
    def _forget_lines(self, draft: Tables, scope: Scope) -> None:
        if scope.user_id is not None:
            super()._forget_lines(draft, scope)


class SessionsTakeTheirUsersLines(RamStore):
    def _erase(self, draft: Tables, scope: Scope) -> None:
        super()._erase(draft, scope)
        if scope.user_id:
            self._forget_lines(draft, scope)


class EveryDropErases(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        self._forget_lines(draft, where.scope)
        return super()._drop(draft, where, batch)


class LinesAreCounted(RamStore):
    async def generation(self, where: Where) -> str:
        return f"{await super().generation(where)} {len(self._open().journal)}"
