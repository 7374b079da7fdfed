"""Stores with one fault each in drops, history, states, the directory or the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kemem.records import (
    Change,
    Checkpoint,
    Embedded,
    Entry,
    Link,
    Message,
    Micros,
    Note,
    Relation,
    Row,
    Scope,
    Where,
)
from kemem.records.batch import Applied, Batch, Job, Use
from kemem_conformance.ram import RamStore
from kemem_conformance.ram_tables import Key, Tables, key, pair


class DropLeavesLinks(RamStore):
    def _remove(self, draft: Tables, row: Row) -> None:
        edges, entities = dict(draft.graph.edges), dict(draft.graph.entities)
        super()._remove(draft, row)
        draft.graph.edges, draft.graph.entities = edges, entities


class DropLeavesEntities(RamStore):
    def _remove(self, draft: Tables, row: Row) -> None:
        entities = dict(draft.graph.entities)
        super()._remove(draft, row)
        draft.graph.entities = entities


class DropTakesSupportedRelations(RamStore):
    def _remove(self, draft: Tables, row: Row) -> None:
        for edge, note_ids in list(draft.graph.edges.items()):
            if edge[0] == pair(row) and row.id in note_ids:
                del draft.graph.edges[edge]
        super()._remove(draft, row)


class DropLeavesHistory(RamStore):
    def _remove(self, draft: Tables, row: Row) -> None:
        history = list(draft.history)
        super()._remove(draft, row)
        draft.history = history


class DropIsNotRecorded(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        dropped = super()._drop(draft, where, batch)
        draft.history = [line for line in draft.history if line.event != "delete"]
        return dropped


class DropRecordsTheText(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        texts = {key(one.row): one.row.content for one in draft.rows.values()}
        dropped = super()._drop(draft, where, batch)
        draft.history = [
            replace(line, before=texts.get(("note", *pair(line), line.note_id)))
            if line.event == "delete"
            else line
            for line in draft.history
        ]
        return dropped


class DropLeavesStates(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        saved = list(draft.checkpoints)
        dropped = super()._drop(draft, where, batch)
        draft.checkpoints = saved
        return dropped


class ErasureIsRecorded(RamStore):
    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        noted = [one.row for one in draft.rows.values() if where.matches(one.row)]
        dropped = super()._drop(draft, where, batch)
        if where.everything:
            lines = (Change(*pair(row), row.id, "delete", batch.at) for row in noted)
            draft.history += [*lines]
        return dropped


class ErasureLeaves(RamStore):
    """Erases all but one table; the base of some faults."""

    table = ""

    def _erase(self, draft: Tables, scope: Scope) -> None:
        before = getattr(draft.copy(), self.table)
        super()._erase(draft, scope)
        setattr(draft, self.table, before)


class ErasureLeavesHistory(ErasureLeaves):
    table = "history"


class ErasureLeavesStates(ErasureLeaves):
    table = "checkpoints"


class ErasureLeavesSessions(ErasureLeaves):
    table = "directory"


class ErasureLeavesJobs(ErasureLeaves):
    table = "jobs"


class ErasureForgetsStrangersJobs(RamStore):
    def _erase(self, draft: Tables, scope: Scope) -> None:
        super()._erase(draft, scope)
        draft.jobs.clear()


class ConditionIgnored(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        return await super().apply(replace(batch, only_if=()))


class JobsThatGrewAreTheSame(RamStore):
    def _is_open(self, draft: Tables, job: Job) -> bool:
        return job.job_id in draft.jobs


class KnownMessagesGetJobs(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        applied = await super().apply(batch)
        if not applied.refused:
            open_jobs = (job for job in batch.jobs if job.job_id not in batch.done)
            await super().apply(Batch(jobs=tuple(open_jobs)))
        return applied


class RefusedJobsWritten(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        applied = await super().apply(batch)
        if applied.refused:
            await super().apply(Batch(jobs=batch.jobs, done=batch.done))
        return applied


class UseIsAChange(RamStore):
    def _count(self, draft: Tables, use: Use) -> None:
        super()._count(draft, use)
        at = ("note", use.agent_id, use.user_id, use.note_id)
        if at in draft.rows and isinstance(note := draft.rows[at].row, Note):
            draft.rows[at] = replace(draft.rows[at], row=replace(note, updated=use.at))


class UsesNotAdded(RamStore):
    def _count(self, draft: Tables, use: Use) -> None:
        super()._count(draft, use)
        at = ("note", use.agent_id, use.user_id, use.note_id)
        if at in draft.rows and isinstance(note := draft.rows[at].row, Note):
            draft.rows[at] = replace(draft.rows[at], row=replace(note, uses=use.count))


class StrangerOwnsTheNote(RamStore):
    def _owners(self, scope: Scope | None, note_id: str | None) -> list[Entry]:
        found = super()._owners(scope, note_id)
        return [replace(it, id=it.id or "u_") for it in found]


class HistoryOfEveryUser(RamStore):
    async def history(self, scope: Scope, **options: Any) -> list[Change]:
        return await super().history(replace(scope, user_id=None, agent_id="agent"), **options)


class HistoryOldestFirst(RamStore):
    async def history(self, scope: Scope, *, limit: int = 100, **options: Any) -> list[Change]:
        return (await super().history(scope, limit=10**9, **options))[::-1][:limit]


class StatesNeverGo(RamStore):
    def _save(self, draft: Tables, checkpoint: Checkpoint) -> None:
        super()._save(draft, checkpoint)
        if checkpoint not in draft.checkpoints:
            draft.checkpoints.append(checkpoint)


class OneUsersStatesPushOutAnothers(RamStore):
    def _save(self, draft: Tables, checkpoint: Checkpoint) -> None:
        super()._save(draft, checkpoint)
        draft.checkpoints = draft.checkpoints[-10:]


class EndLeavesStates(RamStore):
    def _end(self, draft: Tables, scope: Scope, at: Micros) -> None:
        draft.directory.end(scope, at)


def ended_sessions(tables: Tables) -> dict[Key, Entry]:
    return {at: entry for at, entry in tables.directory.entries.items() if not entry.active}


class MessagesOpenNoSession(RamStore):
    def _insert(self, draft: Tables, message: Message) -> Message:
        ended = ended_sessions(draft)
        stored = super()._insert(draft, message)
        draft.directory.entries |= ended
        return stored


class NotesOpenNoSession(RamStore):
    def _put_notes(self, draft: Tables, notes: Sequence[Note]) -> dict[Key, str]:
        ended = ended_sessions(draft)
        merged = super()._put_notes(draft, notes)
        draft.directory.entries |= ended
        return merged


class StatesOpenNoSession(RamStore):
    def _save(self, draft: Tables, checkpoint: Checkpoint) -> None:
        ended = ended_sessions(draft)
        super()._save(draft, checkpoint)
        draft.directory.entries |= ended


class OpenSessionKeepsItsEnd(RamStore):
    def _insert(self, draft: Tables, message: Message) -> Message:
        ended = ended_sessions(draft)
        stored = super()._insert(draft, message)
        at = ("session", *pair(stored), stored.session_id)
        if at in ended:
            entry = draft.directory.entries[at]
            draft.directory.entries[at] = replace(entry, ended=ended[at].ended)
        return stored


class MessagesOpenEverySession(RamStore):
    def _insert(self, draft: Tables, message: Message) -> Message:
        for at, entry in ended_sessions(draft).items():
            draft.directory.entries[at] = replace(entry, active=True, ended=None)
        return super()._insert(draft, message)


class RetriesOpenASession(RamStore):
    def _put(
        self, draft: Tables, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        applied = super()._put(draft, messages)
        for message in messages:
            at = ("session", *pair(message), message.session_id)
            entry = draft.directory.entries[at]
            draft.directory.entries[at] = replace(entry, active=True, ended=None)
        return applied


class EndGivesWayToItsBatch(RamStore):
    async def apply(self, batch: Batch) -> Applied:
        applied = await super().apply(batch)
        entries = self._open().directory.entries
        for note in batch.notes if batch.ended else ():
            at = ("session", *pair(note), note.session_id or "")
            if at in entries:
                entries[at] = replace(entries[at], active=True, ended=None)
        return applied


class EndsTheUsersSessions(RamStore):
    def _end(self, draft: Tables, scope: Scope, at: Micros) -> None:
        super()._end(draft, replace(scope, session_id=None), at)


class SharedPartIsAUser(RamStore):
    async def directory(self, level: Any, scope: Scope | None = None, **options: Any) -> list[Any]:
        found = await super().directory(level, scope, **options)
        shared = any(user_id == "" for _, user_id in self._open().directory.pairs)
        if found and shared and level == "user":
            return [replace(found[0], id="", user_id=""), *found]
        return found


class DirectoryOfEveryone(RamStore):
    async def directory(self, level: Any, scope: Scope | None = None, **options: Any) -> list[Any]:
        return await super().directory(level, None, **options)


class NotesCreateNoSession(RamStore):
    def _put_notes(self, draft: Tables, notes: Sequence[Note]) -> dict[Key, str]:
        known = set(draft.directory.entries)
        merged = super()._put_notes(draft, notes)
        entries = draft.directory.entries
        draft.directory.entries = {
            at: entry for at, entry in entries.items() if at in known or at[0] != "session"
        }
        return merged


class GraphOfEveryone(RamStore):
    """Relations of all users of an agent."""

    def _around(self, where: Where, names: Sequence[str], **options: Any) -> list[Relation]:
        scope = Scope(where.scope.agent_id or "agent")
        return super()._around(replace(where, scope=scope), names, **options)


class GraphFollowsArrows(RamStore):
    """Only from a source to its destination."""

    def _around(self, where: Where, names: Sequence[str], **options: Any) -> list[Relation]:
        found = super()._around(where, names, **options)
        reached = {name.casefold() for name in names}
        kept = []
        for relation in found:
            if not names or relation.source.casefold() in reached:
                kept.append(relation)
                reached.add(relation.destination.casefold())
        return kept


class GraphGoesOneHopFurther(RamStore):
    def _around(
        self, where: Where, names: Sequence[str], *, hops: int = 1, **options: Any
    ) -> list[Relation]:
        further = hops + 1 if 1 <= hops < 5 else hops
        return super()._around(where, names, hops=further, **options)


class TypesAreChosenLast(RamStore):
    """The walk goes over relations of other types, too."""

    def _around(
        self, where: Where, names: Sequence[str], *, types: Sequence[str] = (), **options: Any
    ) -> list[Relation]:
        found = super()._around(where, names, **options)
        return [one for one in found if not types or one.relationship in types]


class EndedNotesSupport(RamStore):
    def _around(self, where: Where, names: Sequence[str], **options: Any) -> list[Relation]:
        return super()._around(replace(where, valid_at=None), names, **options)


class SensitiveNotesSupport(RamStore):
    def _around(self, where: Where, names: Sequence[str], **options: Any) -> list[Relation]:
        return super()._around(replace(where, sensitive=True), names, **options)


class GenerationCountsArrivals(RamStore):
    """What goes or changes in place is no change to it."""

    async def generation(self, where: Where) -> str:
        return str(self._open().arrivals)


class GenerationCountsRows(RamStore):
    """What is erased and told again has its old mark."""

    async def generation(self, where: Where) -> str:
        return f"{len(self._visible(where))} {len(self._open().vectors)}"


class GenerationForgetsAtErasure(RamStore):
    def _erase(self, draft: Tables, scope: Scope) -> None:
        super()._erase(draft, scope)
        draft.changes.clear()


class GenerationMissesVectors(RamStore):
    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        before = draft.changes.copy()
        super()._embed(draft, embedded)
        draft.changes = before


class GenerationOfEveryone(RamStore):
    async def generation(self, where: Where) -> str:
        return str(self._open().changes)


class UseMakesAGeneration(RamStore):
    def _count(self, draft: Tables, use: Use) -> None:
        super()._count(draft, use)
        draft.changes[use.agent_id, use.user_id] += 1


class OneEndEndsARelation(RamStore):
    def _around(self, where: Where, names: Sequence[str], **options: Any) -> list[Relation]:
        found = super()._around(where, names, **options)
        notes = {(*pair(note), note.id): note for note in self._visible_notes(where)}

        def end(one: Relation) -> Micros | None:
            told = [notes[one.agent_id, one.user_id, id_].valid_until for id_ in one.note_ids]
            return min((until for until in told if until is not None), default=None)

        return [replace(one, valid_until=end(one)) for one in found]


class LastNameIsShown(RamStore):
    def _link(self, draft: Tables, batch: Batch, merged: Mapping[Key, str]) -> None:
        super()._link(draft, batch, merged)
        owners = {note.note_id: pair(note) for note in batch.notes}
        for link in batch.links:
            self._rename(draft, owners[link.note_id], link)

    def _rename(self, draft: Tables, owner: tuple[str, str], link: Link) -> None:
        at = (owner, " ".join(link.source.casefold().split()))
        if at in draft.graph.entities:
            known = draft.graph.entities[at]
            draft.graph.entities[at] = replace(known, name=link.source)


class CaseMakesAnEntity(RamStore):
    def _link(self, draft: Tables, batch: Batch, merged: Mapping[Key, str]) -> None:
        links = tuple(
            replace(one, source=f"{one.source}'" if one.source.isupper() else one.source)
            for one in batch.links
        )
        super()._link(draft, replace(batch, links=links), merged)
