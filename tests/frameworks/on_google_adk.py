"""An agent of Google's ADK remembers, by KeMem, what its user said in another session."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import load_memory
from google.genai.types import Content, FunctionCall, Part

from kemem import AsyncMemory
from kemem.errors import InvalidArgument, NotFound
from kemem.integrations.google_adk import KeMemMemoryService
from kemem.settings import load

TALKS = pytest.mark.parametrize(
    ("said", "asked", "noted"),
    [
        ("我不吃辣", "火锅要辣的吗？", "不吃辣"),
        ("I can't eat spicy food", "Is a spicy hotpot fine?", "spicy"),
    ],
)


class Scripted(BaseLlm):
    """A model that answers with these parts, one after the other, and keeps what it was sent."""

    model: str = "scripted"
    script: list[Part]
    sent: list[LlmRequest]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.sent.append(llm_request)
        yield LlmResponse(content=Content(role="model", parts=[self.script.pop(0)]))


def opened(place: Path) -> AsyncMemory:
    return AsyncMemory(settings=load(data_dir=place, embedder="none", llm="none"))


def text(content: str) -> Content:
    return Content(role="user", parts=[Part(text=content)])


async def turn(service: KeMemMemoryService, question: str, user_id: str, *script: Part) -> Any:
    """A session of one turn, added to memory; the session and what the model was sent."""
    model = Scripted(script=list(script), sent=[])
    agent = LlmAgent(name="guide", model=model, tools=[load_memory])
    sessions = InMemorySessionService()
    runner = Runner(app_name="trips", agent=agent, session_service=sessions, memory_service=service)
    session = await sessions.create_session(app_name="trips", user_id=user_id)
    where = {"user_id": user_id, "session_id": session.id}
    async for _ in runner.run_async(**where, new_message=text(question)):
        pass
    whole = await sessions.get_session(app_name="trips", **where)
    assert whole
    await service.add_session_to_memory(whole)
    return whole, model.sent


def loaded(request: LlmRequest) -> list[str]:
    """What ADK's tool gave the model."""
    memories = request.contents[-1].parts[0].function_response.response["result"].memories
    return [it.content.parts[0].text for it in memories]


@TALKS
async def test_an_agent_loads_what_was_said_in_another_session(
    tmp_path: Path, said: str, asked: str, noted: str
) -> None:
    """By ADK's own tool, for the user of the session; a session is added twice without harm."""
    async with opened(tmp_path) as memory:
        service = KeMemMemoryService(memory)
        session, _ = await turn(service, said, "ann", Part(text="OK"))
        await service.add_session_to_memory(session)
        assert len((await memory.messages("ann")).items) == 2
        assert any(noted in it.memory for it in await memory.get_all("ann", agent_id="trips"))
        call = Part(function_call=FunctionCall(name="load_memory", args={"query": asked}))
        _, sent = await turn(service, asked, "ann", call, Part(text="no"))
        assert any(noted in it for it in loaded(sent[-1]))
        _, sent = await turn(service, asked, "bob", call, Part(text="yes"))
        assert loaded(sent[-1]) == []
        kinds = [it.content_type for it in reversed((await memory.messages("bob")).items)]
        assert kinds == ["text", "tool_call", "tool_result", "text"]


@TALKS
async def test_memories_are_kept_found_and_deleted(
    tmp_path: Path, said: str, asked: str, noted: str
) -> None:
    """Word by word, in the scope of the application and the user."""
    ann: Any = {"app_name": "trips", "user_id": "ann"}
    async with opened(tmp_path) as memory:
        service = KeMemMemoryService(memory)
        entry = MemoryEntry(content=text(said), custom_metadata={"tag": "food"})
        await service.add_memory(**ann, memories=[entry])
        (found, *_) = (await service.search_memory(**ann, query=asked)).memories
        assert found.content.parts and found.content.parts[0].text == said
        assert (await memory.get_all("ann"))[0].metadata["tag"] == "food"
        other: Any = {"app_name": "other", "user_id": "ann"}
        assert (await service.search_memory(**other, query=asked)).memories == []
        (note,) = await memory.get_all("ann")
        with pytest.raises(NotFound):
            await service.delete_memory(app_name="trips", user_id="bob", memory_id=note.id)
        with pytest.raises(InvalidArgument):
            await service.delete_memory(**ann)
        await service.delete_memory(**ann, memory_id=note.id)
        assert (await service.search_memory(**ann, query=asked)).memories == []
        bound = KeMemMemoryService(memory.for_user("ann"))
        with pytest.raises(NotFound):
            await bound.search_memory(app_name="trips", user_id="bob", query=asked)
