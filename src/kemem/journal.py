"""The operators' journal of a memory: what the system did, kept beside the memories."""

from collections.abc import Awaitable, Callable, Sequence

from kemem.ports import Deps
from kemem.records import Line, Micros
from kemem.records.batch import Batch, Trim


class AsyncJournal:
    """Reads and writes the journal of a store. It holds no memories, and no backup carries it."""

    def __init__(self, deps: Callable[[], Awaitable[Deps]]) -> None:
        self._deps = deps

    async def note(self, lines: Sequence[Line]) -> None:
        """Upsert lines by kind and id; a power failure may undo the newest writes."""
        await (await self._deps()).store.apply(Batch(journal=tuple(lines)))

    async def lines(
        self,
        kind: str,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a kind, newest first, ties by id; `since` is inclusive, `until` exclusive."""
        store = (await self._deps()).store
        return await store.journal(kind, since=since, until=until, user_id=user_id, limit=limit)

    async def trim(
        self, kind: str, *, before: Micros | None = None, keep: int | None = None
    ) -> int:
        """Erase the lines of a kind older than `before`, and all but the newest `keep`."""
        trim = Trim(kind, before, keep)
        return (await (await self._deps()).store.apply(Batch(trim=(trim,)))).dropped
