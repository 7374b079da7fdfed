"""What a store keeps of one user, where it can tell."""

from typing import Protocol, runtime_checkable

from kemem.errors import InvalidArgument
from kemem.ports import Store
from kemem.records import Inventory


@runtime_checkable
class Inventoried(Protocol):
    """A store that can tell what it keeps of one user, and let erased rows go for good."""

    async def inventory(self, user_id: str) -> Inventory:
        """Counts of everything that belongs to a user."""

    async def purge(self) -> None:
        """Overwrite what erased rows have left in the store's own files, as far as it can."""


async def read_inventory(store: Store, user_id: str) -> Inventory:
    """How much a store keeps of a user."""
    if not isinstance(store, Inventoried):
        raise InvalidArgument("this store has no inventory of a user")
    return await store.inventory(user_id)


async def purge(store: Store) -> None:
    """Let a store overwrite what erased rows have left, where it can."""
    if isinstance(store, Inventoried):
        await store.purge()
