"""The nine tools of the official MCP memory server do here what they do there, for one user."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from kemem.compat.tools import ToolContext
from kemem.memory import AsyncMemory
from kemem.recall.schemas import Language
from kemem.serve.mcp.official import OFFICIAL_TOOLS
from kemem.serve.mcp.server import create_mcp
from kemem.settings import Settings
from tests.command import command, environment

NAMES = [
    *("create_entities", "create_relations", "add_observations"),
    *("delete_entities", "delete_observations", "delete_relations"),
    *("read_graph", "search_nodes", "open_nodes"),
]
ANN = {"name": "安", "entityType": "人物", "observations": ["不吃辣", "likes hiking"]}
LAB = {"name": "Lab", "entityType": "company", "observations": ["makes lenses"]}
WORKS = {"from": "安", "to": "Lab", "relationType": "works_at"}
KNOWS = {"from": "Bob", "to": "Lab", "relationType": "knows"}


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    """A memory by words and rules only."""
    settings = Settings(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as opened:
        yield opened


@asynccontextmanager
async def talking(
    memory: AsyncMemory, user: str = "alice", language: Language = "en"
) -> AsyncIterator[Client]:
    context = ToolContext(memory.for_user(user, agent_id="default"))
    async with Client(create_mcp(lambda _: context, language, OFFICIAL_TOOLS)) as client:
        yield client


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    """What a tool gives that must succeed; the SDK's client has checked it by its schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def filled(client: Client) -> None:
    await call(client, "create_entities", entities=[ANN, LAB])
    await call(client, "create_relations", relations=[WORKS, KNOWS])


@pytest.mark.parametrize("language", ["zh", "en"])
async def test_the_tools_have_the_names_and_fields_that_clients_know(
    memory: AsyncMemory, language: Language
) -> None:
    async with talking(memory, language=language) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == NAMES
    fields = {tool.name: sorted(tool.input_schema["properties"]) for tool in tools}
    assert fields == {
        "create_entities": ["entities"],
        "create_relations": ["relations"],
        "add_observations": ["observations"],
        "delete_entities": ["entityNames"],
        "delete_observations": ["deletions"],
        "delete_relations": ["relations"],
        "read_graph": [],
        "search_nodes": ["query"],
        "open_nodes": ["names"],
    }
    (relation,) = {
        json.dumps(sorted(tool.input_schema["$defs"]["Relation"]["required"]))
        for tool in tools
        if "Relation" in tool.input_schema.get("$defs", {})
    }
    assert json.loads(relation) == ["from", "relationType", "to"]
    destructive = {it.name for it in tools if it.annotations and it.annotations.destructive_hint}
    assert destructive == {name for name in NAMES if name.startswith("delete_")}


async def test_entities_and_relations_are_kept_once_and_read_in_their_order(
    memory: AsyncMemory,
) -> None:
    """What is known is not among what was created, and stays as it is."""
    async with talking(memory) as client:
        other = {**ANN, "observations": ["other"]}
        created = await call(client, "create_entities", entities=[ANN, other])
        assert created == {"entities": [ANN]}
        assert await call(client, "create_entities", entities=[other, LAB]) == {"entities": [LAB]}
        related = await call(client, "create_relations", relations=[WORKS, WORKS, KNOWS])
        assert related == {"relations": [WORKS, KNOWS]}
        assert await call(client, "create_relations", relations=[WORKS]) == {"relations": []}
        graph = await call(client, "read_graph")
    assert graph["entities"] == [ANN, LAB]
    assert sorted(graph["relations"], key=str) == sorted([WORKS, KNOWS], key=str)
    edges = await memory.graph("alice", around="安")
    assert [(it.source, it.relationship, it.destination) for it in edges] == [
        ("安", "works_at", "Lab")
    ]


async def test_observations_are_added_once_and_deleted_word_by_word(memory: AsyncMemory) -> None:
    async with talking(memory) as client:
        await filled(client)
        more = [{"entityName": "安", "contents": ["不吃辣", "住在北京", "住在北京"]}]
        added = await call(client, "add_observations", observations=more)
        assert added == {"results": [{"entityName": "安", "addedObservations": ["住在北京"]}]}
        gone = [{"entityName": "安", "observations": ["不吃辣", "unknown"]}]
        gone += [{"entityName": "nobody", "observations": ["x"]}]
        assert (await call(client, "delete_observations", deletions=gone))["success"]
        (entity,) = (await call(client, "open_nodes", names=["安"]))["entities"]
        assert entity["observations"] == ["likes hiking", "住在北京"]
        unknown = [*more, {"entityName": "nobody", "contents": ["x"]}]
        refused = await client.call_tool("add_observations", {"observations": unknown})
        assert refused.is_error and "no entity 'nobody'" in str(refused.content)


async def test_with_an_entity_go_its_relations(memory: AsyncMemory) -> None:
    async with talking(memory) as client:
        await filled(client)
        assert (await call(client, "delete_relations", relations=[KNOWS]))["success"]
        assert (await call(client, "delete_entities", entityNames=["安", "nobody"]))["success"]
        assert await call(client, "read_graph") == {"entities": [LAB], "relations": []}
    assert await memory.graph("alice") == []


@pytest.mark.parametrize(("query", "name"), [("谁不吃辣？", "安"), ("who makes lenses", "Lab")])
async def test_nodes_are_searched_as_memories_are(
    memory: AsyncMemory, query: str, name: str
) -> None:
    """By words, not by a substring; KeMem's own search finds them, too."""
    async with talking(memory) as client:
        await filled(client)
        graph = await call(client, "search_nodes", query=query)
    assert graph["entities"][0]["name"] == name
    assert all(name in (it["from"], it["to"]) for it in graph["relations"][:1])
    assert name in (await memory.search(query, "alice"))[0].memory


async def test_a_graph_is_the_same_on_every_database(either_settings: Settings) -> None:
    """The longest names too; blank and longer ones are refused."""
    long = {**ANN, "name": "长" * 255, "entityType": "型" * 255}
    edge = {"from": long["name"], "to": "Lab", "relationType": "is" * 127}
    async with AsyncMemory(settings=either_settings) as memory, talking(memory) as client:
        await filled(client)
        await call(client, "create_entities", entities=[long])
        await call(client, "create_relations", relations=[edge])
        more = [{"entityName": "安", "contents": ["住在北京"]}]
        await call(client, "add_observations", observations=more)
        await call(client, "delete_entities", entityNames=["Bob", "nobody"])
        graph = await call(client, "read_graph")
        assert [it["name"] for it in graph["entities"]] == ["安", "Lab", long["name"]]
        assert graph["relations"] == [WORKS, edge]
        assert (await call(client, "search_nodes", query="住在北京"))["entities"][0]["name"] == "安"
        for name in (" ", "长" * 256):
            given = {"entities": [{**ANN, "name": name}]}
            assert (await client.call_tool("create_entities", given)).is_error


async def test_a_graph_is_of_one_user(memory: AsyncMemory) -> None:
    async with talking(memory) as client:
        await filled(client)
    async with talking(memory, "bob") as client:
        assert await call(client, "read_graph") == {"entities": [], "relations": []}
        assert await call(client, "search_nodes", query="不吃辣") == {
            "entities": [],
            "relations": [],
        }
        await call(client, "delete_entities", entityNames=["安"])
        assert await call(client, "create_entities", entities=[ANN]) == {"entities": [ANN]}
    async with talking(memory) as client:
        assert len((await call(client, "read_graph"))["relations"]) == 2


async def test_the_command_serves_them(tmp_path: Path) -> None:
    """`kemem mcp --tools official`, started by a client."""
    program, *arguments = command("mcp", "--user", "u", "--tools", "official")
    given = environment(tmp_path)
    server = StdioServerParameters(command=program, args=arguments, env=given, cwd=tmp_path)
    async with Client(stdio_client(server)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
        await filled(client)
        assert len((await call(client, "read_graph"))["entities"]) == 2
