"""Memories changed or deleted by their owner."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kemem.batch import Batch, Job
from kemem.errors import Unavailable
from kemem.filters import Filter
from kemem.ports import Parts
from kemem.text.fingerprint import fingerprint
from kemem.text.ids import new_id
from kemem.types import NOTES, Change, Embedded, Message, Note, Row, Scope, Where
from kemem.writing.task import mirror_jobs


async def rewrite(note: Note, content: str, metadata: Mapping[str, Any], parts: Parts) -> Note:
    """A note with other words or metadata; its history keeps what it said."""
    now = parts.clock()
    changed = replace(note, metadata=metadata, updated=now)
    if content == note.content:
        await parts.store.apply(Batch(notes=(changed,)))
        return changed
    changed = replace(changed, content=content, digest=fingerprint(content), keywords=())
    line = Change(note.agent_id, note.user_id, note.note_id, "update", now, note.content, content)
    scope, ids = Scope(note.agent_id, note.user_id), (note.note_id,)
    vectors: tuple[Embedded, ...] = ()
    jobs = mirror_jobs(scope, ids, now, parts)
    if parts.model is not None:
        try:
            matrix = await parts.embed([content], purpose="passage")
            vectors = (Embedded(scope, parts.model, ids, matrix),)
        except Unavailable as error:
            jobs += (Job(new_id("j", now), "embed", scope, now, ids, error=error.message[:500]),)
    await parts.store.apply(Batch(notes=(changed,), changes=(line,), vectors=vectors, jobs=jobs))
    return changed


async def erase(row: Row, parts: Parts) -> None:
    """One memory, and of a message also what was drawn from it alone."""
    scope = Scope(row.agent_id, row.user_id)
    now = parts.clock()
    drop = [Where(scope, kinds=frozenset({row.kind}), ids=frozenset([row.id]))]
    citing: list[Note] = []
    if isinstance(row, Message):
        cites = Filter("contains", "sources", row.id)
        citing = await parts.store.notes(Where(scope, kinds=NOTES, filters=cites), limit=10_000)
        alone = frozenset(note.note_id for note in citing if note.sources == (row.id,))
        drop.append(Where(scope, kinds=NOTES, ids=alone))
    gone = drop[-1].ids or frozenset()
    kept = tuple(
        replace(note, sources=tuple(name for name in note.sources if name != row.id))
        for note in citing
        if note.note_id not in gone
    )
    jobs = mirror_jobs(scope, sorted(gone), now, parts) if gone else ()
    await parts.store.apply(
        Batch(notes=kept, drop=tuple(drop), at=now, reason="deleted", jobs=jobs)
    )


async def erase_all(where: Where, parts: Parts) -> int:
    """Everything that a Where admits; returns how many rows went."""
    now = parts.clock()
    jobs = mirror_jobs(where.scope, (), now, parts)
    batch = Batch(drop=(where,), at=now, reason="deleted", jobs=jobs)
    return (await parts.store.apply(batch)).dropped
