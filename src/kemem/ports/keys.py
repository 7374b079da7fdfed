"""What the core asks of a store that keeps API keys."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from kemem.records import Micros
from kemem.records.keys import ApiKey


@runtime_checkable
class KeyStore(Protocol):
    """A store that keeps API keys beside the memories; no backup holds them."""

    async def key_generation(self) -> int:
        """A number that grows with every key that is added or removed; 0: there never was one."""

    async def keys(self, *, digest: str | None = None, key_id: str | None = None) -> list[ApiKey]:
        """All keys, oldest first, or the one with this digest or id."""

    async def change_keys(
        self,
        *,
        add: Sequence[ApiKey] = (),
        remove: Sequence[str] = (),
        used: Mapping[str, Micros] | None = None,
    ) -> int:
        """Add keys, remove those with these ids, or note when some were used last.

        Returns how many were removed.
        """
