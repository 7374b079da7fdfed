"""AsyncOperations: what those do who run a memory, for all users at once."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from kemem import snapshot
from kemem.add.forget import Policy
from kemem.batch import Job
from kemem.errors import InvalidArgument
from kemem.jobs import ask_to_forget, mirror_all, prepare, retry, retry_failed, run_due
from kemem.notebook import AsyncNotebook
from kemem.ports import Deps
from kemem.records import Entry, Health, Line, Micros, Page
from kemem.results import Census
from kemem.search.directory import directory
from kemem.search.transcript import page_limit
from kemem.snapshot import Backup, Places
from kemem.text.ids import check_id
from kemem.workspace import Workspaces


@runtime_checkable
class Counted(Protocol):
    """A store that can say how much of each it has."""

    async def census(self, largest: int) -> Census:
        """How much of each there is, and which users have the most; it may take a while."""


class AsyncJournal:
    """The journal of a memory's store, opened with the first call."""

    def __init__(self, deps: Callable[[], Awaitable[Deps]]) -> None:
        self._deps = deps

    async def note(self, lines: Sequence[Line]) -> None:
        """Write lines, each in the place of one with its kind and id; a power cut may undo it."""
        await (await self._deps()).store.note(lines)

    async def lines(
        self,
        kind: str,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a kind, newest first, equal times by id; `since` is inclusive, `until` not."""
        store = (await self._deps()).store
        return await store.lines(kind, since=since, until=until, user_id=user_id, limit=limit)

    async def trim(
        self, kind: str, *, before: Micros | None = None, keep: int | None = None
    ) -> int:
        """Erase the lines of a kind from before a time, and all but the newest `keep`."""
        return await (await self._deps()).store.trim(kind, before=before, keep=keep)


class AsyncOperations(AsyncNotebook):
    """The operators' part of AsyncMemory; a handle of one user is denied all of it but health."""

    async def agents(self, *, limit: int = 100, cursor: str | None = None) -> Page[Entry]:
        """Every agent: for operators."""
        deps = await self._operate()
        return await directory("agent", None, page_limit(limit, "limit"), cursor, deps)

    async def users(
        self, agent_id: str | None = None, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Entry]:
        """Every user, or those of an agent: for operators."""
        deps = await self._operate()
        reach, _ = self._reach.restrict(agent_id=agent_id)
        scope = reach.scope if reach.is_bound else None
        return await directory("user", scope, page_limit(limit, "limit"), cursor, deps)

    async def run_jobs(self) -> int:
        """Work through what waits in the outbox; returns how many steps were done."""
        self._check_unbound()
        deps = await self._runtime.prepared()
        await self._runtime.uses.flush(deps)
        policy = self._policy
        if policy != Policy() and self._runtime.forgetting_is_due():
            await ask_to_forget(deps)
        return await run_due(deps, policy)

    async def jobs(self, limit: int = 100) -> list[Job]:
        """Work that waits or has failed, for operators."""
        deps = await self._operate()
        return await deps.store.jobs(page_limit(limit, "limit"))

    async def retry_job(self, job_id: str) -> Job:
        """Let a job that was given up be tried again."""
        return await retry(check_id(job_id, "job_id"), await self._operate())

    async def retry_jobs(self) -> int:
        """Let every job that was given up be tried again; returns how many."""
        return await retry_failed(await self._operate())

    async def reindex(self) -> int:
        """Derive words, vectors and a mirrored graph of all rows again; returns the steps done."""
        self._check_unbound()
        deps = await self._runtime.prepared()
        await deps.store.rebuild_words()
        await prepare(deps, again=True)
        await mirror_all(deps)
        return await run_due(deps, self._policy)

    async def workspaces(self) -> Workspaces:
        """The folders of tasks, whose files are backed up and restored with the store."""
        deps = await self._operate()
        return Workspaces(self.places.workspaces / await deps.archive.label())

    @property
    def places(self) -> Places:
        """The directories of backups and of workspaces."""
        chosen, home = self.settings, self.settings.data_dir
        return Places(
            chosen.backup_dir or home / "backups", chosen.workspace_dir or home / "workspaces"
        )

    async def backup(self, path: str | Path | None = None) -> Backup:
        """Write everything, the workspaces too, to a new file; readable by its owner alone."""
        deps = await self._operate()
        await self._runtime.uses.flush(deps)
        return await snapshot.backup(deps, self.places, path)

    async def restore(self, path: str | Path) -> Backup:
        """Put what a backup holds in the place of everything; a damaged one changes nothing.

        A relative path is one in the directory of backups.
        """
        deps = await self._operate()
        await self._runtime.uses.flush(deps)
        before = await deps.store.scopes()
        found = await snapshot.restore(deps, self.places, path)
        await prepare(deps)
        await mirror_all(deps, before)
        return found

    async def health(self) -> Health:
        """The state of the store; raises Unavailable when it cannot be reached."""
        return await (await self._runtime.deps()).store.health()

    async def census(self, *, largest: int = 10) -> Census:
        """How much of each there is, and which users have the most; it may take a while."""
        store = (await self._operate()).store
        if not isinstance(store, Counted):
            raise InvalidArgument("this store cannot be counted")
        return await store.census(page_limit(largest, "largest"))

    @property
    def journal(self) -> AsyncJournal:
        """What the system did, line by line; it is no memory, and no backup carries it."""
        return AsyncJournal(self._operate)

    @property
    def _policy(self) -> Policy:
        """The policy of forgetting that the settings ask for."""
        chosen = self.settings
        return Policy(chosen.forget_limit, chosen.forget_below, chosen.forget_half_life_days)
