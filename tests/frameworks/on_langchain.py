"""LangChain's history, retriever and tools work on one user's memory, in chains and graphs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from kemem import AsyncMemory, Memory
from kemem.errors import Conflict, InvalidArgument, NotFound
from kemem.integrations.langchain import (
    KeMemChatMessageHistory,
    KeMemRetriever,
    memory_tools,
)
from kemem.settings import load

SAID = {"zh": "我不吃辣", "en": "I can't eat spicy food"}
NOTED = {"zh": "不吃辣", "en": "spicy"}
ASKED = {"zh": "火锅要辣的吗？", "en": "Is a spicy hotpot fine?"}
EACH = pytest.mark.parametrize("language", ["zh", "en"])
CALL = {"name": "weather", "args": {"city": "成都"}, "id": "call_1", "type": "tool_call"}
TALK: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("成都天气？", id="m1", name="ann"),
    AIMessage(
        "",
        tool_calls=[CALL],
        usage_metadata=dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 1),
    ),
    ToolMessage("晴 25°C", tool_call_id="call_1", artifact={"raw": [1]}),
    AIMessage([{"type": "text", "text": "晴。"}, {"type": "text", "text": "25°C."}]),
    ChatMessage("noted", role="assistant", additional_kwargs={"x": {"y": 1}}),
    HumanMessage([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]),
]


def opened(place: Path) -> Memory:
    return Memory(settings=load(data_dir=place, embedder="none", llm="none"))


def history_of(memory: Any, session: str = "s", user_id: str = "u") -> KeMemChatMessageHistory:
    return KeMemChatMessageHistory(memory, session, user_id=user_id)


async def test_messages_come_back_as_they_were_in_both_ways(tmp_path: Path) -> None:
    """Calls, results, parts, names and ids; in another process, too."""
    with opened(tmp_path) as memory:
        history_of(memory).add_messages(TALK[:4])
        await history_of(memory).aadd_messages(TALK[4:])
    with opened(tmp_path) as memory:
        assert history_of(memory).messages == TALK
        assert await history_of(memory).aget_messages() == TALK
        history_of(memory).clear()
        assert await history_of(memory).aget_messages() == []
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none", llm="none")) as other:
        await history_of(other).aadd_messages([HumanMessage("hi")])
        assert await history_of(other).aget_messages() == [HumanMessage("hi")]
        with pytest.raises(Conflict):
            history_of(other).add_user_message("blocks")
        await history_of(other).aclear()


@EACH
def test_a_chain_remembers_and_what_was_said_becomes_memories(
    tmp_path: Path, language: str
) -> None:
    """The second turn is sent the first one; messages of KeMem's own are in the history."""
    with opened(tmp_path) as memory:
        memory.add([{"role": "system", "content": "Be kind."}], "u", session_id="s", infer=False)
        model = GenericFakeChatModel(messages=iter([AIMessage("OK"), AIMessage("不辣")]))
        for question in (SAID[language], ASKED[language]):
            history = history_of(memory)
            history.add_user_message(question)
            sent = history.messages
            history.add_message(model.invoke(sent))
        texts = [it.content for it in sent]
        assert texts == ["Be kind.", SAID[language], "OK", ASKED[language]]
        memory.run_jobs()
        assert any(NOTED[language] in it.memory for it in memory.get_all("u", kinds=["user_info"]))


def test_a_history_is_of_one_user_and_takes_only_json(tmp_path: Path) -> None:
    """The same session of another user is another session; a batch is stored whole or not."""
    with opened(tmp_path) as memory:
        history_of(memory).add_user_message("mine")
        assert history_of(memory, user_id="other").messages == []
        history_of(memory, user_id="other").clear()
        bad = HumanMessage("x", additional_kwargs={"at": datetime.now(UTC)})
        with pytest.raises(InvalidArgument):
            history_of(memory).add_messages([HumanMessage("y"), bad])
        assert [it.content for it in history_of(memory).messages] == ["mine"]
        with pytest.raises(NotFound):
            history_of(memory.for_user("u"), user_id="other")


@EACH
async def test_a_retriever_finds_what_is_true_now(tmp_path: Path, language: str) -> None:
    """Documents say where they come from; nothing of other users, nothing that has ended."""
    with opened(tmp_path) as memory:
        memory.add(SAID[language], "u", metadata={"channel": "app"})
        memory.add(SAID[language], "other")
        retriever = KeMemRetriever(memory, user_id="u", k=1, kinds=("user_info",))
        (document,) = retriever.invoke(ASKED[language])
        assert [document] == await retriever.ainvoke(ASKED[language])
        found = memory.get(str(document.id), user_id="u")
        assert document.page_content == found.memory and NOTED[language] in found.memory
        assert document.metadata["channel"] == "app" and document.metadata["score"] > 0
        assert KeMemRetriever(memory, user_id="nobody").invoke(ASKED[language]) == []


@EACH
def test_a_graph_without_a_checkpointer_keeps_and_finds(tmp_path: Path, language: str) -> None:
    """A scripted model calls the tools; a user that it names is ignored."""
    with opened(tmp_path) as memory:
        tools = memory_tools(memory, user_id="u", session_id="s", language=language)  # type: ignore[arg-type]

        def run(*calls: dict[str, Any]) -> list[str]:
            asked = [
                AIMessage("", tool_calls=[{**it, "id": "1", "type": "tool_call"}]) for it in calls
            ]
            model = GenericFakeChatModel(messages=iter([*asked, AIMessage("done")]))
            builder = StateGraph(MessagesState)
            builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
            builder.add_node("tools", ToolNode(tools))
            builder.add_edge(START, "model")
            builder.add_conditional_edges("model", tools_condition, ["tools", END])
            builder.add_edge("tools", "model")
            out = builder.compile().invoke({"messages": [HumanMessage(ASKED[language])]})
            return [it.content for it in out["messages"] if isinstance(it, ToolMessage)]

        content = {"content": SAID[language], "user_id": "other"}
        search = {"query": ASKED[language], "user_id": "other", "min_relevance_score": 0}
        kept, found = run(
            {"name": "add_memory", "args": content}, {"name": "search_memories", "args": search}
        )
        assert SAID[language] in kept and SAID[language] in found
        assert memory.get_all("other").items == ()
        (note,) = memory.get_all("u")
        (gone,) = run({"name": "forget_memory", "args": {"memory_key": note.id}})
        assert note.id in gone and memory.get_all("u").items == ()
        (refused,) = run({"name": "forget_memory", "args": {"memory_key": "n_of_nobody"}})
        assert refused.startswith("NOT_FOUND")


async def test_tools_are_described_in_a_language_and_chosen_by_name(tmp_path: Path) -> None:
    """They take what the MCP server's take; there is no argument for a user."""
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none", llm="none")) as memory:
        (tool,) = memory_tools(memory, user_id="u", names=["recall_memories"], language="zh")
        assert "证据" in tool.description and set(tool.args) == {"question", "past"}
        assert "confidence" in await tool.ainvoke({"question": "喝什么？"})
        with pytest.raises(InvalidArgument, match="there are add_memory"):
            memory_tools(memory, user_id="u", names=["drop_tables"])
