"""An agent of pydantic-ai keeps and finds what one user told it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from kemem import AsyncMemory
from kemem.errors import NotFound
from kemem.integrations.pydantic_ai import memory_toolset
from kemem.settings import load

TALKS = pytest.mark.parametrize(
    ("language", "said", "asked"),
    [
        ("zh", "用户不吃辣", "火锅要辣的吗？"),
        ("en", "The user can't eat spicy food", "Spicy hotpot?"),
    ],
)


def opened(place: Path) -> AsyncMemory:
    return AsyncMemory(settings=load(data_dir=place, embedder="none", llm="none"))


def scripted(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """A model that makes these calls, one after the other, and then ends."""
    left = list(calls)

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        assert {it.name for it in info.function_tools} >= {name for name, _ in left}
        return ModelResponse([ToolCallPart(*left.pop(0)) if left else TextPart("done")])

    return FunctionModel(answer)


def returned(result: Any) -> list[str]:
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


@TALKS
async def test_an_agent_keeps_and_finds(
    tmp_path: Path, language: Any, said: str, asked: str
) -> None:
    """The user is bound for each run; one that the model names is ignored."""
    async with opened(tmp_path) as memory:
        tools = memory_toolset(memory, user_id="u", session_id="s", language=language)
        adding = ("add_memory", {"content": said, "user_id": "other"})
        searching = ("search_memories", {"query": asked, "min_relevance_score": 0})
        agent = Agent(scripted(adding, searching), toolsets=[tools])
        kept, found = returned(await agent.run(asked))
        assert said in kept and said in found
        (note,) = await memory.get_all("u")
        assert note.memory == said and (await memory.get_all("other")).items == ()

        others = memory_toolset(memory, user_id="other", language=language)
        (nothing,) = returned(await Agent(scripted(searching), toolsets=[others]).run(asked))
        assert said not in nothing
        taking = Agent(scripted(("forget_memory", {"memory_key": note.id})))
        (refused,) = returned(await taking.run(asked, toolsets=[others]))
        assert refused.startswith("NOT_FOUND")


@TALKS
async def test_the_history_of_a_run_can_be_added(
    tmp_path: Path, language: Any, said: str, asked: str
) -> None:
    """Its messages are read as they are: what was said is found, what tools said is told apart."""
    async with opened(tmp_path) as memory:
        tools = memory_toolset(memory, user_id="u", names=["search_memories"])
        agent = Agent(scripted(("search_memories", {"query": asked})), toolsets=[tools])
        result = await agent.run(said)
        await memory.add(result.all_messages(), "u", session_id="s")
        kinds = [it.content_type for it in reversed((await memory.messages("u")).items)]
        assert kinds == ["text", "tool_call", "tool_result", "text"]


async def test_a_handle_gives_tools_of_its_own_user_only(tmp_path: Path) -> None:
    """What it is bound to holds."""
    async with opened(tmp_path) as memory:
        with pytest.raises(NotFound):
            memory_toolset(memory.for_user("u"), user_id="other")
