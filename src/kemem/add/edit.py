"""Memories told directly, changed or deleted by their owner."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from kemem.add.embed import embed_rows
from kemem.add.mirror import mirror_jobs
from kemem.add.parse import check_metadata, check_summary, check_tags, check_text
from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps, read_notes
from kemem.records import (
    NOTES,
    Change,
    Message,
    Note,
    Position,
    Row,
    Scope,
    Where,
)
from kemem.records.batch import Batch, Expected
from kemem.text.fingerprint import fingerprint
from kemem.text.ids import new_id

_PAGE = 1000  # citing notes that are read at once
_TRIES = 20  # of a deletion, where notes of the message come and go


async def rewrite(
    note: Row, content: str | None, metadata: Mapping[str, Any] | None, max_bytes: int, deps: Deps
) -> Note:
    """Change the text or the metadata of a note; its history keeps the text before.

    Tags that were given stay; a summary of the text before goes, and so do derived keywords.
    """
    if not isinstance(note, Note):
        raise InvalidArgument(f"{note.id} is a message, and messages never change")
    content = note.content if content is None else check_text(content, "content", max_bytes)
    fields = note.metadata if metadata is None else check_metadata(metadata, "metadata")
    now = deps.clock()
    changed = replace(note, metadata=fields, updated=now)
    if content == note.content:
        return await _store(Batch(notes=(changed,), present=(note,)), changed, deps)
    tags = note.keywords if note.kind == "knowledge" else ()
    changed = replace(
        changed, content=content, digest=fingerprint(content), keywords=tags, summary=None
    )
    line = Change(note.agent_id, note.user_id, note.note_id, "update", now, note.content, content)
    batch = await _batch(changed, line, deps)
    return await _store(replace(batch, present=(note,)), changed, deps)


async def learn(
    content: str,
    summary: str | None,
    tags: Sequence[str],
    agent_id: str,
    max_bytes: int,
    deps: Deps,
) -> str:
    """Store a knowledge entry as a note; returns its id, or that of an equal entry."""
    text = check_text(content, "content", max_bytes)
    about, words = check_summary(summary), check_tags(tags)
    now = deps.clock()
    exact = repr((text, about, words)).encode()  # verbatim: it may be code
    note = Note(
        note_id=new_id("n", now),
        agent_id=agent_id,
        user_id="",
        session_id=None,
        kind="knowledge",
        content=text,
        digest=blake2b(exact, digest_size=16).hexdigest(),
        ts=now,
        created=now,
        updated=now,
        valid_from=now,
        summary=about,
        keywords=words,
        topic=fingerprint(text),
    )
    line = Change(agent_id, "", note.note_id, "add", now, after=text)
    applied = await deps.store.apply(await _batch(note, line, deps))
    return applied.merged.get(note.note_id, note.note_id)


async def _batch(note: Note, line: Change, deps: Deps) -> Batch:
    """A note with its history, its vector, or the job that makes it, and a job for a mirror."""
    vectors, jobs = await embed_rows([note], line.at, deps)
    owner = Scope(note.agent_id, note.user_id)
    jobs = (*mirror_jobs(owner, (note.note_id,), line.at, deps), *jobs)
    return Batch(notes=(note,), changes=(line,), vectors=vectors, jobs=jobs)


async def _store(batch: Batch, changed: Note, deps: Deps) -> Note:
    if (await deps.store.apply(batch)).refused:
        raise NotFound(f"no memory {changed.note_id!r:.80}", memory_id=changed.note_id)
    return changed


async def erase(row: Row, deps: Deps) -> None:
    """One memory; of a message also the notes that quote it, its other notes cite it no longer."""
    for _ in range(_TRIES):
        if not (await deps.store.apply(await _erasure(row, deps))).refused:
            return
    raise Unavailable("conflicting updates, retry")


async def _erasure(row: Row, deps: Deps) -> Batch:
    scope, now = Scope(row.agent_id, row.user_id), deps.clock()
    drop = [Where(scope, kinds=frozenset({row.kind}), ids=frozenset([row.id]))]
    expects: tuple[Expected, ...] = ()
    erased = [] if isinstance(row, Message) else [row.id]
    if isinstance(row, Message):
        where = Where(scope, kinds=NOTES, sources=frozenset([row.id]))
        citing = tuple(await _all_notes(where, deps))
        # One more may have been drawn from it by now: then this is decided again.
        expects = (Expected(where, citing, len(citing) + 1),)
        erased = [note.id for note in citing if _quotes(note, row.id)]
        drop.append(Where(scope, kinds=NOTES, ids=frozenset(erased)))
    return Batch(
        drop=tuple(drop),
        at=now,
        reason="deleted",
        jobs=mirror_jobs(scope, sorted({row.id, *erased}), now, deps),
        expects=expects,
    )


async def _all_notes(where: Where, deps: Deps) -> list[Note]:
    notes: list[Note] = []
    after: Position | None = None
    while page := await read_notes(deps.store, where, after=after, limit=_PAGE):
        notes += page
        after = page[-1].position
    return notes


def _quotes(note: Note, message_id: str) -> bool:
    """Whether a note must go with a message: it has no other source, or retells all of them."""
    return note.sources == (message_id,) or note.kind == "experience"


async def erase_all(where: Where, deps: Deps) -> int:
    """Everything that a Where admits; returns how many rows went."""
    now = deps.clock()
    jobs = mirror_jobs(where.scope, (), now, deps)
    batch = Batch(drop=(where,), at=now, reason="deleted", jobs=jobs)
    return (await deps.store.apply(batch)).dropped
