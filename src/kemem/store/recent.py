"""Messages that searches have read lately: the same ones are candidates, or context, again."""

from collections.abc import Iterable, Mapping, Set

import sqlalchemy as sa

from kemem.records import Message
from kemem.store.read import Answer, ask_keyed
from kemem.store.schema import SEQ_BITS
from kemem.store.tables import Stored, messages

_MOST = 8_000_000  # bytes of a generation
_ROW_BYTES = 1200  # of a message as Python keeps it, beside its text


class RecentMessages:
    """Messages of one space, by their numbers, in two generations.

    A full generation becomes the old one, and what that one had is forgotten. Whoever changes a
    message, or removes it, raises the epoch of its space, for which there is another object; but
    for `valid_until`, so that no message is kept that has it.
    """

    def __init__(self) -> None:
        self._new: dict[int, Stored[Message]] = {}
        self._old: dict[int, Stored[Message]] = {}
        self._new_bytes = self._old_bytes = 0

    def get(self, key: int) -> Stored[Message] | None:
        """A message, if it was read lately."""
        return self._new.get(key) or self._old.get(key)

    def keep(self, stored: Stored[Message]) -> None:
        """Remember a message that was read just now."""
        if stored.row.valid_until is not None or stored.id in self._new:
            return
        self._new[stored.id] = stored
        self._new_bytes += _ROW_BYTES + 2 * len(stored.row.content)
        if self._new_bytes > _MOST:
            self._old, self._old_bytes = self._new, self._new_bytes
            self._new, self._new_bytes = {}, 0

    @property
    def nbytes(self) -> int:
        """About the memory that they take."""
        return self._new_bytes + self._old_bytes


def ask_recent(
    connection: sa.Connection,
    keys: Iterable[int],
    recent: Mapping[int, RecentMessages],
    ended: Set[int],
) -> Answer[Message]:
    """Messages by their numbers; those are not asked for that their space has read lately.

    `ended` are those that have `valid_until`, as far as they are among the keys.
    """
    known, missing = list[Stored[Message]](), list[int]()
    for key in keys:
        own = recent.get(key >> SEQ_BITS)
        stored = own.get(key) if own is not None and key not in ended else None
        if stored is not None:
            known.append(stored)
        else:
            missing.append(key)
    answer = ask_keyed(connection, messages, sorted(missing))

    def load() -> list[Stored[Message]]:
        rows = known + answer()
        for it in rows:
            if (own := recent.get(it.space_no)) is not None:
                own.keep(it)
        return rows

    return load
