"""Stores with one fault each in notes; the suite must find every one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kemem.ports.request import Ranking
from kemem.records import (
    MESSAGES,
    NOTES,
    Checkpoint,
    Embedded,
    Match,
    Message,
    Model,
    Note,
    Position,
    Rank,
    Row,
    Scope,
    Vector,
    Where,
)
from kemem.records.batch import Applied, Batch, Expected
from kemem.text.query import Query
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_ranking import Stored
from kemem_conformance.ram_tables import Key, Tables, key, pair


class NothingIsMerged(RamStore):
    def _twin(self, draft: Tables, note: Note) -> Note | None:
        return None


class MergedNoteStoredToo(RamStore):
    def _merge(self, draft: Tables, twin: Note, note: Note) -> None:
        super()._merge(draft, twin, note)
        self._arrive(draft, note)


class EndedNotesRevived(RamStore):
    def _twin(self, draft: Tables, note: Note) -> Note | None:
        for stored in draft.rows.values():
            if isinstance(stored.row, Note) and stored.row.digest == note.digest:
                open_one = replace(stored.row, valid_until=None)
                if super()._twin(Tables({key(open_one): replace(stored, row=open_one)}), note):
                    return stored.row
        return None


class MergedAcrossKinds(RamStore):
    def _twin(self, draft: Tables, note: Note) -> Note | None:
        for kind in sorted(NOTES):
            if twin := super()._twin(draft, replace(note, kind=kind)):
                return twin
        return None


class MergedAcrossSessions(RamStore):
    def _twin(self, draft: Tables, note: Note) -> Note | None:
        for session_id in {None, *(stored.row.session_id for stored in draft.rows.values())}:
            if twin := super()._twin(draft, replace(note, session_id=session_id)):
                return twin
        return None


class MergeLosesSources(RamStore):
    def _merge(self, draft: Tables, twin: Note, note: Note) -> None:
        super()._merge(draft, twin, replace(note, sources=()))


class DeletedMessagesStayCited(RamStore):
    def _uncite(self, draft: Tables, message: Message) -> None:
        pass


class CitedByAnotherOwner(RamStore):
    def _uncite(self, draft: Tables, message: Message) -> None:
        for agent_id, user_id in draft.directory.pairs:
            super()._uncite(draft, replace(message, agent_id=agent_id, user_id=user_id))


class AnythingMayBeCited(RamStore):
    def _cite_messages(self, draft: Tables, notes: Sequence[Note]) -> bool:
        return True


class SourcesIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(row) or replace(where, sources=None).matches(row)


class MessagesNeedNotBePresent(RamStore):
    def _is_present(self, draft: Tables, row: Row | Checkpoint) -> bool:
        return isinstance(row, Message) or super()._is_present(draft, row)


class OlderStatesArePresent(RamStore):
    def _is_present(self, draft: Tables, row: Row | Checkpoint) -> bool:
        return row in draft.checkpoints or super()._is_present(draft, row)


class ReadsMayAnswerMore(RamStore):
    def _holds(self, draft: Tables, expected: Expected) -> bool:
        known = {key(note) for note in expected.notes}
        fewer = draft.copy()
        fewer.rows = {at: stored for at, stored in draft.rows.items() if at in known}
        return super()._holds(fewer, expected)


class MergeTakesTheLastImportance(RamStore):
    def _merge(self, draft: Tables, twin: Note, note: Note) -> None:
        super()._merge(draft, replace(twin, importance=0.0), note)


class MergeTakesTheLastFlag(RamStore):
    def _merge(self, draft: Tables, twin: Note, note: Note) -> None:
        super()._merge(draft, replace(twin, sensitive=False), note)


class MergeKeepsTheFirstFlag(RamStore):
    def _merge(self, draft: Tables, twin: Note, note: Note) -> None:
        super()._merge(draft, twin, replace(note, sensitive=False))


class SensitiveNotesSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(replace(row, sensitive=False) if isinstance(row, Note) else row)


class SensitiveNotesListed(RamStore):
    def _notes(self, where: Where, **options: Any) -> list[Note]:
        return super()._notes(replace(where, sensitive=True), **options)


class SensitiveErasedByEveryone(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        return super()._drop(draft, replace(where, sensitive=True), batch)


class MergedLinksLost(RamStore):
    def _link(self, draft: Tables, batch: Batch, merged: Mapping[Key, str]) -> None:
        gone = {at[-1] for at in merged}
        links = tuple(link for link in batch.links if link.note_id not in gone)
        super()._link(draft, replace(batch, links=links), merged)


class MergedHistoryWritten(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        applied = await super().apply(batch)
        if self._tables:
            self._tables.history += [one for one in batch.changes if one.note_id in applied.merged]
        return applied


class StrangersLinksAccepted(RamStore):
    def _link(self, draft: Tables, batch: Batch, merged: Mapping[Key, str]) -> None:
        told = {note.note_id for note in batch.notes}
        links = tuple(link for link in batch.links if link.note_id in told)
        super()._link(draft, replace(batch, links=links), merged)


class ChangedNoteKeepsItsLinks(RamStore):
    def _change(self, draft: Tables, note: Note) -> None:
        edges, entities = dict(draft.graph.edges), dict(draft.graph.entities)
        super()._change(draft, note)
        draft.graph.edges, draft.graph.entities = edges, entities


class ChangedNoteKeepsItsVector(RamStore):
    def _change(self, draft: Tables, note: Note) -> None:
        vectors = dict(draft.vectors)
        super()._change(draft, note)
        draft.vectors.update(vectors)


class ChangedNoteKeepsItsPlace(RamStore):
    def _change(self, draft: Tables, note: Note) -> None:
        arrival = draft.rows[key(note)].arrival
        super()._change(draft, note)
        draft.rows[key(note)] = replace(draft.rows[key(note)], arrival=arrival)


class ChangedNoteKeepsItsWords(RamStore):
    def _change(self, draft: Tables, note: Note) -> None:
        words = draft.rows[key(note)].words
        super()._change(draft, note)
        draft.rows[key(note)] = replace(draft.rows[key(note)], words=words)


class EveryChangeIsAnArrival(RamStore):
    def _change(self, draft: Tables, note: Note) -> None:
        super()._change(draft, replace(note, content=f"{note.content} "))
        super()._change(draft, note)


class KeywordsNotIndexed(RamStore):
    def _arrive(self, draft: Tables, row: Row) -> None:
        super()._arrive(draft, row)
        if isinstance(row, Note):
            bare = Tables()
            super()._arrive(bare, replace(row, keywords=()))
            words = bare.rows[key(row)].words
            draft.rows[key(row)] = replace(draft.rows[key(row)], words=words)


class ChangeMixesOldAndNew(RamStore):
    def _change(self, draft: Tables, note: Note) -> None:
        known = draft.rows[key(note)].row
        super()._change(draft, replace(note, metadata={**known.metadata, **note.metadata}))


class FiltersIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, filters=None).matches(row)


class FiltersIgnoredInSearch(RamStore):
    def _ranking(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Ranking:
        bare = replace(where, filters=None)
        return super()._ranking(bare, query, limit=limit, after=after)


class FiltersIgnoredInNearest(RamStore):
    def _nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        return super()._nearest(replace(where, filters=None), vector, model, limit)


class FiltersIgnoredInDrops(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        return super()._drop(draft, replace(where, filters=None), batch)


class MissingIsNotUnequal(RamStore):
    """As SQL has it: what compares with NULL is neither equal nor unequal."""

    def _sees(self, where: Where, row: Row) -> bool:
        bare = where.filters and where.filters.operator == "ne"
        missing = bare and where.filters and row.field(where.filters.key) is None
        return where.matches(row) and not missing


class EndedNotesSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, valid_at=None).matches(row)


class EndsAMomentLate(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        at = None if where.valid_at is None else where.valid_at - 1
        return replace(where, valid_at=at).matches(row)


class KnownAMomentLate(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        by = None if where.known_by is None else where.known_by - 1
        return replace(where, known_by=by).matches(row)


class ExpiryIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(replace(row, expires=None) if isinstance(row, Note) else row)


class TopicsAreNoMarks(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(replace(row, topic=None) if isinstance(row, Note) else row)


class KindsIgnored(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, kinds=MESSAGES | NOTES).matches(row)


class SharedOfEveryAgent(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        shared = row.agent_id if where.shared is not None else None
        return replace(where, shared=shared).matches(row)


class SharedMessagesSeen(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        shared = where.shared is not None and pair(row) == (where.shared, "")
        opened = replace(where, shared=None, scope=Scope(row.agent_id)) if shared else where
        return opened.matches(row)


class SharedNotesHidden(RamStore):
    def _sees(self, where: Where, row: Row) -> bool:
        return replace(where, shared=None).matches(row)


class StatisticsOfAllKinds(RamStore):
    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        return super()._ranked(replace(where, kinds=MESSAGES | NOTES), mark)


class StatisticsOfOpenNotes(RamStore):
    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        rows = super()._ranked(where, mark)
        bare = Where(Scope("x"), valid_at=where.valid_at, kinds=NOTES)
        return [one for one in rows if isinstance(one.row, Message) or bare._admits(one.row)]


class StatisticsWithoutTheShared(RamStore):
    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        alone = super()._ranked(replace(where, shared=None), mark)
        hidden = [one for one in super()._ranked(where, mark) if self._sees(where, one.row)]
        return [*alone, *(one for one in hidden if one not in alone)]


class NotesGetNoVectors(RamStore):
    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        before = dict(draft.vectors)
        super()._embed(draft, embedded)
        messages = {at: way for at, way in draft.vectors.items() if at[0] == "message"}
        draft.vectors = before | messages


class NoteCursorSkipsTies(RamStore):
    def _notes(self, where: Where, *, after: Position | None = None, **options: Any) -> list[Note]:
        seen = super()._notes(where, after=after, **options)
        return [one for one in seen if after is None or one.ts != after.ts]
