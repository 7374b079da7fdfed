"""Stores with one fault each in what is withdrawn; the suite must find every one of them."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.records import Checkpoint, Message, Micros, Row, Where
from kemem.records.batch import Batch
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_tables import Key, Tables


class WithdrawnSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, withdrawn=True).matches(row)


class WithdrawnHidden(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, withdrawn=False).matches(row)


class WithdrawnFound(RamStore):
    def _searched(self, where: Where) -> Where:
        return where


class WithdrawalKeepsStates(RamStore):
    def _withdraw(self, draft: Tables, where: Where) -> None:
        states = draft.checkpoints
        super()._withdraw(draft, where)
        draft.checkpoints = states


class WithdrawalKeepsGeneration(RamStore):
    def _withdraw(self, draft: Tables, where: Where) -> None:
        changes = draft.changes.copy()
        super()._withdraw(draft, where)
        draft.changes = changes


class WithdrawalTakesAll(RamStore):
    def _withdraw(self, draft: Tables, where: Where) -> None:
        super()._withdraw(draft, replace(where, ids=None))


class WithdrawnIsPresent(RamStore):
    def _is_present(self, draft: Tables, row: Row | Checkpoint) -> bool:
        return isinstance(row, Message) or super()._is_present(draft, row)


class WithdrawnSurvivesDrops(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        kept = {
            at: stored
            for at, stored in draft.rows.items()
            if isinstance(stored.row, Message) and stored.row.withdrawn
        }
        dropped = super()._drop(draft, where, batch)
        draft.rows.update(kept)
        return dropped


class PutTakesWithdrawalBack(RamStore):
    def _put(
        self, draft: Tables, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        names = {message.message_id for message in messages}
        for at, stored in draft.rows.items():
            if isinstance(stored.row, Message) and stored.row.message_id in names:
                draft.rows[at] = replace(stored, row=replace(stored.row, withdrawn=False))
        return super()._put(draft, messages)


class BranchesNeverEnd(RamStore):
    def _end_branches(self, draft: Tables) -> dict[Key, Micros]:
        return {}


class BranchesStayEnded(RamStore):
    def _end_branches(self, draft: Tables) -> dict[Key, Micros]:
        before = {
            at: stored.row.valid_until
            for at, stored in draft.rows.items()
            if isinstance(stored.row, Message) and stored.row.valid_until is not None
        }
        ends = super()._end_branches(draft)
        for at, until in before.items():
            row = draft.rows[at].row
            if isinstance(row, Message):
                draft.rows[at] = replace(draft.rows[at], row=replace(row, valid_until=until))
        return ends


class EndedMessagesSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return (replace(where, valid_at=None) if isinstance(row, Message) else where).matches(row)
