"""Neo4j 5: the graph carried over into a graph database beside the store.

Every statement is one of the constants below; data is only ever a parameter.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from kemem.errors import InvalidArgument, Unavailable
from kemem.records import NOTES, Note, Relation, Scope, Where
from kemem.store.graph import MAX_HOPS, MAX_RELATIONS, name_key

if TYPE_CHECKING:
    from neo4j import AsyncDriver
    from neo4j import AsyncManagedTransaction as Transaction

Owner = tuple[str, str]  # agent and user
Place = tuple[str, str, str]  # of an entity: its owner and the key of its name
Edges = dict[tuple[Place, str, Place], Relation]

READ_SECONDS = 10.0
WRITE_SECONDS = 120.0  # less than the lease of a job
_PATIENCE: dict[str, Any] = {"connection_timeout": 5.0, "max_transaction_retry_time": 2.0}

SCHEMA = (
    "CREATE CONSTRAINT kemem_entity IF NOT EXISTS "
    "FOR (e:Entity) REQUIRE (e.agent_id, e.user_id, e.name_key) IS UNIQUE",
    # A composite index serves only what asks for all of its properties.
    "CREATE INDEX kemem_owner IF NOT EXISTS FOR (e:Entity) ON (e.agent_id, e.user_id)",
    "CREATE INDEX kemem_user IF NOT EXISTS FOR (e:Entity) ON (e.user_id)",
    "CREATE INDEX kemem_note IF NOT EXISTS FOR ()-[r:RELATION]-() ON (r.note_id)",
    "CREATE INDEX kemem_session IF NOT EXISTS FOR ()-[r:RELATION]-() ON (r.session_id)",
)
_OWNERS = "RETURN DISTINCT e.agent_id, e.user_id"
OWNERS_OF_AGENT = (
    f"MATCH (e:Entity) WHERE e.agent_id = $agent_id AND e.user_id IS NOT NULL {_OWNERS}"
)
OWNERS_OF_USER = f"MATCH (e:Entity) WHERE e.user_id = $user_id {_OWNERS}"
OWNERS_OF_SESSION = (
    f"MATCH (e:Entity)-[r:RELATION]->(:Entity) WHERE r.session_id = $session_id {_OWNERS}"
)
UNLINK_NOTES = """
MATCH (source:Entity)-[r:RELATION]->(destination:Entity)
WHERE r.note_id IN $note_ids
  AND ($agent_id IS NULL OR source.agent_id = $agent_id)
  AND ($user_id IS NULL OR source.user_id = $user_id)
  AND ($session_id IS NULL OR r.session_id = $session_id)
DELETE r
RETURN DISTINCT source.agent_id, source.user_id, source.name_key, destination.name_key"""
UNLINK_ALL = """
UNWIND $owners AS at
MATCH (source:Entity {agent_id: at[0], user_id: at[1]})-[r:RELATION]->(destination:Entity)
WHERE $session_id IS NULL OR r.session_id = $session_id
DELETE r
RETURN DISTINCT source.agent_id, source.user_id, source.name_key, destination.name_key"""
PRUNE = """
UNWIND $places AS at
MATCH (e:Entity {agent_id: at[0], user_id: at[1], name_key: at[2]}) WHERE NOT (e)--()
DELETE e"""
MEET = """
UNWIND $entities AS met
MERGE (e:Entity {agent_id: $agent_id, user_id: $user_id, name_key: met.name_key})
SET e.name = met.name, e.type = met.type"""
LINK = """
UNWIND $edges AS edge
MATCH (source:Entity {agent_id: $agent_id, user_id: $user_id, name_key: edge[0]})
MATCH (destination:Entity {agent_id: $agent_id, user_id: $user_id, name_key: edge[2]})
CREATE (source)-[:RELATION {
  relationship: edge[1], note_id: $note_id, kind: $kind, session_id: $session_id,
  valid_from: $valid_from, valid_until: $valid_until, expires: $expires,
  sensitive: $sensitive}]->(destination)"""
# An edge without the mark, carried over before there was one, counts as sensitive.
_VISIBLE = """
WHERE r.kind IN $kinds AND ($ids IS NULL OR r.note_id IN $ids)
  AND ($session_id IS NULL OR r.session_id = $session_id
       OR (source.agent_id = $shared AND source.user_id = ''))
  AND ($valid_at IS NULL OR r.valid_until IS NULL OR r.valid_until > $valid_at)
  AND ($valid_at IS NULL OR r.expires IS NULL OR r.expires > $valid_at)
  AND ($known_by IS NULL OR r.valid_from <= $known_by)
  AND ($sensitive OR NOT r.sensitive)
WITH source, r.relationship AS relationship, destination, collect(r.note_id) AS note_ids,
     min(r.valid_from) AS begun, max(r.valid_until) AS ended,
     count(r) - count(r.valid_until) AS endless
ORDER BY begun DESC, source.name, relationship, destination.name, source.agent_id, source.user_id
LIMIT $limit
RETURN source.agent_id, source.user_id, source.name_key, source.name, source.type, relationship,
       destination.name_key, destination.name, destination.type, note_ids, begun, ended, endless"""
_OWN = "{agent_id: at[0], user_id: at[1]}"
_NAMED = "{agent_id: at[0], user_id: at[1], name_key: at[2]}"
_EDGES = """
UNWIND $places AS at
MATCH (source:Entity %s)-[r:RELATION]->(destination:Entity %s)"""
NEWEST = _EDGES % (_OWN, _OWN) + _VISIBLE
LEAVING = _EDGES % (_NAMED, _OWN) + _VISIBLE
ARRIVING = _EDGES % (_OWN, _NAMED) + _VISIBLE


class Neo4jGraph:
    """A mirror of the graph in Neo4j, over an async driver that it takes over.

    graph = Neo4jGraph.connect("neo4j://localhost:7687", "neo4j", password)
    """

    def __init__(self, driver: "AsyncDriver", database: str | None = None) -> None:
        self._driver = driver
        self._database = database
        self._prepared = False

    @classmethod
    def connect(cls, url: str, user: str, password: str, database: str | None = None) -> Self:
        """A mirror by its address; nothing is opened before the first call."""
        try:
            from neo4j import AsyncGraphDatabase
            from neo4j.exceptions import DriverError
        except ImportError:
            raise InvalidArgument("for Neo4j install KeMem with the extra 'neo4j'") from None
        try:
            if not url.startswith(("neo4j", "bolt")):
                raise ValueError
            driver = AsyncGraphDatabase.driver(url, auth=(user, password), **_PATIENCE)
        except (DriverError, ValueError):  # whose message repeats the URL
            form = "neo4j://host:7687 or bolt+s://host"
            raise InvalidArgument(f"neo4j_url must be like {form}", field="neo4j_url") from None
        return cls(driver, database)

    async def prepare(self) -> None:
        """The key and the indexes that the statements rely on; the first write asks for them."""
        for statement in SCHEMA:
            await self._write(_run, statement, {})
        self._prepared = True

    async def put(self, note: Note, relations: Sequence[Relation]) -> None:
        """Make these relations what a note supports, in one transaction."""
        if not self._prepared:
            await self.prepare()
        await self._write(_put, note, relations)

    async def remove(self, owner: Scope, note_ids: Sequence[str] | None = None) -> None:
        """Take back what notes support, or all that a scope has."""
        if note_ids is None:
            await self._write(_remove_all, owner)
        elif note_ids:
            parameters = {**asdict(owner), "note_ids": list(note_ids)}
            await self._write(_unlink, UNLINK_NOTES, parameters)

    async def around(
        self, where: Where, names: Sequence[str], *, hops: int = 1, limit: int = 100
    ) -> list[Relation]:
        """Relations near some entities, breadth first: one query for each hop and direction."""
        for name in ("filters", "since", "until", "marks", "sources"):  # what no edge can tell
            if getattr(where, name) is not None:
                raise InvalidArgument(f"the graph takes no {name}", field=name)
        for name, number, most in (("hops", hops, MAX_HOPS), ("limit", limit, MAX_RELATIONS)):
            if type(number) is not int or not 1 <= number <= most:
                raise InvalidArgument(f"{name} must be 1-{most}, not {number!r:.80}", field=name)
        if not where.kinds & NOTES or where.role is not None:
            return []
        async with _guarded(READ_SECONDS), self._driver.session(database=self._database) as it:
            return await it.execute_read(_around, where, names, hops, limit)

    async def close(self) -> None:
        """Let go of connections."""
        async with _guarded(READ_SECONDS):
            await self._driver.close()

    async def _write(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        async with _guarded(WRITE_SECONDS), self._driver.session(database=self._database) as it:
            await it.execute_write(work, *arguments)


@asynccontextmanager
async def _guarded(seconds: float) -> AsyncIterator[None]:
    """Whatever goes wrong in the driver, or takes too long, is Unavailable."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except Exception as error:  # the driver's code or network, which may raise anything
        code = getattr(error, "code", None) or type(error).__name__
        # Its own message may quote data: the breach of a key shows a name.
        raise Unavailable(f"Neo4j failed: {code}") from None


async def _run(transaction: "Transaction", statement: str, values: Mapping[str, Any]) -> list[Any]:
    result = await transaction.run(statement, dict(values))
    return await result.values()


async def _put(transaction: "Transaction", note: Note, relations: Sequence[Relation]) -> None:
    owner = asdict(Scope(note.agent_id, note.user_id))
    await _unlink(transaction, UNLINK_NOTES, {**owner, "note_ids": [note.note_id]})
    await _run(transaction, MEET, {**owner, "entities": _entities(relations)})
    names = ("note_id", "kind", "session_id", "valid_from", "valid_until", "expires", "sensitive")
    edges = {(name_key(it.source), it.relationship, name_key(it.destination)) for it in relations}
    properties = {name: getattr(note, name) for name in names}
    await _run(transaction, LINK, {**owner, **properties, "edges": sorted(edges)})


async def _remove_all(transaction: "Transaction", scope: Scope) -> None:
    owners = await _owners(transaction, scope, None)
    await _unlink(transaction, UNLINK_ALL, {"session_id": scope.session_id, "owners": owners})


async def _unlink(transaction: "Transaction", statement: str, values: Mapping[str, Any]) -> None:
    """Delete edges, then the entities that nothing else speaks of."""
    rows = await _run(transaction, statement, values)
    loose = {(agent_id, user_id, key) for agent_id, user_id, *keys in rows for key in keys}
    await _run(transaction, PRUNE, {"places": sorted(loose)})


def _entities(relations: Iterable[Relation]) -> list[dict[str, str]]:
    """The ends of relations: the first spelling stays, and the first type that says something."""
    met: dict[str, dict[str, str]] = {}
    for it in relations:
        for name, kind in ((it.source, it.source_type), (it.destination, it.destination_type)):
            key = name_key(name)
            entity = met.setdefault(key, {"name_key": key, "name": name, "type": kind})
            entity["type"] = kind if entity["type"] == "thing" else entity["type"]
    return list(met.values())


async def _owners(transaction: "Transaction", scope: Scope, shared: str | None) -> list[Owner]:
    """The agents and users of a scope, and the shared part of an agent that is seen besides."""
    if scope.agent_id is not None and scope.user_id is not None:
        rows: list[Any] = [(scope.agent_id, scope.user_id)]
    else:
        of_user = OWNERS_OF_SESSION if scope.user_id is None else OWNERS_OF_USER
        statement = of_user if scope.agent_id is None else OWNERS_OF_AGENT
        rows = await _run(transaction, statement, asdict(scope))
    besides = set() if shared is None else {(shared, "")}
    return sorted({(agent_id, user_id) for agent_id, user_id in rows} | besides)


async def _around(
    transaction: "Transaction", where: Where, names: Sequence[str], hops: int, limit: int
) -> list[Relation]:
    owners = await _owners(transaction, where.scope, where.shared)
    fields = ("shared", "valid_at", "known_by", "sensitive")
    values = {name: getattr(where, name) for name in fields}
    values |= {"session_id": where.scope.session_id, "kinds": sorted(where.kinds), "limit": limit}
    values |= {"ids": None if where.ids is None else sorted(where.ids)}

    async def edges(statement: str, places: Iterable[Owner | Place]) -> Edges:
        rows = await _run(transaction, statement, {**values, "places": sorted(places)})
        return dict(map(_edge, rows))

    if not names:
        return sorted((await edges(NEWEST, owners)).values(), key=_order)
    frontier: set[Place] = {(*owner, name_key(name)) for owner in owners for name in names}
    reached = set(frontier)
    passed: Edges = {}  # no more than the relations: what comes again leaves room for the rest
    relations: list[Relation] = []
    for _ in range(hops):
        if not frontier or len(relations) >= limit:
            break
        near = await edges(LEAVING, frontier) | await edges(ARRIVING, frontier)
        fresh = {key: relation for key, relation in near.items() if key not in passed}
        relations += sorted(fresh.values(), key=_order)[: limit - len(relations)]
        passed |= fresh
        ends = {end for source, _, destination in fresh for end in (source, destination)}
        frontier = ends - reached
        reached |= frontier
    return relations


def _edge(row: Sequence[Any]) -> tuple[tuple[Place, str, Place], Relation]:
    """What a row of `_VISIBLE` says, under the key of the relation."""
    agent, user, source_key, source, source_type, relationship, *rest = row
    destination_key, destination, destination_type, note_ids, begun, ended, endless = rest
    named = (source, relationship, destination, source_type, destination_type)
    until = None if endless else ended
    relation = Relation(agent, user, *named, tuple(sorted(note_ids)), begun, until)
    return ((agent, user, source_key), relationship, (agent, user, destination_key)), relation


def _order(it: Relation) -> tuple[Any, ...]:
    return (-it.valid_from, it.source, it.relationship, it.destination, it.agent_id, it.user_id)
