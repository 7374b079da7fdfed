"""How the reference store writes: one batch after the other, on a draft of its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from kemem.errors import Conflict, InvalidArgument, Unavailable
from kemem.ports.entries import refusal
from kemem.records import (
    CHECKPOINTS_KEPT,
    MESSAGES,
    NOTES,
    Change,
    Checkpoint,
    Embedded,
    Line,
    Message,
    Micros,
    Model,
    Note,
    Row,
    Scope,
    Where,
)
from kemem.records.batch import Applied, Batch, Configuration, Expected, Job, Use
from kemem.records.branches import branch_ends
from kemem.text.query import index_text
from kemem_conformance.ram_ranking import Stored, directions
from kemem_conformance.ram_tables import Key, Tables, covers, key, newest_first, note_key, pair


class RamWriter:
    """Tables in memory and the one way to change them."""

    def __init__(self) -> None:
        self._tables: Tables | None = Tables()

    async def apply(self, batch: Batch) -> Applied:
        """Write a batch wholly or not at all."""
        draft = self._draft()
        if not all(self._is_open(draft, job) for job in batch.only_if):
            return Applied(refused="job")
        if not all(self._is_present(draft, row) for row in batch.present):
            return Applied(refused="row")
        if not all(self._holds(draft, expected) for expected in batch.expects):
            return Applied(refused="changed")
        dropped = sum(self._drop(draft, where, batch) for where in batch.drop)
        for where in batch.withdraw:
            self._withdraw(draft, where)
        inserted, ignored = self._put(draft, batch.put)
        ends = self._end_branches(draft)
        inserted = tuple(replace(it, valid_until=ends.get(key(it))) for it in inserted)
        if not self._cite_messages(draft, batch.notes):
            return Applied(refused="source")
        merged = self._put_notes(draft, batch.notes)
        self._link(draft, batch, merged)
        draft.history += [one for one in batch.changes if note_key(one) not in merged]
        for checkpoint in batch.checkpoints:
            self._save(draft, checkpoint)
        for use in batch.used:
            self._count(draft, use)
        for embedded in batch.vectors:
            self._embed(draft, embedded)
        for ending in batch.ended:
            self._end(draft, ending.scope, ending.at)
        for configuration in batch.configured:
            self._configure(draft, configuration)
        draft.jobs.update({job.job_id: job for job in batch.jobs_of(inserted)})
        for job_id in batch.done:
            draft.jobs.pop(job_id, None)
        self._append(draft, batch.journal)
        dropped += sum(self._trim(draft, it.kind, it.before, it.keep) for it in batch.trim)
        if batch.model is not None:
            self._record(draft, batch.model)
        if batch.rebuild_words:
            self._rebuild(draft)
        self._tables = draft
        return Applied(inserted, ignored, dropped, {at[-1]: into for at, into in merged.items()})

    def _configure(self, draft: Tables, given: Configuration) -> None:
        draft.directory.configure(given)
        if given.disabled is not None:
            self._touch(draft, given.scope)

    def _append(self, draft: Tables, lines: Sequence[Line]) -> None:
        draft.journal.update({(line.kind, line.id): line for line in lines})

    def _record(self, draft: Tables, model: Model) -> None:
        draft.model = model

    def _rebuild(self, draft: Tables) -> None:
        for at, stored in draft.rows.items():
            draft.rows[at] = replace(stored, words=index_text(stored.row))

    def _trim(self, draft: Tables, kind: str, before: Micros | None, keep: int | None) -> int:
        own = newest_first(line for line in draft.journal.values() if line.kind == kind)
        kept = [line for line in own if before is None or line.ts >= before][:keep]
        for line in own:
            if line not in kept:
                del draft.journal[kind, line.id]
        return len(own) - len(kept)

    def _open(self) -> Tables:
        if self._tables is None:
            raise Unavailable("the store is closed")
        return self._tables

    def _draft(self) -> Tables:
        return self._open().copy()

    def _sees(self, where: Where, row: Row) -> bool:
        return where.matches(row)

    def _is_open(self, draft: Tables, job: Job) -> bool:
        """Whether a job is there, and names nothing else."""
        known = draft.jobs.get(job.job_id)
        return known is not None and {*known.ids} <= {*job.ids}

    def _is_present(self, draft: Tables, row: Row | Checkpoint) -> bool:
        """Whether a row is there, or a checkpoint is the newest of its session."""
        if not isinstance(row, Checkpoint):
            known = draft.rows.get(key(row))
            if known is None or (isinstance(known.row, Message) and known.row.withdrawn):
                return False
            return pair(known.row) == pair(row)
        session = (*pair(row), row.session_id)
        own = [one for one in draft.checkpoints if (*pair(one), one.session_id) == session]
        return max(reversed(own), key=lambda one: one.created, default=None) == row

    def _holds(self, draft: Tables, expected: Expected) -> bool:
        """Whether a read of notes answers as it did."""
        rows = [stored.row for stored in draft.rows.values() if isinstance(stored.row, Note)]
        seen = [note for note in rows if self._sees(expected.where, note)]
        seen.sort(key=lambda note: note.position, reverse=True)
        return expected.holds(seen[: expected.limit])

    def _drop(self, draft: Tables, where: Where, batch: Batch) -> int:
        rows = [stored.row for stored in draft.rows.values()]
        gone = [row for row in rows if self._sees(replace(where, withdrawn=True), row)]
        for row in gone:
            self._remove(draft, row)
        self._forget_states(draft, gone)
        self._forget_messages(draft, [row for row in gone if isinstance(row, Message)])
        if where.everything:
            self._erase(draft, where.scope)
        else:
            draft.history += [
                Change(*pair(row), row.id, "delete", batch.at, reason=batch.reason)
                for row in gone
                if isinstance(row, Note)
            ]
        return len(gone)

    def _forget_states(self, draft: Tables, rows: Sequence[Row]) -> None:
        """The checkpoints of all sessions that rows are in."""
        sessions = {(*pair(row), row.session_id) for row in rows}
        draft.checkpoints = [
            one for one in draft.checkpoints if (*pair(one), one.session_id) not in sessions
        ]

    def _withdraw(self, draft: Tables, where: Where) -> None:
        """Messages that only transcripts show from now on."""
        for at, stored in draft.rows.items():
            row = stored.row
            if isinstance(row, Message) and self._sees(where, row) and not row.withdrawn:
                draft.rows[at] = replace(stored, row=replace(row, withdrawn=True))
                draft.changes[pair(row)] += 1
                self._forget_states(draft, [row])

    def _forget_messages(self, draft: Tables, messages: list[Message]) -> None:
        """Take messages out of the jobs of their users; a job that names no other goes."""
        for job in list(draft.jobs.values()):
            gone = {it.message_id for it in messages if it.user_id == job.scope.user_id}
            if gone & {*job.ids}:
                left = tuple(name for name in job.ids if name not in gone)
                draft.jobs[job.job_id] = replace(job, ids=left)
                if not left:
                    del draft.jobs[job.job_id]

    def _remove(self, draft: Tables, row: Row) -> None:
        """A row with all that is derived from it."""
        del draft.rows[key(row)]
        draft.vectors.pop(key(row), None)
        draft.changes[pair(row)] += 1
        if isinstance(row, Message):
            self._uncite(draft, row)
        else:
            draft.graph.unlink(pair(row), row.note_id)
            draft.history = [one for one in draft.history if note_key(one) != key(row)]

    def _uncite(self, draft: Tables, message: Message) -> None:
        """Notes of the same owner do not cite a message any longer."""
        for at, stored in draft.rows.items():
            note = stored.row
            if isinstance(note, Note) and pair(note) == pair(message):
                left = tuple(name for name in note.sources if name != message.message_id)
                draft.rows[at] = replace(stored, row=replace(note, sources=left))

    def _erase(self, draft: Tables, scope: Scope) -> None:
        """What a scope has besides rows."""
        draft.history = [one for one in draft.history if not covers(scope, *pair(one), None)]
        draft.checkpoints = [
            one for one in draft.checkpoints if not covers(scope, *pair(one), one.session_id)
        ]
        if scope.session_id is None:
            self._forget_lines(draft, scope)
        draft.directory.forget_sessions(scope)
        self._touch(draft, scope)
        for job in list(draft.jobs.values()):
            if covers(scope, job.scope.agent_id, job.scope.user_id, job.scope.session_id):
                del draft.jobs[job.job_id]

    def _forget_lines(self, draft: Tables, scope: Scope) -> None:
        """What the journal tells of a scope's users."""
        known = {user for agent, user in draft.directory.pairs if agent == scope.agent_id}
        users = known if scope.user_id is None else {scope.user_id}
        for at, line in list(draft.journal.items()):
            if line.user_id in users - {""}:
                del draft.journal[at]

    def _put(
        self, draft: Tables, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """What was inserted, and the ids of what was known already."""
        inserted, ignored, differing = [], [], []
        for message in messages:
            known = draft.rows.get(key(message))
            if known is None:
                inserted.append(self._insert(draft, message))
            elif isinstance(known.row, Message) and self._same(known.row, message):
                ignored.append(message.message_id)
            else:
                differing.append(message.message_id)
        if differing:
            ids = tuple(dict.fromkeys(differing))
            raise Conflict(f"messages {ids!r} exist with other content", message_ids=ids)
        return tuple(inserted), tuple(dict.fromkeys(ignored))

    def _end_branches(self, draft: Tables) -> dict[Key, Micros]:
        """Mark the messages that their sessions have left, and those no longer that they have not.

        Returns when that was.
        """
        sessions: dict[Scope, list[Message]] = {}
        for stored in draft.rows.values():
            if isinstance(row := stored.row, Message):
                sessions.setdefault(Scope(*pair(row), row.session_id), []).append(row)
        ends: dict[Key, Micros] = {}
        for messages in sessions.values():
            messages.sort(key=lambda it: it.position)
            left = branch_ends(messages)
            for row in messages:
                if (until := left.get(row.id)) is not None:
                    ends[key(row)] = until
                if until != row.valid_until:
                    marked = replace(row, valid_until=until)
                    draft.rows[key(row)] = replace(draft.rows[key(row)], row=marked)
        return ends

    def _same(self, known: Message, told: Message) -> bool:
        """Whether a message is a retry; its clock may read differently."""
        retry = replace(told, ts=known.ts, ingest_time=known.ingest_time)
        retry = replace(retry, withdrawn=known.withdrawn, valid_until=known.valid_until)
        return replace(retry, sequence_no=known.sequence_no) == known

    def _insert(self, draft: Tables, message: Message) -> Message:
        others = [  # written out, as a long session is read again for each of its messages
            row
            for one in draft.rows.values()
            if isinstance(row := one.row, Message)
            and row.session_id == message.session_id
            and row.user_id == message.user_id
            and row.agent_id == message.agent_id
        ]
        taken = {other.ts for other in others} if message.ts == message.ingest_time else set()
        stored = replace(
            message,
            ts=next(ts for ts in count(message.ts) if ts not in taken),
            sequence_no=max((other.sequence_no for other in others), default=0) + 1,
        )
        at = stored.ingest_time
        if who := draft.directory.disabled(Scope(*pair(stored), stored.session_id)):
            raise refusal(who.level, who.id)
        draft.directory.saw(pair(stored), stored.session_id, at, at)
        self._arrive(draft, stored)
        return replace(stored, arrival=draft.arrivals)

    def _arrive(self, draft: Tables, row: Row) -> None:
        draft.arrivals += 1
        draft.changes[pair(row)] += 1
        arrived = replace(row, arrival=draft.arrivals)
        draft.rows[key(row)] = Stored(arrived, index_text(row), draft.arrivals)

    def _cite_messages(self, draft: Tables, notes: Sequence[Note]) -> bool:
        """Whether the new notes cite only messages of their owner that are there."""
        return all(
            self._cited(draft, note) == note.sources
            for note in notes
            if key(note) not in draft.rows
        )

    def _cited(self, draft: Tables, note: Note) -> tuple[str, ...]:
        """What a note cites and its owner has."""
        rows = [stored.row for stored in draft.rows.values()]
        own = {row.id for row in rows if isinstance(row, Message) and pair(row) == pair(note)}
        return tuple(name for name in note.sources if name in own)

    def _put_notes(self, draft: Tables, notes: Sequence[Note]) -> dict[Key, str]:
        """Notes one after the other; which of them were merged, and into which."""
        merged = {}
        known = set(draft.rows)
        for told in notes:
            note = replace(told, sources=self._cited(draft, told))
            draft.changes[pair(note)] += 1
            session_id = None if key(note) in known else note.session_id
            draft.directory.saw(pair(note), session_id, note.created, note.updated)
            if key(note) in draft.rows:
                self._change(draft, note)
            elif twin := self._twin(draft, note):
                self._merge(draft, twin, note)
                merged[key(note)] = twin.note_id
            else:
                self._arrive(draft, note)
        return merged

    def _twin(self, draft: Tables, note: Note) -> Note | None:
        """The open note of the same place that says the same, the first by id."""
        twins = [
            row
            for row in (stored.row for stored in draft.rows.values())
            if isinstance(row, Note) and _is_open(row, note.updated) and _marks(row) == _marks(note)
        ]
        return min(twins, key=lambda twin: twin.note_id, default=None)

    def _merge(self, draft: Tables, twin: Note, note: Note) -> None:
        merged = replace(
            twin,
            sources=tuple(dict.fromkeys((*twin.sources, *note.sources))),
            importance=max(twin.importance, note.importance),
            sensitive=twin.sensitive or note.sensitive,
            updated=max(twin.updated, note.updated),
            expires=_later(twin.expires, note.expires),
        )
        draft.rows[key(twin)] = replace(draft.rows[key(twin)], row=merged)

    def _change(self, draft: Tables, note: Note) -> None:
        """Another version of a known note; with other words it is as good as new."""
        known = draft.rows[key(note)]
        if isinstance(known.row, Note) and known.row.words == note.words:
            draft.rows[key(note)] = replace(known, row=replace(note, arrival=known.row.arrival))
            return
        draft.vectors.pop(key(note), None)
        draft.graph.unlink(pair(note), note.note_id)
        self._arrive(draft, note)
        kept = replace(note, arrival=known.row.arrival)
        draft.rows[key(note)] = replace(draft.rows[key(note)], row=kept)

    def _link(self, draft: Tables, batch: Batch, merged: Mapping[Key, str]) -> None:
        told = {note.note_id: note for note in batch.notes}
        for link in batch.links:
            if link.note_id not in told:
                raise InvalidArgument(f"a link of {link.note_id!r}, no note of this batch")
            note = told[link.note_id]
            draft.graph.link(pair(note), link, merged.get(key(note), note.note_id))

    def _save(self, draft: Tables, checkpoint: Checkpoint) -> None:
        """A checkpoint; the oldest of its session go when there are too many."""
        session = (*pair(checkpoint), checkpoint.session_id)
        at = checkpoint.created
        draft.changes[pair(checkpoint)] += 1
        draft.directory.saw(pair(checkpoint), checkpoint.session_id, at, at)
        draft.checkpoints.append(checkpoint)
        own = [one for one in draft.checkpoints if (*pair(one), one.session_id) == session]
        own.sort(key=lambda one: one.created)
        for one in own[:-CHECKPOINTS_KEPT]:
            draft.checkpoints.remove(one)

    def _count(self, draft: Tables, use: Use) -> None:
        stored = draft.rows.get(("note", use.agent_id, use.user_id, use.note_id))
        if stored and isinstance(stored.row, Note):
            note = replace(stored.row, uses=stored.row.uses + use.count, used=use.at)
            draft.rows[key(note)] = replace(stored, row=note)

    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        rows = directions(embedded.matrix, embedded.model)
        if len(rows) != len(embedded.ids):
            raise InvalidArgument(f"{len(rows)} vectors for {len(embedded.ids)} rows")
        for id_, direction in zip(embedded.ids, rows, strict=True):
            where = Where(
                embedded.scope, ids=frozenset({id_}), kinds=MESSAGES | NOTES, withdrawn=True
            )
            for at, stored in draft.rows.items():
                if self._sees(where, stored.row):
                    draft.vectors[at] = (embedded.model, direction)
                    draft.changes[pair(stored.row)] += 1

    def _end(self, draft: Tables, scope: Scope, at: Micros) -> None:
        draft.directory.end(scope, at)
        self._touch(draft, scope)
        draft.checkpoints = [
            one for one in draft.checkpoints if not covers(scope, *pair(one), one.session_id)
        ]

    def _touch(self, draft: Tables, scope: Scope) -> None:
        """All pairs of a scope have changed."""
        pairs = draft.directory.pairs
        draft.changes.update(it for it in pairs if covers(scope, *it, scope.session_id))


def _marks(note: Note) -> tuple[str, str, str, str | None, str]:
    """What two notes share that say the same in the same place."""
    return (*pair(note), note.kind, note.session_id, note.digest)


def _is_open(note: Note, at: Micros) -> bool:
    return note.valid_until is None and not note.ended(at)


def _later(one: Micros | None, other: Micros | None) -> Micros | None:
    """The later end; none is later than any."""
    return None if one is None or other is None else max(one, other)
