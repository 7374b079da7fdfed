"""The nine tools of the official MCP memory server, over one user's notes and graph.

Clients and prompts that were written for `@modelcontextprotocol/server-memory` work as they are.
An entity is a note with its observations, a relation is a note and an edge of the graph.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import Field

from kemem.compat.keyed import KeyedNotes
from kemem.compat.tools import ToolContext
from kemem.errors import NotFound
from kemem.recall.registry import ToolEntry, tool_entry
from kemem.recall.schemas import Model
from kemem.records import Link, Micros, Note, Where
from kemem.records.filters import Filter

_KIND, _NAME, _TYPE, _OBSERVATIONS = "mcp_kind", "mcp_name", "mcp_type", "mcp_observations"
_FROM, _TO, _RELATION = "mcp_from", "mcp_to", "mcp_relation"
_MAX_NODES = 50  # entities that a search shows


class Entity(Model):
    name: str = Field(pattern=r"\S", max_length=255)
    entityType: str = Field(pattern=r"\S", max_length=255)
    observations: list[str]


class Relation(Model):
    source: str = Field(alias="from", pattern=r"\S", max_length=255)
    to: str = Field(pattern=r"\S", max_length=255)
    relationType: str = Field(pattern=r"\S", max_length=255)


class Graph(Model):
    entities: list[Entity] = Field([])
    relations: list[Relation] = Field([])


class Entities(Model):
    entities: list[Entity]


class Relations(Model):
    relations: list[Relation]


class NewObservations(Model):
    entityName: str
    contents: list[str]


class AddObservationsInput(Model):
    observations: list[NewObservations]


class AddedObservations(Model):
    entityName: str
    addedObservations: list[str]


class AddObservationsOutput(Model):
    results: list[AddedObservations]


class DeleteEntitiesInput(Model):
    entityNames: list[str]


class ObservationsToDelete(Model):
    entityName: str
    observations: list[str]


class DeleteObservationsInput(Model):
    deletions: list[ObservationsToDelete]


class Done(Model):
    success: bool = True
    message: str


class ReadGraphInput(Model):
    pass


class SearchNodesInput(Model):
    query: str = Field(min_length=1, max_length=2_000)


class OpenNodesInput(Model):
    names: list[str]


async def create_entities(context: ToolContext, request: Entities) -> Entities:
    """New entities; those whose names are known stay as they are."""
    async with _Nodes(context) as nodes:
        known = await nodes.entities(entity.name for entity in request.entities)
        new = {it.name: it for it in reversed(request.entities) if it.name not in known}
        created = [it for it in request.entities if new.get(it.name) is it]
        await nodes.put(created, {})
        return Entities(entities=created)


async def create_relations(context: ToolContext, request: Relations) -> Relations:
    """New relations; each is kept once."""
    async with _Nodes(context) as nodes:
        wanted = {nodes.relation_id(it): it for it in request.relations}
        known = await nodes.notes.read(wanted)
        created = {name: it for name, it in wanted.items() if name not in known}
        await nodes.relate(created)
        return Relations(relations=list(created.values()))


async def add_observations(
    context: ToolContext, request: AddObservationsInput
) -> AddObservationsOutput:
    """More observations of entities that are known; those that they have are not added again."""
    async with _Nodes(context) as nodes:
        stored = await nodes.entities(it.entityName for it in request.observations)
        known = {name: _entity(note) for name, note in stored.items()}
        results: list[AddedObservations] = []
        for each in request.observations:
            if each.entityName not in known:
                raise NotFound(f"no entity {each.entityName!r:.80}")
            own = known[each.entityName].observations
            added = [it for it in dict.fromkeys(each.contents) if it not in own]
            own += added
            results.append(AddedObservations(entityName=each.entityName, addedObservations=added))
        await nodes.put(known.values(), stored)
        return AddObservationsOutput(results=results)


async def delete_entities(context: ToolContext, request: DeleteEntitiesInput) -> Done:
    """Entities and the relations that they have."""
    async with _Nodes(context) as nodes:
        names = set(request.entityNames)
        related = [note.id for note in await nodes.relations(names)]
        entities = [note.id for note in (await nodes.entities(names)).values()]
        await nodes.notes.write([], [*entities, *related], stored={})
        return Done(message=f"{len(entities)} entities and {len(related)} relations were deleted")


async def delete_observations(context: ToolContext, request: DeleteObservationsInput) -> Done:
    """Some observations of entities; what is not known is passed over."""
    async with _Nodes(context) as nodes:
        stored = await nodes.entities(it.entityName for it in request.deletions)
        known = {name: _entity(note) for name, note in stored.items()}
        count = 0
        for each in request.deletions:
            if entity := known.get(each.entityName):
                left = [it for it in entity.observations if it not in each.observations]
                count += len(entity.observations) - len(left)
                entity.observations = left
        await nodes.put(known.values(), stored)
        return Done(message=f"{count} observations were deleted")


async def delete_relations(context: ToolContext, request: Relations) -> Done:
    """Some relations; what is not known is passed over."""
    async with _Nodes(context) as nodes:
        known = await nodes.notes.read(nodes.relation_id(it) for it in request.relations)
        await nodes.notes.write([], list(known), stored={})
        return Done(message=f"{len(known)} relations were deleted")


async def read_graph(context: ToolContext, request: ReadGraphInput) -> Graph:
    """All entities and relations."""
    async with _Nodes(context) as nodes:
        entities = await nodes.notes.read_all(nodes.where("entity"))
        return _graph(entities, await nodes.relations())


async def search_nodes(context: ToolContext, request: SearchNodesInput) -> Graph:
    """Entities that answer a query, best first, and the relations that they have."""
    filters = {_KIND: "entity"}
    hits = await context.memory.search(request.query, filters=filters, limit=_MAX_NODES, past=True)
    async with _Nodes(context) as nodes:
        names = {hit.metadata[_NAME] for hit in hits}
        return _graph([hit.note for hit in hits], await nodes.relations(names), ordered=True)


async def open_nodes(context: ToolContext, request: OpenNodesInput) -> Graph:
    """Entities by their names, and the relations that they have."""
    async with _Nodes(context) as nodes:
        entities = await nodes.entities(request.names)
        return _graph(entities.values(), await nodes.relations(entities))


class _Nodes:
    """The graph of one user; whoever changes it does so alone."""

    notes: KeyedNotes

    def __init__(self, context: ToolContext) -> None:
        self._memory = context.memory

    async def __aenter__(self) -> "_Nodes":
        deps = await self._memory.runtime.prepared()
        self._lock = deps.lock(self._memory.scope.scope)
        await self._lock.acquire()
        self.notes = KeyedNotes(self._memory, deps)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()

    def relation_id(self, relation: Relation) -> str:
        place = (relation.source, relation.relationType, relation.to)
        return self.notes.note_id("mcp", "relation", *place)

    async def entities(self, names: Iterable[str]) -> dict[str, Note]:
        """Those of the named entities that are known."""
        ids = {self.notes.note_id("mcp", "entity", name): name for name in names}
        notes = await self.notes.read(ids)
        return {name: notes[note_id] for note_id, name in ids.items() if note_id in notes}

    def where(self, kind: str) -> Where:
        return self.notes.where(Filter("eq", _KIND, kind))

    async def relations(self, names: Collection[str] | None = None) -> list[Note]:
        """All relations, or those that one of the named entities has."""
        notes = await self.notes.read_all(self.where("relation"))
        ends = (_FROM, _TO)
        return [
            note
            for note in notes
            if names is None or any(note.metadata[end] in names for end in ends)
        ]

    async def put(self, entities: Iterable[Entity], stored: Mapping[str, Note]) -> None:
        """Store entities, in the place of those that are stored."""
        notes = []
        for entity in entities:
            note_id = self.notes.note_id("mcp", "entity", entity.name)
            lines = [f"{entity.name} ({entity.entityType})", *entity.observations]
            metadata: dict[str, Any] = {_KIND: "entity", _NAME: entity.name}
            metadata |= {_TYPE: entity.entityType, _OBSERVATIONS: entity.observations}
            before = stored.get(entity.name)
            notes.append(self.notes.note(note_id, "\n".join(lines), metadata, before))
        await self.notes.write(notes, stored={note.id: note for note in stored.values()})

    async def relate(self, relations: Mapping[str, Relation]) -> None:
        """Store new relations by their ids, as notes and as edges."""
        notes, links = [], []
        for note_id, it in relations.items():
            text = f"{it.source} {it.relationType} {it.to}"
            metadata = {_KIND: "relation", _FROM: it.source, _TO: it.to}
            metadata |= {_RELATION: it.relationType}
            notes.append(self.notes.note(note_id, text, metadata, None))
            links.append(Link(note_id, it.source, it.relationType, it.to))
        await self.notes.write(notes, stored={}, links=links)


def _entity(note: Note) -> Entity:
    values = note.metadata
    return Entity(
        name=values[_NAME], entityType=values[_TYPE], observations=list(values[_OBSERVATIONS])
    )


def _graph(entities: Iterable[Note], relations: Iterable[Note], *, ordered: bool = False) -> Graph:
    """A graph in the order of creation; `ordered` entities stay as they are."""
    chosen = entities if ordered else sorted(entities, key=_age)
    edges = [note.metadata for note in sorted(relations, key=_age)]
    values = [{"from": it[_FROM], "to": it[_TO], "relationType": it[_RELATION]} for it in edges]
    return Graph(
        entities=[_entity(note) for note in chosen],
        relations=[Relation.model_validate(it) for it in values],
    )


def _age(note: Note) -> tuple[Micros, int]:
    return note.created, note.arrival


_TOOLS = (
    *(create_entities, create_relations, add_observations),
    *(delete_entities, delete_observations, delete_relations),
    *(read_graph, search_nodes, open_nodes),
)
OFFICIAL_TOOLS: Mapping[str, ToolEntry] = {
    tool.__name__: tool_entry(__package__, tool) for tool in _TOOLS
}
