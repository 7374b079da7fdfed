"""How often notes are found, counted in memory and written now and then."""

from collections import Counter
from collections.abc import Iterable

from kemem.batch import Batch, Use
from kemem.ports import Deps
from kemem.records import Note
from kemem.results import Hit

_HEAD = 10  # hits of a search that count as used
_MANY = 100  # uses that are written together


class Uses:
    """A count that may lose its last few at a crash, and costs a search nothing."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    async def count(self, found: Iterable[Hit], deps: Deps) -> None:
        """Note what a search found."""
        notes = [hit.row for hit in list(found)[:_HEAD] if isinstance(hit.row, Note)]
        self._counts.update((note.agent_id, note.user_id, note.note_id) for note in notes)
        if self._counts.total() >= _MANY:
            await self.flush(deps)

    async def flush(self, deps: Deps) -> None:
        """Write what was counted."""
        counts, self._counts = self._counts, Counter()
        now = deps.clock()
        used = tuple(Use(*key, count, now) for key, count in counts.items())
        if used:
            await deps.store.apply(Batch(used=used))
