"""Memories told directly, changed or deleted by their owner."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from kemem.add.task import mirror_jobs
from kemem.batch import Batch, Job
from kemem.errors import NotFound, Unavailable
from kemem.ports import Deps
from kemem.records import (
    NOTES,
    Change,
    Embedded,
    Message,
    Micros,
    Note,
    Position,
    Row,
    Scope,
    Where,
)
from kemem.text.fingerprint import fingerprint
from kemem.text.ids import new_id

_ALL = 1_000_000
_PAGE = 1000  # citing notes that are read at once


async def rewrite(note: Note, content: str, metadata: Mapping[str, Any], deps: Deps) -> Note:
    """A note with other words or metadata; its history keeps what it said."""
    now = deps.clock()
    changed = replace(note, metadata=metadata, updated=now)
    if content == note.content:
        return await _store(Batch(notes=(changed,), present=(note,)), changed, deps)
    changed = replace(changed, content=content, digest=fingerprint(content), keywords=())
    line = Change(note.agent_id, note.user_id, note.note_id, "update", now, note.content, content)
    vectors, jobs = await _derived(changed, now, deps)
    batch = Batch(notes=(changed,), changes=(line,), vectors=vectors, jobs=jobs, present=(note,))
    return await _store(batch, changed, deps)


async def learn(
    content: str, summary: str | None, tags: tuple[str, ...], agent_id: str, deps: Deps
) -> str:
    """What all users of an agent are to know, as a note; its id, or that of one just like it."""
    now = deps.clock()
    told = repr((content, summary, tags)).encode()  # to the letter: it may be code
    note = Note(
        note_id=new_id("n", now),
        agent_id=agent_id,
        user_id="",
        session_id=None,
        kind="knowledge",
        content=content,
        digest=blake2b(told, digest_size=16).hexdigest(),
        ts=now,
        created=now,
        updated=now,
        valid_from=now,
        summary=summary,
        keywords=tags,
        topic=fingerprint(content),
    )
    line = Change(agent_id, "", note.note_id, "add", now, after=content)
    vectors, jobs = await _derived(note, now, deps)
    batch = Batch(notes=(note,), changes=(line,), vectors=vectors, jobs=jobs)
    return (await deps.store.apply(batch)).merged.get(note.note_id, note.note_id)


async def _derived(
    note: Note, now: Micros, deps: Deps
) -> tuple[tuple[Embedded, ...], tuple[Job, ...]]:
    """The vector of a note, or the job that makes it later; and what a mirror is to hear."""
    scope, ids = Scope(note.agent_id, note.user_id), (note.note_id,)
    jobs = mirror_jobs(scope, ids, now, deps)
    if deps.model is None:
        return (), jobs
    try:
        matrix = await deps.embed([note.content], purpose="passage")
    except Unavailable as error:
        failed = Job(new_id("j", now), "embed", scope, now, ids, error=error.message[:500])
        return (), (*jobs, failed)
    return (Embedded(scope, deps.model, ids, matrix),), jobs


async def _store(batch: Batch, changed: Note, deps: Deps) -> Note:
    if (await deps.store.apply(batch)).refused:
        raise NotFound(f"no memory {changed.note_id!r:.80}", memory_id=changed.note_id)
    return changed


async def erase(row: Row, deps: Deps) -> None:
    """One memory; of a message also what quotes it: notes, experiences, jobs that name it."""
    scope = Scope(row.agent_id, row.user_id)
    now = deps.clock()
    drop = [Where(scope, kinds=frozenset({row.kind}), ids=frozenset([row.id]))]
    kept: list[Note] = []
    trimmed: list[Job] = []
    if isinstance(row, Message):
        citing = await _citing(row, deps)
        kept = [_without_source(it, row.id) for it in citing if not _quotes(it, row.id)]
        gone = frozenset(it.note_id for it in citing) - {it.note_id for it in kept}
        drop.append(Where(scope, kinds=NOTES, ids=gone))
        named = [job for job in await deps.store.jobs(_ALL) if row.id in job.ids]
        trimmed = [
            replace(job, ids=tuple(it for it in job.ids if it != row.id))
            for job in named
            if job.scope.user_id == row.user_id
        ]
    erased = sorted(drop[-1].ids or ())
    await deps.store.apply(
        Batch(
            notes=tuple(kept),
            drop=tuple(drop),
            at=now,
            reason="deleted",
            jobs=(
                *(mirror_jobs(scope, erased, now, deps) if erased else ()),
                *(job for job in trimmed if job.ids),
            ),
            done=tuple(job.job_id for job in trimmed if not job.ids),
        )
    )


async def _citing(message: Message, deps: Deps) -> list[Note]:
    """All notes that cite a message."""
    scope = Scope(message.agent_id, message.user_id)
    where = Where(scope, kinds=NOTES, sources=frozenset([message.id]))
    found: list[Note] = []
    after: Position | None = None
    while page := await deps.store.notes(where, after=after, limit=_PAGE):
        found += page
        after = Position(page[-1].ts, page[-1].id)
    return found


def _quotes(note: Note, message_id: str) -> bool:
    """Whether a note must go with a message: it has no other source, or retells all of them."""
    return note.sources == (message_id,) or note.kind == "experience"


def _without_source(note: Note, message_id: str) -> Note:
    return replace(note, sources=tuple(name for name in note.sources if name != message_id))


async def erase_all(where: Where, deps: Deps) -> int:
    """Everything that a Where admits; returns how many rows went."""
    now = deps.clock()
    jobs = mirror_jobs(where.scope, (), now, deps)
    batch = Batch(drop=(where,), at=now, reason="deleted", jobs=jobs)
    return (await deps.store.apply(batch)).dropped
