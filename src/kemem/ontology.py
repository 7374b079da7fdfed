"""The user's own types: read, and replaced by operators."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any

from kemem.errors import InvalidArgument
from kemem.ports import Deps
from kemem.ports.counts import count_types
from kemem.ports.ontology import KIND, LINE
from kemem.records import Line
from kemem.records.batch import Batch
from kemem.records.ontology import Ontology


class AsyncOntology:
    """Types of notes, entities and relations, from the settings and from the store."""

    def __init__(self, deps: Callable[[], Awaitable[Deps]]) -> None:
        self._deps = deps

    async def get(self) -> Ontology:
        """All types; where settings and store have the same name, that of the settings."""
        deps = await self._deps()
        return await deps.ontology.read(deps.store)

    async def stored(self) -> Ontology:
        """The types that the store keeps, which `set` replaces."""
        await self.get()
        return (await self._deps()).ontology.stored

    async def set(self, ontology: Ontology | Mapping[str, Any]) -> Ontology:
        """Replace the types that the store keeps, for what is added from now on.

        Those of the settings stay as they are, and cannot be redefined. Returns all types.
        """
        deps, new = await self._deps(), Ontology.parse(ontology)
        for group in (each.name for each in fields(Ontology)):
            fixed = getattr(deps.ontology.fixed, group)
            both = [it for it in getattr(new, group) if it in fixed]
            if both and getattr(new, group)[both[0]] != fixed[both[0]]:
                place = f"ontology.{group}.{both[0]}"
                raise InvalidArgument(f"{place} is in the settings: change it there", field=place)
        line = Line(KIND, LINE, deps.clock(), new.to_dict())
        await deps.store.apply(Batch(journal=(line,)))
        deps.ontology.keep(new)
        return await self.get()

    async def counts(self) -> Mapping[str, Mapping[str, int]]:
        """How many notes, entities and relations there are of each own type."""
        deps, all_types = await self._deps(), await self.get()
        groups = (tuple(it) for it in (all_types.notes, all_types.entities, all_types.relations))
        return await count_types(deps.store, *groups)
