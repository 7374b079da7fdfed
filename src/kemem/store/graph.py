"""The graph as rows: entities, relations, and the notes that say so."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    union_all,
    update,
)

from kemem.errors import InvalidArgument
from kemem.ports.request import Key, Neighborhood
from kemem.records import Link, Micros, Relation, Where
from kemem.store.database import Database, Space, Statement, in_list, insert_new
from kemem.store.read import Shape, chunks, conditions_of, notes, one_of, shape_of, values_of
from kemem.store.schema import entity, note, relation, relation_source
from kemem.store.spaces import reserve
from kemem.text.segment import normalise

MAX_HOPS = 5
MAX_RELATIONS = 1_000
MAX_RELATIONSHIP = 255

Triple = tuple[int, str, int]

_entities = select(entity.c.name_key, entity.c.id, entity.c.type).where(
    entity.c.space_no == bindparam("of_space"),
    entity.c.name_key.in_(bindparam("names", expanding=True)),
)
_relations = select(
    relation.c.source_id, relation.c.relationship, relation.c.destination_id, relation.c.id
).where(
    relation.c.space_no == bindparam("of_space"),
    relation.c.source_id.in_(bindparam("sources", expanding=True)),
    relation.c.destination_id.in_(bindparam("destinations", expanding=True)),
)
_supported = select(relation_source.c.relation_id).where(
    relation_source.c.space_no == bindparam("of_space"),
    relation_source.c.note_row.in_(bindparam("rows", expanding=True)),
)


def name_key(name: str) -> str:
    """What makes two names one entity: case, width and blanks do not count."""
    return " ".join(normalise(name).split())[:255]


def put_links(
    connection: Connection, database: Database, space: Space, links: Sequence[tuple[Link, int]]
) -> None:
    """Relations of one space, each with the row of the note that supports it."""
    if any(len(link.relationship) > MAX_RELATIONSHIP for link, _ in links):
        raise InvalidArgument(f"a relationship has at most {MAX_RELATIONSHIP} characters")
    names: dict[str, tuple[str, str]] = {}
    for link, _ in links:
        _name(names, link.source, link.source_type)
        _name(names, link.destination, link.destination_type)
    entities = _ensure_entities(connection, space, names)
    triples = [
        (entities[name_key(it.source)], it.relationship, entities[name_key(it.destination)])
        for it, _ in links
    ]
    relations = _ensure_relations(connection, space, triples)
    connection.execute(
        insert_new(database.insert, relation_source),
        [
            {"space_no": space.space_no, "relation_id": relations[triple], "note_row": row}
            for triple, (_, row) in zip(triples, links, strict=True)
        ],
    )


def _name(names: dict[str, tuple[str, str]], name: str, kind: str) -> None:
    """The first spelling stays, and the first type that says something."""
    shown, known = names.get(name_key(name), (name, "thing"))
    names[name_key(name)] = (shown, kind if known == "thing" else known)


def _ensure_entities(
    connection: Connection, space: Space, names: Mapping[str, tuple[str, str]]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for chunk in chunks(sorted(names)):
        values = {"of_space": space.space_no, "names": list(chunk)}
        for key, row, kind in connection.execute(_entities, values).all():
            found[key] = row
            if kind == "thing" and names[key][1] != "thing":
                this = and_(entity.c.space_no == space.space_no, entity.c.id == row)
                connection.execute(update(entity).where(this).values(type=names[key][1]))
    missing = [key for key in names if key not in found]
    if missing:
        first = reserve(connection, space, len(missing))
        rows = [
            {
                "space_no": space.space_no,
                "id": first + index,
                "name": names[key][0],
                "name_key": key,
                "type": names[key][1],
            }
            for index, key in enumerate(missing)
        ]
        connection.execute(insert(entity), rows)
        found |= {key: first + index for index, key in enumerate(missing)}
    return found


def _ensure_relations(
    connection: Connection, space: Space, triples: Sequence[Triple]
) -> dict[Triple, int]:
    found: dict[Triple, int] = {}
    for chunk in chunks(sorted({source for source, _, _ in triples})):
        values = {
            "of_space": space.space_no,
            "sources": list(chunk),
            "destinations": list({destination for _, _, destination in triples}),
        }
        for source, relationship, destination, row in connection.execute(_relations, values):
            found[source, relationship, destination] = row
    missing = [triple for triple in dict.fromkeys(triples) if triple not in found]
    if missing:
        first = reserve(connection, space, len(missing))
        rows = [
            {
                "space_no": space.space_no,
                "id": first + index,
                "source_id": source,
                "relationship": relationship,
                "destination_id": destination,
            }
            for index, (source, relationship, destination) in enumerate(missing)
        ]
        connection.execute(insert(relation), rows)
        found |= {triple: first + index for index, triple in enumerate(missing)}
    return found


def unlink(connection: Connection, space_no: int, note_rows: Sequence[int]) -> None:
    """Take back what these notes support, and relations and entities that nothing else does."""
    of_space = relation_source.c.space_no == space_no
    by_note = and_(of_space, relation_source.c.note_row.in_(note_rows))
    values = {"of_space": space_no, "rows": list(note_rows)}
    touched = set(connection.execute(_supported, values).scalars())
    if not touched:
        return
    connection.execute(delete(relation_source).where(by_note))
    for chunk in chunks(sorted(touched)):
        kept = select(relation_source.c.relation_id).where(
            of_space, relation_source.c.relation_id.in_(chunk)
        )
        loose = set(chunk) - set(connection.execute(kept).scalars())
        _drop_relations(connection, space_no, loose)


def _drop_relations(connection: Connection, space_no: int, rows: Iterable[int]) -> None:
    this = and_(relation.c.space_no == space_no, relation.c.id.in_(sorted(rows)))
    ends = connection.execute(select(relation.c.source_id, relation.c.destination_id).where(this))
    entities = {end for pair in ends for end in pair}
    connection.execute(delete(relation).where(this))
    for chunk in chunks(sorted(entities)):
        used: set[int] = set()
        for end in (relation.c.source_id, relation.c.destination_id):
            statement = select(end).where(relation.c.space_no == space_no, end.in_(chunk))
            used |= set(connection.execute(statement).scalars())
        connection.execute(
            delete(entity).where(
                entity.c.space_no == space_no, entity.c.id.in_(sorted(set(chunk) - used))
            )
        )


def around(
    connection: Connection, near: Neighborhood, spaces: Sequence[Space]
) -> tuple[list[Relation], dict[Key, int]]:
    """Relations near some entities, breadth first, one query for each hop; and the rows of notes.

    A recursive query would be planned badly by some versions of SQLite, by a factor of hundreds.
    """
    hops, limit = near.hops, near.limit
    if near.where.filters is not None:
        raise InvalidArgument("the graph takes no filters", field="filters")
    if type(hops) is not int or not 1 <= hops <= MAX_HOPS:
        raise InvalidArgument(f"hops must be 1-{MAX_HOPS}, not {hops!r:.80}", field="hops")
    if type(limit) is not int or not 1 <= limit <= MAX_RELATIONS:
        raise InvalidArgument(f"limit must be 1-{MAX_RELATIONS}, not {limit!r:.80}", field="limit")
    visible = notes.spaces(spaces, near.where)
    if not visible:
        return [], {}
    walk = _Walk(connection, near.where, visible, limit)
    if not near.names:
        return walk.relations([walk.edges(None)])
    levels: list[list[_Edge]] = []
    frontier = walk.named(sorted({name_key(name) for name in near.names}))
    for _ in range(hops):
        if frontier and sum(map(len, levels)) < limit:
            fresh, frontier = walk.expand(frontier)
            levels.append(fresh)
    return walk.relations(levels)


class _Edge(NamedTuple):
    """A visible relation, its ends, and when its oldest visible note began."""

    row: int
    space_no: int
    source_row: int
    source: str
    source_type: str
    relationship: str
    destination_row: int
    destination: str
    destination_type: str
    begun: Micros


_named = select(entity.c.id).where(
    entity.c.space_no.in_(bindparam("spaces", expanding=True)),
    in_list(entity.c.name_key, "names"),
)
_source = entity.alias("source_end")
_destination = entity.alias("destination_end")
_begun: Any = func.min(note.c.valid_from)
_joined = (
    relation.join(
        relation_source,
        and_(
            relation_source.c.space_no == relation.c.space_no,
            relation_source.c.relation_id == relation.c.id,
        ),
    )
    .join(
        note,
        and_(
            note.c.space_no == relation_source.c.space_no,
            note.c.id == relation_source.c.note_row,
        ),
    )
    .join(
        _source,
        and_(_source.c.space_no == relation.c.space_no, _source.c.id == relation.c.source_id),
    )
    .join(
        _destination,
        and_(
            _destination.c.space_no == relation.c.space_no,
            _destination.c.id == relation.c.destination_id,
        ),
    )
)
_edges = (
    select(
        relation.c.id,
        relation.c.space_no,
        _source.c.id,
        _source.c.name,
        _source.c.type,
        relation.c.relationship,
        _destination.c.id,
        _destination.c.name,
        _destination.c.type,
        _begun,
    )
    .select_from(_joined)
    .group_by(
        *(relation.c.space_no, relation.c.id),
        *(_source.c.space_no, _source.c.id),
        *(_destination.c.space_no, _destination.c.id),
    )
    .order_by(_begun.desc(), _source.c.name, relation.c.relationship, _destination.c.name)
)
_notes = select(
    relation_source.c.relation_id, note.c.id, note.c.note_id, note.c.valid_until
).join_from(
    relation_source,
    note,
    and_(note.c.space_no == relation_source.c.space_no, note.c.id == relation_source.c.note_row),
)


@cache
def _edges_of(shape: Shape, touching: bool) -> Statement:
    """Visible relations, newest first; if `touching`, those of some entities."""
    of_spaces = one_of(relation.c.space_no, "spaces")
    conditions = [of_spaces, *conditions_of(notes, shape)]
    if touching:  # each direction has an index of its own
        ends = (relation.c.source_id, relation.c.destination_id)
        found = (select(relation.c.id).where(of_spaces, in_list(end, "ends")) for end in ends)
        conditions.append(relation.c.id.in_(union_all(*found)))
    return _edges.where(*conditions).limit(bindparam("most"))


@cache
def _notes_of(shape: Shape) -> Statement:
    """The visible notes that support some relations."""
    of_spaces = one_of(relation_source.c.space_no, "spaces")
    wanted = in_list(relation_source.c.relation_id, "relations")
    return _notes.where(of_spaces, wanted, *conditions_of(notes, shape))


class _Walk:
    """A breadth-first walk over the visible relations of some spaces."""

    def __init__(
        self, connection: Connection, where: Where, spaces: Sequence[Space], limit: int
    ) -> None:
        self._connection = connection
        self._spaces = {each.space_no: each for each in spaces}
        self._shape = shape_of(where)
        self._values = values_of(where, spaces)
        self._limit = limit
        self._passed: set[int] = set()  # relations
        self._reached: set[int] = set()  # entities

    def named(self, keys: list[str]) -> set[int]:
        """The entities of these names; their rows tell spaces apart."""
        values = {"spaces": list(self._spaces), "names": keys}
        self._reached |= set(self._connection.execute(_named, values).scalars())
        return set(self._reached)

    def expand(self, frontier: set[int]) -> tuple[list[_Edge], set[int]]:
        """One hop further: the relations and entities that were not reached before."""
        edges = {edge.row: edge for edge in self.edges(sorted(frontier))}
        fresh = [edge for row, edge in edges.items() if row not in self._passed]
        self._passed |= edges.keys()
        ends = {end for edge in fresh for end in (edge.source_row, edge.destination_row)}
        ends -= self._reached
        self._reached |= ends
        return fresh, ends

    def edges(self, ends: Sequence[int] | None) -> list[_Edge]:
        """Visible relations, newest first, enough of them whatever was passed already."""
        statement = _edges_of(self._shape, ends is not None)
        most = self._limit + len(self._passed)
        values = {**self._values, "ends": ends, "most": most}
        return [_Edge(*tuple(row)) for row in self._connection.execute(statement, values)]

    def relations(self, levels: Sequence[Sequence[_Edge]]) -> tuple[list[Relation], dict[Key, int]]:
        """The relations behind some edges with their visible notes, hop by hop, newest first."""
        support: dict[int, list[tuple[int, str, Micros | None]]] = defaultdict(list)
        values = {**self._values, "relations": [it.row for level in levels for it in level]}
        if values["relations"]:
            for row, *supporting in self._connection.execute(_notes_of(self._shape), values):
                support[row].append(tuple(supporting))
        found: list[Relation] = []
        keys: dict[Key, int] = {}
        for level in levels:
            found += sorted((self._relation(it, support[it.row]) for it in level), key=_place)
        for edge in (edge for level in levels for edge in level):
            space = self._spaces[edge.space_no]
            for row, name, _ in support[edge.row]:
                keys[space.agent_id, space.user_id, name] = row
        return found[: self._limit], keys

    def _relation(self, edge: _Edge, support: list[tuple[int, str, Micros | None]]) -> Relation:
        space = self._spaces[edge.space_no]
        ends = [until for *_, until in support]
        return Relation(
            agent_id=space.agent_id,
            user_id=space.user_id,
            source=edge.source,
            relationship=edge.relationship,
            destination=edge.destination,
            source_type=edge.source_type,
            destination_type=edge.destination_type,
            note_ids=tuple(sorted(name for _, name, _ in support)),
            valid_from=edge.begun,
            valid_until=None if None in ends else max(filter(None, ends)),
        )


def _place(found: Relation) -> tuple[Any, ...]:
    names = (found.source, found.relationship, found.destination, found.agent_id, found.user_id)
    return (-found.valid_from, *names)
