"""Neo4j 5: the graph carried over into a graph database beside the store.

Every statement is one of the constants below; data is only ever a parameter.
"""

import asyncio
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
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

_OWN = "{agent_id: at[0], user_id: at[1]}"
_NAMED = "{agent_id: at[0], user_id: at[1], name_key: at[2]}"
_READS = {"newest": (_OWN, _OWN), "leaving": (_NAMED, _OWN), "arriving": (_OWN, _NAMED)}


@cache
def cypher() -> Mapping[str, Any]:
    """The Cypher of neo4j.toml, and the reads that are put together from it."""
    texts = tomllib.loads(Path(__file__).with_name("neo4j.toml").read_text("utf-8"))
    reads = {name: texts["edges"] % ends + texts["visible"] for name, ends in _READS.items()}
    return {**texts, **reads}


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
        for statement in cypher()["schema"]:
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
            await self._write(_unlink, cypher()["unlink_notes"], parameters)

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
    await _unlink(transaction, cypher()["unlink_notes"], {**owner, "note_ids": [note.note_id]})
    await _run(transaction, cypher()["meet"], {**owner, "entities": _entities(relations)})
    names = ("note_id", "kind", "session_id", "valid_from", "valid_until", "expires", "sensitive")
    edges = {(name_key(it.source), it.relationship, name_key(it.destination)) for it in relations}
    properties = {name: getattr(note, name) for name in names}
    await _run(transaction, cypher()["link"], {**owner, **properties, "edges": sorted(edges)})


async def _remove_all(transaction: "Transaction", scope: Scope) -> None:
    owners = await _owners(transaction, scope, None)
    await _unlink(
        transaction, cypher()["unlink_all"], {"session_id": scope.session_id, "owners": owners}
    )


async def _unlink(transaction: "Transaction", statement: str, values: Mapping[str, Any]) -> None:
    """Delete edges, then the entities that nothing else speaks of."""
    rows = await _run(transaction, statement, values)
    loose = {(agent_id, user_id, key) for agent_id, user_id, *keys in rows for key in keys}
    await _run(transaction, cypher()["prune"], {"places": sorted(loose)})


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
        of_user = (
            cypher()["owners_of_session"] if scope.user_id is None else cypher()["owners_of_user"]
        )
        statement = of_user if scope.agent_id is None else cypher()["owners_of_agent"]
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
        return sorted((await edges(cypher()["newest"], owners)).values(), key=_order)
    frontier: set[Place] = {(*owner, name_key(name)) for owner in owners for name in names}
    reached = set(frontier)
    passed: Edges = {}  # no more than the relations: what comes again leaves room for the rest
    relations: list[Relation] = []
    for _ in range(hops):
        if not frontier or len(relations) >= limit:
            break
        near = await edges(cypher()["leaving"], frontier) | await edges(
            cypher()["arriving"], frontier
        )
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
