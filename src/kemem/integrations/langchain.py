"""LangChain: chat history, retriever and tools over one user's memory."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import PrivateAttr

from kemem.chat.items import ItemLog
from kemem.compat.tools import DEFAULT_TOOLS, ToolContext, call_tool, described_tools
from kemem.memory import AsyncMemory
from kemem.recall.schemas import Language
from kemem.records.times import to_rfc3339
from kemem.results import is_over
from kemem.sync import Memory, UserCalls
from kemem.text.shapes import role_of

_REST = "langchain"  # what a message is beside its role and its text


class KeMemChatMessageHistory(BaseChatMessageHistory):
    """The messages of one conversation, as they were added; what they say becomes memories.

        history = KeMemChatMessageHistory(Memory(), "s_1", user_id="u_1")
        history.add_user_message("我不吃辣")

    Messages that came another way, by `add` or a chat of KeMem, are among them. A `Memory` serves
    blocking and async chains, an `AsyncMemory` async ones.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        session_id: str,
        *,
        user_id: str,
        agent_id: str | None = None,
    ) -> None:
        self._calls = UserCalls(memory, user_id, agent_id, session_id)
        self._log = ItemLog(self._calls.memory)

    @property
    def messages(self) -> list[BaseMessage]:
        """All messages, oldest first."""
        return _to_messages(self._calls.block(self._log.newest()))

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, oldest first."""
        return _to_messages(await self._calls.wait(self._log.newest()))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, durable on return; a job draws facts from them."""
        self._calls.block(self._log.add([_to_item(message) for message in messages]))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, durable on return; a job draws facts from them."""
        await self._calls.wait(self._log.add([_to_item(message) for message in messages]))

    def clear(self) -> None:
        """Erase the conversation, what was remembered of it included."""
        self._calls.block(self._log.clear())

    async def aclear(self) -> None:
        """Erase the conversation, what was remembered of it included."""
        await self._calls.wait(self._log.clear())


class KeMemRetriever(BaseRetriever):
    """Memories of one user that answer a question, as documents, best first.

        retriever = KeMemRetriever(Memory(), user_id="u_1", k=5)
        retriever.invoke("火锅")

    What is no longer true is left out, unless the question asks for the past.
    """

    k: int = 5
    threshold: float | None = None
    kinds: tuple[str, ...] | None = None
    filters: dict[str, Any] | None = None
    _calls: UserCalls = PrivateAttr()

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        user_id: str,
        agent_id: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._calls = UserCalls(memory, user_id, agent_id)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self._calls.block(self._documents(query))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return await self._calls.wait(self._documents(query))

    async def _documents(self, query: str) -> list[Document]:
        hits = await self._calls.memory.search(
            query,
            limit=self.k,
            threshold=self.threshold,
            kinds=self.kinds,
            filters=self.filters,
        )
        documents = []
        for hit in (it for it in hits if hits.past or not is_over(it)):
            own = {"kind": hit.kind, "score": hit.score, "event_time": to_rfc3339(hit.row.ts)}
            own |= {"sources": list(hit.sources), **hit.marks}
            metadata = {**hit.metadata, **own}
            documents.append(Document(page_content=hit.text, id=hit.id, metadata=metadata))
        return documents


def memory_tools(
    memory: Memory | AsyncMemory,
    *,
    user_id: str,
    agent_id: str | None = None,
    session_id: str | None = None,
    names: Collection[str] = DEFAULT_TOOLS,
    language: Language = "en",
) -> list[BaseTool]:
    """Tools by which a model keeps, finds and forgets memories of one user; for LangGraph, too.

    `names` are tools of the MCP server, `language` is that of their descriptions. New memories
    belong to the conversation `session_id`.
    """
    calls = UserCalls(memory, user_id, agent_id)
    context = ToolContext(calls.memory, session_id)

    def made(name: str, description: str, schema: Mapping[str, Any]) -> BaseTool:
        def run(**arguments: Any) -> str:
            return calls.block(call_tool(name, arguments, context, language))

        async def arun(**arguments: Any) -> str:
            return await calls.wait(call_tool(name, arguments, context, language))

        return StructuredTool(
            name=name,
            description=description,
            args_schema=dict(schema),
            func=run,
            coroutine=arun,
        )

    return [
        made(tool.name, tool.description, tool.parameters)
        for tool in described_tools(names, language)
    ]


def _to_item(message: BaseMessage) -> dict[str, Any]:
    stored = message_to_dict(message)
    data = dict(stored["data"])
    content, role = data.pop("content"), getattr(message, "role", message.type)
    return {"role": role_of(role), "content": content, _REST: {**stored, "data": data}}


def _to_messages(items: Sequence[Mapping[str, Any]]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for item in items:
        match item:
            case {"content": content, "langchain": {"type": kind, "data": dict(data)}}:
                stored = {"type": kind, "data": {**data, "content": content}}
                messages += messages_from_dict([stored])
            case {"role": str(role), "content": str(content)}:
                messages += convert_to_messages([(role, content)])
    return messages
