"""What operators ask of a store that counts: all of it, and what single owners hold."""

from collections.abc import Mapping, Sequence
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

    async def count_types(
        self, notes: Sequence[str], entities: Sequence[str], relations: Sequence[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """How many there are of each own type, by group and name; it may take a while."""


async def read_census(store: object, largest: int) -> Census:
    """How much of everything a store holds."""
    return await _counted(store).census(largest)


async def read_holdings(store: object, owners: Sequence[Scope]) -> list[Holding]:
    """How much of a store each owner holds."""
    return await _counted(store).holdings(owners)


async def count_types(
    store: object, notes: Sequence[str], entities: Sequence[str], relations: Sequence[str]
) -> Mapping[str, Mapping[str, int]]:
    """How many notes, entities and relations of a store have these types."""
    return await _counted(store).count_types(notes, entities, relations)


def _counted(store: object) -> Counted:
    if not isinstance(store, Counted):
        raise InvalidArgument("this store has no census")
    return store
