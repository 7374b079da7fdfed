"""Stores with one fault each in the journal; the suite must find every one of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kemem.records import Line, Scope, Where
from kemem.records.batch import Batch
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_tables import Tables, newest_first


class NothingIsReplaced(RamStore):
    def _append(self, draft: Tables, lines: Sequence[Line]) -> None:
        known = draft.journal
        super()._append(draft, [line for line in lines if (line.kind, line.id) not in known])


class KindsShareTheirIds(RamStore):
    def _append(self, draft: Tables, lines: Sequence[Line]) -> None:
        journal = draft.journal
        names = {line.id for line in lines}
        for at in [at for at in journal if at[1] in names]:
            del journal[at]
        super()._append(draft, lines)


class BodiesLoseTheirDepth(RamStore):
    def _append(self, draft: Tables, lines: Sequence[Line]) -> None:
        flat = [{key: str(value) for key, value in line.body.items()} for line in lines]
        super()._append(
            draft, [replace(line, body=body) for line, body in zip(lines, flat, strict=True)]
        )


class OldestFirst(RamStore):
    async def journal(self, kind: str, **asked: Any) -> list[Line]:
        limit = asked.pop("limit", 1000)
        return (await super().journal(kind, **asked))[::-1][:limit]


class TiesUnordered(RamStore):
    async def journal(self, kind: str, **asked: Any) -> list[Line]:
        found = await super().journal(kind, **asked)
        return sorted(found, key=lambda line: (line.ts, line.id), reverse=True)


class SinceIsExclusive(RamStore):
    async def journal(self, kind: str, **asked: Any) -> list[Line]:
        since = asked.pop("since", None)
        return await super().journal(kind, since=None if since is None else since + 1, **asked)


class UntilIsInclusive(RamStore):
    async def journal(self, kind: str, **asked: Any) -> list[Line]:
        until = asked.pop("until", None)
        return await super().journal(kind, until=None if until is None else until + 1, **asked)


class NobodyIsEverybody(RamStore):
    async def journal(self, kind: str, **asked: Any) -> list[Line]:
        return await super().journal(kind, **{**asked, "user_id": asked.get("user_id") or None})


class TrimmedWithTheBorder(RamStore):
    def _trim(self, draft: Tables, kind: str, before: int | None, keep: int | None) -> int:
        return super()._trim(draft, kind, None if before is None else before + 1, keep)


class OldestAreKept(RamStore):
    def _trim(self, draft: Tables, kind: str, before: int | None, keep: int | None) -> int:
        gone = super()._trim(draft, kind, before, None)
        own = newest_first(line for line in draft.journal.values() if line.kind == kind)
        newest = [] if keep is None else own[::-1][keep:]
        for line in newest:
            del draft.journal[kind, line.id]
        return gone + len(newest)


class TrimmedInEveryKind(RamStore):
    def _trim(self, draft: Tables, kind: str, before: int | None, keep: int | None) -> int:
        for other in {at[0] for at in draft.journal} - {kind}:
            super()._trim(draft, other, before, keep)
        return super()._trim(draft, kind, before, keep)


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
