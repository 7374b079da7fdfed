"""KeyedNotes: what an application keeps under names of its own, as notes of one user."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from kemem.add.edit import notes_batch
from kemem.add.embed import mirror_jobs, read_all
from kemem.add.parse import allowed_metadata
from kemem.memory import AsyncMemory
from kemem.ports import Deps, read_notes
from kemem.ports.entries import check_enabled
from kemem.records import Change, Link, Micros, Note, Scope, Where
from kemem.records.filters import Filter
from kemem.scope import DEFAULT
from kemem.text.ids import is_blank
from kemem.text.personal import apply_policy

NOT_INDEXED = "…"  # the text of a note that no search is to find
_KIND = "user_info"
_PREFIX = "k_"


class KeyedNotes:
    """Notes of a handle's user, each under a key: to put one again replaces it.

    Nothing but the application changes or merges them, whatever they say.
    """

    def __init__(self, memory: AsyncMemory, deps: Deps) -> None:
        self.deps = deps
        self.now: Micros = deps.clock()
        own = memory.scope.scope
        self._scope = Scope(own.agent_id or DEFAULT, own.user_id, own.session_id)
        self._policy = memory.settings.content_policy
        self._where = Where(self._scope, kinds=frozenset({_KIND}), sensitive=memory.scope.sensitive)

    def note_id(self, *key: object) -> str:
        """The same for the same key, and no other user's."""
        scope = self._scope
        place = (scope.agent_id, scope.user_id, scope.session_id, key)
        return f"{_PREFIX}{blake2b(json.dumps(place).encode(), digest_size=16).hexdigest()}"

    def where(self, filters: Filter) -> Where:
        """The notes that fulfil a condition."""
        return replace(self._where, filters=filters)

    async def read(self, ids: Iterable[str]) -> dict[str, Note]:
        """Those of some notes that are there."""
        wanted = frozenset(ids)
        # Who knows the key of a note put it there: sensitive notes are found by their keys.
        where = replace(self._where, ids=wanted, sensitive=True)
        notes = await read_notes(self.deps.store, where, limit=len(wanted)) if wanted else []
        return {note.note_id: note for note in notes if self.lives(note)}

    async def read_all(self, where: Where) -> list[Note]:
        """All notes that a Where admits."""
        notes = await read_all(Note, where, self.deps.store)
        return [note for note in notes if self.lives(note)]

    def lives(self, note: Note) -> bool:
        """Whether a note has not expired."""
        return note.expires is None or note.expires > self.now

    def note(
        self,
        note_id: str,
        text: str,
        metadata: Mapping[str, Any],
        before: Note | None,
        expires: Micros | None = None,
    ) -> Note:
        """A note as it is to be, in the place of the one before; a blank text is not indexed."""
        allowed, is_marked = apply_policy(text, self._policy, "value")
        cut = allowed.encode()[: self._policy.max_bytes].decode(errors="ignore")
        fields, has_mark = allowed_metadata(metadata, "value", self._policy)
        now = self.now
        return Note(
            note_id=note_id,
            agent_id=self._scope.agent_id or "",
            user_id=self._scope.user_id or "",
            session_id=self._scope.session_id,
            kind=_KIND,
            content=NOT_INDEXED if is_blank(cut) else cut,
            digest=note_id.removeprefix(_PREFIX),  # notes that say the same stay two
            ts=before.ts if before else now,
            created=before.created if before else now,
            updated=now,
            valid_from=before.valid_from if before else now,
            expires=expires,
            metadata=fields,
            sensitive=is_marked or has_mark,
        )

    async def write(
        self,
        notes: Sequence[Note],
        gone: Sequence[str] = (),
        *,
        stored: Mapping[str, Note],
        links: Sequence[Link] = (),
    ) -> None:
        """Put notes and delete others, all or none; `stored` are those that are replaced."""
        if not notes and not gone:
            return
        if notes:
            await check_enabled(self.deps.store, self._scope)
        changes = [line for note in notes for line in _changes(note, stored.get(note.id))]
        indexed = [note for note in notes if note.content != NOT_INDEXED]
        batch = await notes_batch(indexed, changes, self.now, self.deps)
        batch = replace(batch, notes=tuple(notes), links=tuple(links))
        if gone:
            drop = Where(self._scope, kinds=frozenset({_KIND}), ids=frozenset(gone))
            jobs = mirror_jobs(self._scope, gone, self.now, self.deps)
            batch = replace(batch, drop=(drop,), at=self.now, reason="deleted")
            batch = replace(batch, jobs=(*jobs, *batch.jobs))
        await self.deps.store.apply(batch)


def _changes(note: Note, before: Note | None) -> Iterator[Change]:
    line = Change(note.agent_id, note.user_id, note.id, "add", note.updated, after=note.content)
    if before is None:
        yield line
    elif before.content != note.content:
        yield replace(line, event="update", before=before.content)
