"""What operators ask of a store that counts: all of it, and what single owners hold."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kemem.errors import InvalidArgument
from kemem.records import Census, Holding, Scope


@runtime_checkable
class Counted(Protocol):
    """A store that can tell how much of everything it holds."""

    async def census(self, largest: int) -> Census:
        """Counts of everything, and the users that have the most; it may take a while."""

    async def holdings(self, owners: Sequence[Scope]) -> list[Holding]:
        """How much each owner holds, in their order: a user of one agent, or of all."""


async def read_census(store: object, largest: int) -> Census:
    """How much of everything a store holds."""
    return await _counted(store).census(largest)


async def read_holdings(store: object, owners: Sequence[Scope]) -> list[Holding]:
    """How much of a store each owner holds."""
    return await _counted(store).holdings(owners)


def _counted(store: object) -> Counted:
    if not isinstance(store, Counted):
        raise InvalidArgument("this store has no census")
    return store
