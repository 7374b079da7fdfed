"""The mirror in Neo4j, tested at the driver's border: no server runs here.

Behind the border stands what each statement means, on dicts; its words are checked for what they
must not hold. Seen through the mirror, the graph keeps every promise of a store's own.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from neo4j.exceptions import AuthError, ServiceUnavailable

from kemem.add.embed import run_mirror
from kemem.backends import neo4j
from kemem.backends.neo4j import Neo4jGraph, Place
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import Deps, GraphMirror, Store, read_notes
from kemem.ports.request import SearchRequest, SearchResponse
from kemem.records import NOTES, Note, Relation, Scope, Where
from kemem.records.batch import Applied, Batch, Job
from kemem.records.filters import Filter
from kemem.testing import FakeClock
from kemem_conformance import note_world
from kemem_conformance.graphing import GraphingRules, said_by
from kemem_conformance.note_world import ENTITIES, NOTE_SCOPES
from kemem_conformance.ram import RamStore
from kemem_conformance.suite import EVERYTHING, ME, MY_NOTES, around, law
from kemem_conformance.world import AGENTS, NOW
from tests.cases import each

HOSTILE = (
    "} DETACH DELETE n //",
    "`Entity`) DETACH DELETE (n",
    "'; MATCH (n) DETACH DELETE n; --",
    '小明"}) SET e.user_id = "u_%" //',
    "$agent_id {0} %s \\u0000",
    "第一行\n第二行",
    "长 long " * 1_400,
)


@dataclass(frozen=True, slots=True)
class Edge:
    """A relationship of the fake server."""

    source: Place
    destination: Place
    told: dict[str, Any]


class Result:
    """What a statement returned."""

    def __init__(self, rows: list[list[Any]]) -> None:
        self.rows = rows

    async def values(self) -> list[list[Any]]:
        return self.rows


class FakeNeo4j:
    """A driver, its session and its transaction in one, with the graph behind them."""

    def __init__(self) -> None:
        self.entities: dict[Place, dict[str, str]] = {}
        self.edges: list[Edge] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.rows = 0  # that left the server
        self.databases: set[str | None] = set()
        self.fails: dict[str, Exception] = {}  # by statement
        self.hangs = False
        self.closed = False
        self._writing = False

    @asynccontextmanager
    async def session(self, *, database: str | None) -> AsyncIterator["FakeNeo4j"]:
        self.databases.add(database)
        yield self

    async def execute_read(self, work: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        return await work(self, *given)

    async def execute_write(self, work: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        before = (dict(self.entities), list(self.edges))
        self._writing = True
        try:
            return await work(self, *given)
        except BaseException:
            self.entities, self.edges = before
            raise
        finally:
            self._writing = False

    async def run(self, query: str, parameters: dict[str, Any]) -> Result:
        self.asked.append((query, parameters))
        if self.hangs:
            await asyncio.sleep(60)
        if query in self.fails:
            raise self.fails[query]
        assert self._writing or query in READING, "a write in a transaction that reads"
        assert set(re.findall(r"\$(\w+)", query)) <= parameters.keys()
        assert packable(parameters)
        rows = MEANING[query](self, parameters)
        self.rows += len(rows)
        return Result(rows)

    async def close(self) -> None:
        self.closed = True
        if "close" in self.fails:
            raise self.fails["close"]


def packable(value: object) -> bool:
    """Whether the wire protocol has a form for a value."""
    match value:
        case None | bool() | str():
            return True
        case int():
            return -(2**63) <= value < 2**63
        case list() | tuple():
            return all(map(packable, value))
        case dict():
            return all(isinstance(key, str) and packable(it) for key, it in value.items())
    return False


def prepared(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    """A constraint or an index: nothing to see."""
    return []


def owners(server: FakeNeo4j, places: Iterable[Place]) -> list[list[Any]]:
    """The distinct owners of some entities."""
    return [list(owner) for owner in {place[:2] for place in places}]


def owners_of_agent(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    return owners(server, (at for at in server.entities if at[0] == given["agent_id"]))


def owners_of_user(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    return owners(server, (at for at in server.entities if at[1] == given["user_id"]))


def owners_of_session(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    session_id = given["session_id"]
    return owners(server, (it.source for it in server.edges if it.told["session_id"] == session_id))


def delete(server: FakeNeo4j, gone: list[Edge]) -> list[list[Any]]:
    """Delete edges; return their ends."""
    server.edges = [edge for edge in server.edges if edge not in gone]
    return [[*it.source, it.destination[2]] for it in gone]


def unlink_notes(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    ids = (given["agent_id"], given["user_id"], given["session_id"])

    def meant(edge: Edge) -> bool:
        own = (*edge.source[:2], edge.told["session_id"])
        return all(asked in (None, has) for asked, has in zip(ids, own, strict=True))

    gone = [it for it in server.edges if it.told["note_id"] in given["note_ids"] and meant(it)]
    return delete(server, gone)


def unlink_all(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    whose, session_id = set(given["owners"]), given["session_id"]
    gone = [
        edge
        for edge in server.edges
        if edge.source[:2] in whose and session_id in (None, edge.told["session_id"])
    ]
    return delete(server, gone)


def prune(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    held = {end for edge in server.edges for end in (edge.source, edge.destination)}
    for place in set(given["places"]) - held:
        server.entities.pop(place, None)
    return []


def meet(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    for met in given["entities"]:
        place = (given["agent_id"], given["user_id"], met["name_key"])
        server.entities[place] = {"name": met["name"], "type": met["type"]}
    return []


def link(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    names = ("note_id", "kind", "session_id", "valid_from", "valid_until", "expires", "sensitive")
    told = {name: given[name] for name in names}
    for source, relationship, destination in given["edges"]:
        owner = (given["agent_id"], given["user_id"])
        ends = ((*owner, source), (*owner, destination))
        if all(end in server.entities for end in ends):
            server.edges.append(Edge(*ends, {**told, "relationship": relationship}))
    return []


def visible(edge: Edge, given: dict[str, Any]) -> bool:
    """The conditions that the reading statements share."""
    told, at, by = edge.told, given["valid_at"], given["known_by"]
    ends = (told["valid_until"], told["expires"])
    return (
        told["kind"] in given["kinds"]
        and (given["ids"] is None or told["note_id"] in given["ids"])
        and (
            given["session_id"] in (None, told["session_id"])
            or edge.source[:2] == (given["shared"], "")
        )
        and (at is None or all(end is None or end > at for end in ends))
        and (by is None or told["valid_from"] <= by)
        and (given["sensitive"] or not told["sensitive"])
    )


def answer(server: FakeNeo4j, edges: list[Edge], given: dict[str, Any]) -> list[list[Any]]:
    """Edges grouped by relation, ordered and cut."""
    groups: dict[tuple[Place, str, Place], list[dict[str, Any]]] = {}
    for edge in edges:
        if visible(edge, given):
            key = (edge.source, edge.told["relationship"], edge.destination)
            groups.setdefault(key, []).append(edge.told)
    rows = []
    for (source, relationship, destination), notes in groups.items():
        one, other = server.entities[source], server.entities[destination]
        ends = [it["valid_until"] for it in notes if it["valid_until"] is not None]
        spans = (min(it["valid_from"] for it in notes), max(ends, default=None))
        named = (source[2], one["name"], one["type"], relationship)
        called = (destination[2], other["name"], other["type"], [it["note_id"] for it in notes])
        rows.append([*source[:2], *named, *called, *spans, len(notes) - len(ends)])
    rows.sort(key=lambda row: (-row[10], row[3], row[5], row[7], row[0], row[1]))
    return rows[: given["limit"]]


def newest(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    whose = set(given["places"])
    return answer(server, [it for it in server.edges if it.source[:2] in whose], given)


def leaving(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    places = set(given["places"])
    return answer(server, [it for it in server.edges if it.source in places], given)


def arriving(server: FakeNeo4j, given: dict[str, Any]) -> list[list[Any]]:
    places = set(given["places"])
    return answer(server, [it for it in server.edges if it.destination in places], given)


READING = {
    neo4j.cypher()["owners_of_agent"]: owners_of_agent,
    neo4j.cypher()["owners_of_user"]: owners_of_user,
    neo4j.cypher()["owners_of_session"]: owners_of_session,
    neo4j.cypher()["newest"]: newest,
    neo4j.cypher()["leaving"]: leaving,
    neo4j.cypher()["arriving"]: arriving,
}
MEANING = READING | {
    **dict.fromkeys(neo4j.cypher()["schema"], prepared),
    neo4j.cypher()["unlink_notes"]: unlink_notes,
    neo4j.cypher()["unlink_all"]: unlink_all,
    neo4j.cypher()["prune"]: prune,
    neo4j.cypher()["meet"]: meet,
    neo4j.cypher()["link"]: link,
}


class Mirrored(RamStore):
    """A store whose graph is seen through its mirror in Neo4j."""

    def __init__(self) -> None:
        super().__init__()
        self.truth = RamStore()
        self.server = FakeNeo4j()
        self.graph = graph_on(self.server)

    async def apply(self, batch: Batch) -> Applied:
        before = await self._noted()
        applied = await super().apply(batch)
        await self.truth.apply(batch)
        after = await self._noted()
        touched = {note.note_id for note in batch.notes} | {*applied.merged.values()}
        deps = Deps(self.truth, None, FakeClock(NOW), graph=self.graph)
        for owner in before.keys() | after.keys():
            own, gone = after.get(owner, set()), before.get(owner, set())
            ids = tuple(sorted((own & touched) | (gone - own)))
            if ids:
                await run_mirror(Job("mirror", "mirror", Scope(*owner), NOW, ids), deps)
        return applied

    async def search(self, request: SearchRequest) -> SearchResponse:
        near = request.around
        if near is None or near.relationships:  # as in Deps: the mirror is not asked for types
            return await super().search(request)
        response = await super().search(replace(request, around=None))
        found = await self.graph.around(near.where, near.names, hops=near.hops, limit=near.limit)
        return replace(response, candidates=replace(response.candidates, relations=tuple(found)))

    async def _noted(self) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for agent_id in AGENTS:
            where = Where(Scope(agent_id), kinds=NOTES)
            for note in await read_notes(self, where, limit=EVERYTHING):
                found.setdefault((note.agent_id, note.user_id), set()).add(note.note_id)
        return found


def graph_on(server: FakeNeo4j, database: str | None = None) -> Neo4jGraph:
    return Neo4jGraph(cast(Any, server), database)


def related(note: Note, source: str, destination: str, relationship: str = "在 in") -> Relation:
    """What a note says about two things."""
    named = (source, relationship, destination, "thing", "thing", (note.note_id,))
    return Relation(note.agent_id, note.user_id, *named, note.valid_from, note.valid_until)


async def put(graph: GraphMirror, note: Note, *pairs: tuple[str, str]) -> None:
    await graph.put(note, [related(note, *pair) for pair in pairs])


questions = st.tuples(
    note_world.row_wheres(),
    st.lists(st.sampled_from((*ENTITIES, "ann", "没有")), max_size=2),
    st.integers(1, 5),
    st.integers(1, 6),
)


class TestNeo4jGraph(GraphingRules):
    """The rules of the graph hold through the mirror, and so does the reference."""

    async def open_store(self) -> Store:
        return Mirrored()

    @law(
        batches=st.lists(note_world.note_batches(), min_size=1, max_size=3),
        asked=st.lists(questions, min_size=4, max_size=8),
    )
    async def test_the_mirror_answers_as_the_store_that_feeds_it(
        self,
        store: Mirrored,
        *,
        batches: list[Batch],
        asked: list[tuple[Where, list[str], int, int]],
    ) -> None:
        """After changes, merges and deletions, for every scope, time and distance."""
        for batch in batches:
            await store.apply(replace(batch, put=(), vectors=(), jobs=(), only_if=()))
        held = {end for edge in store.server.edges for end in (edge.source, edge.destination)}
        assert store.server.entities.keys() == held
        for where, names, hops, limit in asked:
            bare = replace(where, since=None, until=None, marks=None, sources=None)
            bare = replace(bare, filters=None)
            found = await around(store, bare, names, hops=hops, limit=limit)
            assert found == await around(store.truth, bare, names, hops=hops, limit=limit)

    @law(
        batch=note_world.note_batches(),
        scope=st.sampled_from(NOTE_SCOPES),
        again=st.booleans(),
    )
    async def test_a_scope_is_removed_whole_and_alone(
        self, store: Mirrored, *, batch: Batch, scope: Scope, again: bool
    ) -> None:
        """Whatever ids it gives; what is carried over once more is there as before."""
        await store.apply(replace(batch, put=(), vectors=(), jobs=(), only_if=()))
        before = {id(edge): edge for edge in store.server.edges}
        inside = Where(scope, kinds=NOTES)
        ids = {
            (note.agent_id, note.user_id, note.note_id)
            for note in await read_notes(store, inside, limit=EVERYTHING)
        }
        await store.graph.remove(scope)
        left = [it for it in before.values() if (*it.source[:2], it.told["note_id"]) not in ids]
        assert store.server.edges == left
        if again:
            deps = Deps(store.truth, None, FakeClock(NOW), graph=store.graph)
            await run_mirror(Job("mirror", "mirror", scope, NOW), deps)
            found = await around(store, inside, (), limit=1_000)
            assert found == await around(store.truth, inside, (), limit=1_000)


@each("hostile", HOSTILE)
async def test_hostile_names_are_only_ever_parameters(hostile: str) -> None:
    """As entity, relationship, id and question (K01): statements are constants, data is data."""
    server = FakeNeo4j()
    graph = graph_on(server)
    note = said_by(hostile, session_id=hostile)
    await graph.put(note, [related(note, hostile, "北京 Beijing", hostile)])
    (found,) = await graph.around(MY_NOTES, (hostile,), hops=2)
    assert (found.source, found.relationship, found.note_ids) == (hostile, hostile, (hostile,))
    await graph.remove(Scope(session_id=hostile))
    await graph.remove(ME, [hostile])
    assert server.edges == [] and server.entities == {}
    assert {query for query, _ in server.asked} <= MEANING.keys()
    assert not any(hostile in query for query, _ in server.asked)


@each("statement", MEANING)
def test_a_statement_is_bounded_and_keeps_to_its_names(statement: str) -> None:
    """One label, one type, no path of any length, and a limit wherever relations are read."""
    assert set(re.findall(r"[(\[]\w*:(\w+)", statement)) <= {"Entity", "RELATION"}
    assert not re.search(r"\[[^\]]*\*|\+\)|shortestPath|apoc|CALL|\$\(", statement)
    if statement in (
        neo4j.cypher()["newest"],
        neo4j.cypher()["leaving"],
        neo4j.cypher()["arriving"],
    ):
        assert "LIMIT $limit" in statement
    if "MATCH" in statement and statement != neo4j.cypher()["owners_of_session"]:
        assert "agent_id:" in statement or re.search(r"_id = \$(agent|user)_id", statement)


async def test_another_user_is_never_asked_for() -> None:
    """The same name in two users is two nodes without a shared edge (K03)."""
    server = FakeNeo4j()
    graph = graph_on(server)
    await put(graph, said_by("n"), ("小明", "Berlin"))
    await put(graph, said_by("秘", user_id="秘密 secret"), ("小明", "Paris"))
    await put(graph, said_by("他", agent_id="他人 other"), ("小明", "Rome"))
    assert len(server.entities) == 6
    server.asked.clear()
    for names in ((), ("小明",), ("小明", "berlin", "Paris")):
        (found,) = await graph.around(MY_NOTES, names, hops=5)
        assert (found.user_id, found.destination) == ("u_", "Berlin")
    await graph.remove(ME)
    assert not any(word in str(server.asked) for word in ("秘密", "他人"))
    assert sorted(edge.told["note_id"] for edge in server.edges) == ["他", "秘"]


async def test_a_hub_and_a_circle_are_walked_within_bounds() -> None:
    """A thousand spokes, a loop and a ring (K02): two queries a hop, no more rows than asked."""
    server = FakeNeo4j()
    graph = graph_on(server)
    spokes = [("中心 hub", f"辐 {number}") for number in range(1_000)]
    ring = [(f"辐 {number}", f"辐 {number + 1}") for number in range(20)]
    await put(graph, said_by("n"), *spokes, *ring, ("中心 hub", "中心 hub"), ("辐 20", "辐 0"))
    server.asked.clear()
    assert len(await graph.around(MY_NOTES, ("辐 3",), hops=5, limit=10)) == 10
    assert len(server.asked) <= 2 * 5
    assert server.rows <= len(server.asked) * 10
    left = [
        at
        for query, given in server.asked
        if query == neo4j.cypher()["leaving"]
        for at in given["places"]
    ]
    assert len(left) == len(set(left))
    for hops in (0, 6, 10**6, True):
        with pytest.raises(InvalidArgument, match="hops"):
            await graph.around(MY_NOTES, ("辐 3",), hops=hops)


@each(
    "condition",
    [
        {"filters": Filter("eq", "tag", "工作")},
        {"since": NOW},
        {"until": NOW},
        {"marks": frozenset({"饮食", "food"})},
    ],
)
async def test_what_an_edge_does_not_carry_is_refused(condition: dict[str, Any]) -> None:
    """Rather than left out in silence; a role is none of a note's, so nothing has it."""
    server = FakeNeo4j()
    with pytest.raises(InvalidArgument, match=next(iter(condition))):
        await graph_on(server).around(replace(MY_NOTES, **condition), ("小明",))
    for nothing in (replace(MY_NOTES, role="user"), Where(ME)):
        assert await graph_on(server).around(nothing, ("Ann",)) == []
    assert server.asked == []


@pytest.mark.parametrize(("name", "other"), [("小明", "北京"), ("Ann", "Berlin")])
async def test_a_note_is_put_wholly_or_not_at_all(name: str, other: str) -> None:
    """A failure in the middle leaves what was there; the next try replaces it."""
    server = FakeNeo4j()
    graph = graph_on(server)
    await put(graph, said_by("n"), (name, other))
    server.fails = {neo4j.cypher()["link"]: ServiceUnavailable("gone")}
    with pytest.raises(Unavailable):
        await put(graph, said_by("n"), (name, "上海"))
    assert [it.destination for it in await graph.around(MY_NOTES, (name,))] == [other]
    server.fails = {}
    await put(
        graph, said_by("n", valid_until=NOW + 9), (name, "上海"), (f" {name.upper()}", "上海")
    )
    (found,) = await graph.around(MY_NOTES, (name,))
    assert (found.source, found.destination, found.valid_until) == (name, "上海", NOW + 9)
    assert len(server.entities) == 2
    await put(graph, said_by("n", session_id="会话"), (name, "Rome"))
    assert [edge.told["session_id"] for edge in server.edges] == ["会话"]
    await put(graph, said_by("n"))
    assert server.entities == {}


@pytest.mark.parametrize(("name", "form"), [("北京 大学", "北京　大学"), ("Ann", "ＡＮＮ")])
async def test_one_put_names_an_entity_as_it_first_comes(name: str, form: str) -> None:
    """By the first spelling and the first type that says something."""
    graph = graph_on(FakeNeo4j())
    note = said_by("n")
    types = [("thing", "thing"), ("school", "thing"), ("person", "thing")]
    told = [related(note, each, "茶 tea") for each in (name, form, name)]
    told = [
        replace(one, source_type=source, destination_type=destination)
        for one, (source, destination) in zip(told, types, strict=True)
    ]
    await graph.put(note, told)
    (found,) = await graph.around(MY_NOTES, (form,))
    assert (found.source, found.source_type, found.destination_type) == (name, "school", "thing")


async def test_the_first_write_prepares_the_database_once() -> None:
    """In the database that was named, before anything is merged; reading prepares nothing."""
    server = FakeNeo4j()
    graph = graph_on(server, "记忆memory")
    await graph.around(MY_NOTES, ("Ann",))
    await graph.remove(ME, [])
    assert not {query for query, _ in server.asked} & set(neo4j.cypher()["schema"])
    server.asked.clear()
    await put(graph, said_by("n"), ("小明", "Ann"))
    await put(graph, said_by("m"), ("小明", "Ann"))
    queries = [query for query, _ in server.asked]
    assert queries[: len(neo4j.cypher()["schema"])] == neo4j.cypher()["schema"]
    assert len([query for query in queries if query in neo4j.cypher()["schema"]]) == len(
        neo4j.cypher()["schema"]
    )
    assert server.databases == {"记忆memory"}


@pytest.mark.parametrize(
    "error",
    [
        ServiceUnavailable("neo4j://neo4j:秘密secret@host refused"),
        AuthError("the password 秘密secret is wrong"),
        OSError("秘密secret"),
    ],
)
async def test_whatever_the_driver_raises_is_unavailable(error: Exception) -> None:
    """With the kind of the error and nothing that it says: it may quote data or a password."""
    server = FakeNeo4j()
    server.fails = {**dict.fromkeys(MEANING, error), "close": error}
    graph = graph_on(server)
    for call in (
        graph.prepare(),
        put(graph, said_by("n"), ("小明", "Ann")),
        graph.remove(ME),
        graph.remove(ME, ["n"]),
        graph.around(MY_NOTES, ("小明",)),
        graph.close(),
    ):
        with pytest.raises(Unavailable) as caught:
            await call
        assert type(error).__name__ in caught.value.message or "Neo." in caught.value.message
        assert "秘密" not in caught.value.message and "MATCH" not in caught.value.message
        assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert server.closed


async def test_a_server_that_hangs_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, so that a search goes on without the graph."""
    monkeypatch.setattr(neo4j, "READ_SECONDS", 0.01)
    server = FakeNeo4j()
    server.hangs = True
    with pytest.raises(Unavailable, match="TimeoutError"):
        await graph_on(server).around(MY_NOTES, ("小明", "Ann"))


async def test_connecting_opens_nothing_and_refuses_other_addresses() -> None:
    """The message does not repeat the address, which may hold a password."""
    graph = Neo4jGraph.connect("neo4j://127.0.0.1:7687", "neo4j", "密码 password")
    await graph.close()
    for url in ("", "localhost", "http://u:秘密@host", "mysql://u:secret@host", "neo4jx://secret"):
        with pytest.raises(InvalidArgument, match="neo4j://host") as caught:
            Neo4jGraph.connect(url, "neo4j", "密码 password")
        assert "秘密" not in caught.value.message and "secret" not in caught.value.message


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets an address without the package hears what to install."""
    monkeypatch.setitem(sys.modules, "neo4j", None)
    with pytest.raises(InvalidArgument, match="install KeMem with the extra 'neo4j'"):
        Neo4jGraph.connect("neo4j://127.0.0.1:7687", "neo4j", "密码 password")
