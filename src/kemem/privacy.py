"""What is kept of one user: shown in numbers, handed out as an archive, erased with a receipt."""

import asyncio
import json
import os
import tempfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Protocol

from kemem.add.edit import erase_all
from kemem.add.embed import read_all, read_pages
from kemem.errors import Conflict, NotFound
from kemem.ports import Deps, read_relations
from kemem.ports.inventory import purge, read_inventory
from kemem.ports.lines import AUDIT
from kemem.ports.request import Neighborhood
from kemem.records import CHECKPOINTS_KEPT, MESSAGES, NOTES, Inventory, Note, Relation, Scope, Where
from kemem.records.batch import Batch, Configuration
from kemem.records.feedback import Feedback
from kemem.records.serialization import Record, Timestamp
from kemem.records.times import to_rfc3339
from kemem.results import Item
from kemem.scope import CallScope
from kemem.search.feedback import KIND
from kemem.search.profile import USER_INFO, compose_profile
from kemem.text.ids import check_id
from kemem.workspace import disk

PREFIX = "kemem-"  # of files in an export that an import leaves out
_PAGE = 500  # rows that are read at once
_PROFILE_TOKENS = 100_000
_MOST = 100_000  # sessions, changes of a note
_LINKED, _RELATIONS = 20, 1_000  # notes, and the most relations that a read gives of them
_README = """What KeMem keeps of the user {user_id}, exported {at}.

messages.jsonl          every message, verbatim, oldest first
kemem-notes.jsonl       notes with their sources (message ids) and their history
kemem-relations.jsonl   the graph: relations with the notes that support them
kemem-sessions.jsonl    sessions with their summaries
kemem-feedback.jsonl    votes on hits, with their questions
kemem-profile.json      what is known of the user now, by topic
kemem-inventory.json    counts of everything

Each line of a .jsonl file is a JSON object in UTF-8. Times are RFC 3339 in UTC.
`kemem import FILE --user ID` stores the messages again; with --infer it also extracts notes.
{sensitive}
"""
_WITHOUT = "Sensitive messages and notes are left out: the export was made without that grant."
_WITH = "Sensitive messages and notes are included."


@dataclass(frozen=True, slots=True)
class Export(Record):
    """An archive with what is kept of one user."""

    user_id: str
    path: Path  # absolute
    created: Timestamp
    messages: int
    notes: int
    relations: int
    sessions: int
    votes: int  # on hits
    size: int  # bytes
    digest: str  # SHA-256 of the file


@dataclass(frozen=True, slots=True)
class Receipt(Record):
    """What was erased of one user, and where copies may remain."""

    user_id: str
    erased_at: Timestamp
    erased: Mapping[str, int]  # counts by kind of data
    digest: str  # SHA-256 of the ids of all erased messages and notes, sorted, one a line
    remaining: Mapping[str, int] = field(default_factory=dict)  # in the store, after erasing
    elsewhere: tuple[str, ...] = ()  # what this call could not erase


class Uploads(Protocol):
    """Where files that wait for their import are kept."""

    def upload_path(self, job_id: str, name: str) -> Path:
        """The place of the file of a job."""

    async def discard(self, path: Path) -> None:
        """Delete a file."""


class AsyncPrivacy:
    """The privacy tools of a memory, each for one user."""

    def __init__(
        self,
        scope: CallScope,
        deps: Callable[[], Awaitable[Deps]],
        uploads: Uploads,
        backups: Path,
    ) -> None:
        self._scope, self._deps, self._uploads, self._backups = scope, deps, uploads, backups

    async def inventory(self, user_id: str | None = None) -> Inventory:
        """How much of everything is kept of a user: messages, notes, sessions, vectors, traces."""
        deps = await self._deps()
        return await read_inventory(deps.store, self._user(user_id))

    async def export(self, user_id: str | None = None, path: str | Path | None = None) -> Export:
        """Write what is kept of a user to a new zip, `kemem-export-USER.zip` where none is named.

        A handle without the grant exports no sensitive rows. An existing file is never replaced.
        NotFound where nothing is kept: an id with a typing error must not look empty.
        """
        user, deps = self._user(user_id), await self._deps()
        await self._kept(user, deps)
        name = "".join(it if it.isalnum() or it in "-_." else "_" for it in user)
        target = Path(path or f"{PREFIX}export-{name}.zip").expanduser().absolute()
        draft = _Draft(target)
        try:
            return await self._write(user, draft, deps)
        finally:
            draft.discard()

    async def erase(self, user_id: str | None = None) -> Receipt:
        """Erase all that is kept of a user, in one write, and return a receipt.

        Sensitive rows go too, even from a handle that cannot see them; so do the user's name,
        type and config. The id itself stays known, so that it can be disabled. NotFound where
        nothing is kept: an id with a typing error must not look erased.
        """
        user, deps = self._user(user_id), await self._deps()
        before, digest = await self._kept(user, deps), await _digest(user, deps)
        uploads = [
            self._uploads.upload_path(job.job_id, job.details["name"])
            for job in await deps.store.jobs(None, kinds=["import"])
            if job.scope.user_id == user
        ]
        await erase_all(Where(Scope(user_id=user), kinds=MESSAGES | NOTES), deps)
        now = deps.clock()
        blank = Configuration("user", Scope(user_id=user), now, name="", type="", config={})
        await deps.store.apply(Batch(configured=(blank,)))
        for upload in uploads:
            await self._uploads.discard(upload)
        await purge(deps.store)
        after = await self.inventory(user)
        copies = await self._copies(user, deps)
        return Receipt(user, now, counts_of(before), digest, counts_of(after), copies)

    async def _kept(self, user: str, deps: Deps) -> Inventory:
        """How much is kept of a user; NotFound if nothing is."""
        inventory = await self.inventory(user)
        entries = await deps.store.directory("user", Scope(user_id=user), limit=1)
        if not counts_of(inventory) and not any(it.name or it.type or it.config for it in entries):
            raise NotFound(f"nothing is kept of {user!r}", user_id=user)
        return inventory

    def _user(self, user_id: str | None) -> str:
        return check_id(self._scope.restrict(user_id).user_id, "user_id")

    async def _copies(self, user: str, deps: Deps) -> tuple[str, ...]:
        """Where data of the user may be left."""
        backups = len([*self._backups.glob("*")]) if self._backups.is_dir() else 0
        copies = [f"backups: {backups} files in {self._backups}"] if backups else []
        copies += ["graph database: a job removes the mirrored relations"] if deps.graph else []
        copies += ["vector database: a job removes the vectors"] if deps.vectors else []
        if await deps.store.journal(AUDIT, user_id=user, limit=1):
            copies.append("audit log: lines that name the user_id, without contents")
        return tuple(copies)

    async def _write(self, user: str, draft: "_Draft", deps: Deps) -> Export:
        now, scope, sees = deps.clock(), Scope(user_id=user), self._scope.sensitive
        files = {
            "messages": ("messages.jsonl", _messages(scope, sees, deps)),
            "notes": (f"{PREFIX}notes.jsonl", _notes(scope, sees, deps)),
            "relations": (f"{PREFIX}relations.jsonl", _relations(scope, sees, deps)),
            "sessions": (f"{PREFIX}sessions.jsonl", _sessions(scope, self._scope, deps)),
            "votes": (f"{PREFIX}feedback.jsonl", _votes(scope, deps)),
        }
        counts = {name: await draft.add(file, items) for name, (file, items) in files.items()}
        where = Where(scope, kinds=USER_INFO, valid_at=now, sensitive=sees)
        known = compose_profile(user, await read_all(Note, where, deps.store), now, _PROFILE_TOKENS)
        draft.add_text(f"{PREFIX}profile.json", _line(known.to_dict()))
        inventory = await self.inventory(user)
        draft.add_text(f"{PREFIX}inventory.json", _line(inventory.to_dict()))
        about = {"user_id": user, "at": to_rfc3339(now), "sensitive": _WITH if sees else _WITHOUT}
        draft.add_text(f"{PREFIX}README.txt", _README.format(**about))
        path, size, digest = await asyncio.to_thread(draft.finish)
        return Export(user, path, now, **counts, size=size, digest=digest)


Lines = AsyncIterator[Mapping[str, Any]]


async def _messages(scope: Scope, sees: bool, deps: Deps) -> Lines:
    where = Where(scope, sensitive=sees, withdrawn=True)
    async for page in read_pages(where, deps.store, _PAGE, newest_first=False):
        for row in page:
            yield row.to_dict()


async def _notes(scope: Scope, sees: bool, deps: Deps) -> Lines:
    where = Where(scope, kinds=NOTES, sensitive=sees)
    async for page in read_pages(where, deps.store, _PAGE, newest_first=False):
        for row in page:
            owner = Scope(row.agent_id, row.user_id)
            changes = await deps.store.history(owner, note_id=row.id, limit=_MOST)
            yield {**Item(row).to_dict(), "history": [it.to_dict() for it in changes]}


async def _relations(scope: Scope, sees: bool, deps: Deps) -> Lines:
    where, known = Where(scope, kinds=NOTES, sensitive=sees), dict[tuple[str, ...], Relation]()
    async for page in read_pages(where, deps.store, _LINKED):
        of_page = replace(where, ids=frozenset(row.id for row in page))
        for it in await read_relations(deps.store, Neighborhood(of_page, limit=_RELATIONS)):
            key = (it.agent_id, it.source, it.relationship, it.destination)
            before = known.get(key)
            ids = (*before.note_ids, *it.note_ids) if before else it.note_ids
            known[key] = replace(it, note_ids=tuple(dict.fromkeys(ids)))
    for relation in known.values():
        yield relation.to_dict()


async def _sessions(scope: Scope, visible: CallScope, deps: Deps) -> Lines:
    for entry in await deps.store.directory("session", scope, limit=_MOST):
        own = Scope(entry.agent_id, scope.user_id, entry.id)
        states = await deps.store.checkpoints(own, limit=CHECKPOINTS_KEPT)
        yield {**entry.to_dict(), "summaries": [visible.visible(it).to_dict() for it in states]}


async def _votes(scope: Scope, deps: Deps) -> Lines:
    for line in await deps.store.journal(KIND, user_id=scope.user_id, limit=_MOST):
        yield Feedback.of(line).to_dict()


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


class _Draft:
    """A zip that is being written beside its place, which it takes when it is complete."""

    def __init__(self, target: Path) -> None:
        self._target = target
        if os.path.lexists(target):
            raise Conflict(f"{target} exists already; name a file that does not")
        with disk("the export could not be written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(".part", f".{PREFIX}", target.parent)  # mode 0600
        self._path, self._file = Path(path), os.fdopen(handle, "w+b")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)

    async def add(self, name: str, lines: Lines) -> int:
        """A file with a JSON object a line; returns how many there are."""
        count = 0
        with disk("the export could not be written"), self._zip.open(name, "w") as file:
            async for line in lines:
                file.write(_line(line).encode())
                count += 1
        return count

    def add_text(self, name: str, text: str) -> None:
        """A file with a text."""
        with disk("the export could not be written"):
            self._zip.writestr(name, text)

    def finish(self) -> tuple[Path, int, str]:
        """Give the file its name; that, its size and its digest."""
        with disk("the export could not be written"):
            self._zip.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.seek(0)
            digest = file_digest(self._file, "sha256").hexdigest()
            size = self._file.tell()
            self._file.close()
            try:
                os.link(self._path, self._target)  # refuses to replace what came meanwhile
            except FileExistsError:
                raise Conflict(f"{self._target} exists already; name another file") from None
        return self._target, size, digest

    def discard(self) -> None:
        """Remove what is left of the draft."""
        self._zip.fp = None  # an unfinished zip is not to be completed
        self._file.close()
        self._path.unlink(missing_ok=True)


async def _digest(user: str, deps: Deps) -> str:
    ids = list[str]()
    where = Where(Scope(user_id=user), kinds=MESSAGES | NOTES, withdrawn=True)
    async for page in read_pages(where, deps.store, _PAGE):
        ids += [f"{row.id}\n" for row in page]
    return sha256("".join(sorted(ids)).encode()).hexdigest()


def counts_of(inventory: Inventory) -> dict[str, int]:
    """What there is, by its kind."""
    names = ("messages", "sessions", "summaries", "changes", "entities", "relations", "vectors")
    counts = {name: getattr(inventory, name) for name in (*names, "jobs")}
    counts |= {"notes": sum(inventory.notes.values()), **inventory.journal}
    return {name: count for name, count in sorted(counts.items()) if count}
