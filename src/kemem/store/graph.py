"""The graph as rows: entities, relations, and the notes that say so."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Literal, TypeVar

import sqlalchemy as sa

from kemem.errors import InvalidArgument
from kemem.ports.request import Key, Neighborhood
from kemem.records import Link, Relation
from kemem.records.ontology import ENTITY_TYPES
from kemem.store.database import Joined, Space, Statement, Values, in_list, upsert
from kemem.store.read import chunks
from kemem.store.schema import entity, note, relation, relation_source
from kemem.store.spaces import Transaction
from kemem.store.tables import SEPARATOR, Shape, conditions_of, notes, one_of, shape_of, values_of
from kemem.text.segment import normalise

MAX_HOPS = 5
MAX_RELATIONS = 1_000
MAX_RELATIONSHIP = 255

K = TypeVar("K", bound=Hashable)

_TRIPLE = ("source_id", "relationship", "destination_id")
_insert = {table: sa.insert(table) for table in (entity, relation)}


def _of_space(table: sa.Table) -> sa.ColumnElement[bool]:
    return table.c.space_no == sa.bindparam("of_space")


def _refers(column: sa.Column[int], table: Any) -> sa.ColumnElement[bool]:
    """A column that holds the id of a row of a table, both being of one space."""
    return sa.and_(table.c.space_no == column.table.c.space_no, table.c.id == column)


_entities = sa.select(entity.c.name_key, entity.c.id, entity.c.type).where(
    _of_space(entity), one_of(entity.c.name_key, "names")
)
_set_type = (
    sa.update(entity)
    .where(_of_space(entity), entity.c.id == sa.bindparam("of_row"))
    .values(type=sa.bindparam("new_type"))
)
_relations = sa.select(*(relation.c[name] for name in (*_TRIPLE, "id"))).where(
    _of_space(relation),
    in_list(relation.c.source_id, "sources"),
    in_list(relation.c.destination_id, "destinations"),
)
_by_notes = (_of_space(relation_source), one_of(relation_source.c.note_row, "rows"))
_supported = sa.select(relation_source.c.relation_id).where(*_by_notes)
_unsupported = sa.select(relation.c.id, relation.c.source_id, relation.c.destination_id).where(
    _of_space(relation),
    in_list(relation.c.id, "relations"),
    ~sa.exists().where(_refers(relation_source.c.relation_id, relation)),
)
_drop_support = sa.delete(relation_source).where(*_by_notes)
_drop_relations = sa.delete(relation).where(
    _of_space(relation), in_list(relation.c.id, "relations")
)
_drop_entities = sa.delete(entity).where(
    _of_space(entity),
    in_list(entity.c.id, "ends"),
    ~sa.exists().where(_refers(relation.c.source_id, entity)),
    ~sa.exists().where(_refers(relation.c.destination_id, entity)),
)


def name_key(name: str) -> str:
    """What makes two names one entity: case, width and blanks do not count."""
    return " ".join(normalise(name).split())[:255]


def put_links(transaction: Transaction, space: Space, links: Sequence[tuple[Link, int]]) -> None:
    """Relations of one space, each with the row of the note that supports it."""
    if any(len(link.relationship) > MAX_RELATIONSHIP for link, _ in links):
        raise InvalidArgument(f"a relationship has at most {MAX_RELATIONSHIP} characters")
    existing, entities = _ensure_entities(transaction, space, [link for link, _ in links])
    triples = [
        (entities[name_key(link.source)], link.relationship, entities[name_key(link.destination)])
        for link, _ in links
    ]
    values = {
        "of_space": space.space_no,
        "sources": sorted({source for source, _, _ in triples}),
        "destinations": sorted({destination for _, _, destination in triples}),
    }
    # Between entities of which one is new there is no relation yet.
    is_looked_up = any({source, target} <= existing for source, _, target in triples)
    rows = transaction.connection.execute(_relations, values) if is_looked_up else ()
    relations = {tuple(triple): row for *triple, row in rows}
    columns = {triple: dict(zip(_TRIPLE, triple, strict=True)) for triple in triples}
    relations |= _insert_missing(transaction, space, relation, columns, relations)
    supports = [
        {"space_no": space.space_no, "relation_id": relations[triple], "note_row": row}
        for triple, (_, row) in zip(triples, links, strict=True)
    ]
    upsert(transaction.connection, relation_source, supports)


def _ensure_entities(
    transaction: Transaction, space: Space, links: Sequence[Link]
) -> tuple[set[int], dict[str, int]]:
    """The entities of some links: those that existed, and all by their keys.

    The first spelling and the first type stay, unless an own type follows a built-in one.
    """
    columns: dict[str, Values] = {}
    for link in links:
        ends = ((link.source, link.source_type), (link.destination, link.destination_type))
        for name, kind in ends:
            row = columns.setdefault(name_key(name), {"name": name, "name_key": name_key(name)})
            if _gives_way(row.get("type", "thing"), kind):
                row["type"] = kind
    this = {"of_space": space.space_no}
    existing: dict[str, int] = {}
    for chunk in chunks(sorted(columns)):
        rows = transaction.connection.execute(_entities, {**this, "names": chunk}).all()
        for key, row_id, kind in rows:
            existing[key] = row_id
            if kind != columns[key]["type"] and _gives_way(kind, columns[key]["type"]):
                new = {**this, "of_row": row_id, "new_type": columns[key]["type"]}
                transaction.connection.execute(_set_type, new)
    new = _insert_missing(transaction, space, entity, columns, existing)
    return {*existing.values()}, existing | new


def _gives_way(known: str, new: str) -> bool:
    """Whether another type of an entity takes the place of the known one."""
    is_own = new not in ENTITY_TYPES and known in ENTITY_TYPES
    return known == "thing" or is_own  # a thing says nothing


def _insert_missing(
    transaction: Transaction,
    space: Space,
    table: sa.Table,
    columns: Mapping[K, Values],
    existing: Mapping[K, int],
) -> dict[K, int]:
    """Insert the rows whose keys do not exist; returns the id of each."""
    missing = [key for key in columns if key not in existing]
    if not missing:
        return {}
    ids = dict(zip(missing, count(transaction.reserve(space, len(missing))), strict=False))
    rows = [{"space_no": space.space_no, "id": ids[key], **columns[key]} for key in missing]
    transaction.connection.execute(_insert[table], rows)
    return ids


def unlink(connection: sa.Connection, space_no: int, note_rows: Sequence[int]) -> None:
    """Take back what these notes support, and relations and entities that nothing else does."""
    this = {"of_space": space_no}
    supported = connection.execute(_supported, {**this, "rows": note_rows}).scalars().all()
    if not supported:
        return
    connection.execute(_drop_support, {**this, "rows": note_rows})
    unsupported = connection.execute(_unsupported, {**this, "relations": supported}).all()
    connection.execute(_drop_relations, {**this, "relations": [row.id for row in unsupported]})
    ends = sorted({end for _, *pair in unsupported for end in pair})
    connection.execute(_drop_entities, {**this, "ends": ends})


_named = sa.select(entity.c.id).where(
    one_of(entity.c.space_no, "spaces"), in_list(entity.c.name_key, "names")
)
_source = entity.alias("source_end")
_destination = entity.alias("destination_end")
_begun: Any = sa.func.min(note.c.valid_from).label("begun")
_ended = sa.func.coalesce(sa.cast(note.c.valid_until, sa.Text), "")
_edges = (
    sa.select(
        *(relation.c.id, relation.c.space_no, relation.c.relationship, _begun),
        *(relation.c.source_id, _source.c.name.label("source")),
        *(relation.c.destination_id, _destination.c.name.label("destination")),
        _source.c.type.label("source_type"),
        _destination.c.type.label("destination_type"),
        # The visible notes that support it.
        Joined(note.c.id).label("note_rows"),
        sa.func.aggregate_strings(note.c.note_id, SEPARATOR).label("note_ids"),
        sa.func.aggregate_strings(_ended, SEPARATOR).label("ends"),
    )
    .select_from(relation)
    .join(relation_source, _refers(relation_source.c.relation_id, relation))
    .join(note, _refers(relation_source.c.note_row, note))
    .join(_source, _refers(relation.c.source_id, _source))
    .join(_destination, _refers(relation.c.destination_id, _destination))
    .group_by(
        *(relation.c.space_no, relation.c.id),
        *(_source.c.space_no, _source.c.id),
        *(_destination.c.space_no, _destination.c.id),
    )
    .order_by(_begun.desc(), _source.c.name, relation.c.relationship, _destination.c.name)
)


@cache
def _edges_of(shape: Shape, of: Literal["all", "named", "ends"], typed: bool) -> Statement:
    """Visible relations, newest first: all, or those of entities by their names or ids."""
    of_spaces = one_of(relation.c.space_no, "spaces")
    conditions = [of_spaces, *conditions_of(notes, shape)]
    if typed:
        conditions.append(in_list(relation.c.relationship, "relationships"))
    if of != "all":  # each direction has an index of its own
        ends = (relation.c.source_id, relation.c.destination_id)
        own = [in_list(end, "ends") if of == "ends" else end.in_(_named) for end in ends]
        rows = (sa.select(relation.c.id).where(of_spaces, condition) for condition in own)
        conditions.append(relation.c.id.in_(sa.union_all(*rows)))
    return _edges.where(*conditions).limit(sa.bindparam("most"))


Around = tuple[list[Relation], dict[Key, int]]


def ask_around(
    connection: sa.Connection, near: Neighborhood, spaces: Sequence[Space]
) -> Callable[[], Around]:
    """Relations near some entities, breadth first, one query for each hop; and the rows of notes.

    The first hop is asked for now and waited for when the answer is called. A recursive query would
    be planned badly by some versions of SQLite, by a factor of hundreds.
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
        return lambda: ([], {})
    shape, values = shape_of(near.where), values_of(near.where, visible)
    typed = bool(near.relationships)
    values |= {"relationships": sorted({*near.relationships})} if typed else {}
    owners = {each.space_no: (each.agent_id, each.user_id) for each in visible}
    if not near.names:
        newest = connection.execute(_edges_of(shape, "all", typed), {**values, "most": limit})
        return lambda: _load_relations([newest.all()], owners, limit)
    values |= {"names": sorted({name_key(name) for name in near.names})}
    named = connection.execute(_named, values)
    first = connection.execute(_edges_of(shape, "named", typed), {**values, "most": limit})

    def walk() -> Around:
        reached = set(named.scalars())  # entities
        levels = [first.all()]  # the relations of each hop, newest first
        passed = {row.id for row in levels[0]}
        for _ in range(1, hops):
            ends = {end for row in levels[-1] for end in (row.source_id, row.destination_id)}
            frontier, reached = ends - reached, reached | ends
            if not frontier or len(passed) >= limit:
                break
            # Enough of them, however many were passed already.
            bound = {**values, "ends": sorted(frontier), "most": limit + len(passed)}
            rows = connection.execute(_edges_of(shape, "ends", typed), bound)
            levels.append([row for row in rows if row.id not in passed])
            passed |= {row.id for row in levels[-1]}
        return _load_relations(levels, owners, limit)

    return walk


def _load_relations(
    levels: Sequence[Sequence[sa.Row[Any]]], owners: Mapping[int, tuple[str, str]], limit: int
) -> Around:
    """Relations with their visible notes, hop by hop, newest first; and the rows of the notes."""
    relations: list[Relation] = []
    keys: dict[Key, int] = {}
    for level in levels:
        loaded = []
        for row in level:
            note_ids, ends = row.note_ids.split(SEPARATOR), row.ends.split(SEPARATOR)
            loaded.append(
                Relation(
                    *owners[row.space_no],
                    *(row.source, row.relationship, row.destination),
                    *(row.source_type, row.destination_type),
                    note_ids=tuple(sorted(note_ids)),
                    valid_from=row.begun,
                    valid_until=None if "" in ends else max(map(int, ends)),
                )
            )
            rows = zip(note_ids, row.note_rows.split(","), strict=True)
            keys |= {(*owners[row.space_no], name): int(number) for name, number in rows}
        relations += sorted(
            loaded,
            key=lambda it: (
                *(-it.valid_from, it.source, it.relationship, it.destination),
                *(it.agent_id, it.user_id),
            ),
        )
    return relations[:limit], keys
