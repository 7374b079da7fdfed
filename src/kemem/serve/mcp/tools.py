"""The tools of the MCP server, each described once. Whose memories they reach is settled outside.

Two of them are the recall agent's own; what a tool does is a function of `Whose` and its input.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kemem.errors import PermissionDenied
from kemem.memory import AsyncMemory
from kemem.recall import (
    MEMRECALL_TOOLS,
    Budget,
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    SearchMemoriesInput,
    SearchMemoriesOutput,
)
from kemem.recall.registry import ToolEntry, tool_entry
from kemem.recall.state import RecallState
from kemem.recall.texts import Language, tool_texts
from kemem.recall.tools import get_memory_detail_tool, memory_type, search_memories_tool, summary
from kemem.serve.mcp.models import (
    AddedMemory,
    AddKnowledgeInput,
    AddKnowledgeOutput,
    AddMemoryInput,
    AddMemoryOutput,
    ForgetMemoryInput,
    ForgetMemoryOutput,
    KnowledgeEntry,
    ListedMemory,
    ListMemoriesInput,
    ListMemoriesOutput,
    RecalledEvidence,
    RecallMemoriesInput,
    RecallMemoriesOutput,
    SearchKnowledgeInput,
    SearchKnowledgeOutput,
)
from kemem.text.language import is_chinese
from kemem.text.times import to_rfc3339

_PREVIEW = 500  # characters
_EVIDENCE = 1_500


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose memories a call reaches: settled by a flag or a credential, never by an argument."""

    memory: AsyncMemory  # a handle, bound to the user
    session_id: str | None = None  # the conversation that goes on
    # For callers who may change what all users of the agent share.
    shared: AsyncMemory | None = None

    @property
    def agent_id(self) -> str:
        return self.memory.reach.agent_id or "default"

    def language(self, text: str) -> Language:
        """The language to answer a text in."""
        chosen = self.memory.settings.recall_language
        if chosen == "auto":
            return "zh" if is_chinese(text) else "en"
        return chosen

    async def recall_state(self, text: str) -> RecallState:
        """The state for one tool of the recall agent, called on its own by a model."""
        return RecallState(
            memory=self.memory,
            deps=await self.memory.runtime.deps(),
            caches=self.memory.caches,
            budget=Budget(),
            question=text,
            language=self.language(text),
            driver="llm",
        )


async def search_memories(whose: Whose, given: SearchMemoriesInput) -> SearchMemoriesOutput:
    """The memories that answer a query best."""
    return await search_memories_tool(await whose.recall_state(given.query), given)


async def get_memory(whose: Whose, given: GetMemoryDetailInput) -> GetMemoryDetailOutput:
    """One memory whole, with where it comes from and what was said around it."""
    return await get_memory_detail_tool(await whose.recall_state(given.memory_key), given)


async def add_memory(whose: Whose, given: AddMemoryInput) -> AddMemoryOutput:
    """Remember something."""
    added = await whose.memory.add(given.content, session_id=whose.session_id, infer=given.infer)
    return AddMemoryOutput(
        memories=[
            AddedMemory(memory_key=each.id, content=each.memory[:_PREVIEW], event=each.event)
            for each in added.results
        ],
        message_keys=[*added.message_ids, *added.ignored],
        pending=added.pending,
        problems=list(added.problems),
    )


async def recall_memories(whose: Whose, given: RecallMemoriesInput) -> RecallMemoriesOutput:
    """The evidence that a question needs."""
    found = await whose.memory.recall(given.question, session_id=whose.session_id)
    return RecallMemoriesOutput(
        evidence=[
            RecalledEvidence(
                memory_key=each.memory_key,
                memory_type=each.memory_type,
                content=each.content[:_EVIDENCE],
                score=each.score,
                event_time=to_rfc3339(each.event_time),
            )
            for each in found.evidence
        ],
        search_summary=found.search_summary,
        confidence=found.confidence,
        completed=found.completed,
        follow_up_question=found.follow_up_question if found.needs_more_info else None,
        problems=list(found.problems),
    )


async def list_memories(whose: Whose, given: ListMemoriesInput) -> ListMemoriesOutput:
    """A page of what is remembered, newest first."""
    page = await whose.memory.get_all(limit=given.limit, cursor=given.cursor)
    return ListMemoriesOutput(
        memories=[
            ListedMemory(
                memory_key=item.id,
                memory_type=memory_type(item),
                content_preview=item.memory[:_PREVIEW],
                created_at=to_rfc3339(item.note.created),
            )
            for item in page
        ],
        next_cursor=page.next_cursor,
    )


async def forget_memory(whose: Whose, given: ForgetMemoryInput) -> ForgetMemoryOutput:
    """Erase one memory, with the messages that say just that, which a search would find again."""
    memory, key = whose.memory, given.memory_key
    item, said = await memory.get(key), await memory.sources(key)
    if item.kind == "knowledge":
        await _owner_of_knowledge(whose).delete(key, agent_id=whose.agent_id)
    else:
        await memory.delete(key)
    others = [message for message in said if message.id != key]
    for message in others:
        if message.content == item.memory:
            await memory.delete(message.id)
    kept = [message.id for message in others if message.content != item.memory]
    return ForgetMemoryOutput(forgotten=key, said_in=kept)


async def add_knowledge(whose: Whose, given: AddKnowledgeInput) -> AddKnowledgeOutput:
    """Keep something that all users of the agent share."""
    item = await _owner_of_knowledge(whose).learn(
        given.content, summary=given.summary, tags=given.tags, agent_id=whose.agent_id
    )
    return AddKnowledgeOutput(memory_key=item.id, summary=summary(item))


def _owner_of_knowledge(whose: Whose) -> AsyncMemory:
    if whose.shared is None:
        raise PermissionDenied("this token cannot change knowledge, which all users share")
    return whose.shared


async def search_knowledge(whose: Whose, given: SearchKnowledgeInput) -> SearchKnowledgeOutput:
    """The entries of shared knowledge that answer a query best."""
    found = await whose.memory.search(given.query, limit=given.limit, kinds=["knowledge"])
    return SearchKnowledgeOutput(
        results=[
            KnowledgeEntry(
                memory_key=hit.id,
                summary=summary(hit),
                content=hit.memory[:_EVIDENCE],
                score=hit.score,
            )
            for hit in found
        ]
    )


def _of_recall(name: str, origin: str, func: Callable[..., Awaitable[Any]]) -> ToolEntry:
    """A tool of the recall agent under a name, a title and hints of this server."""
    return {
        **MEMRECALL_TOOLS[origin],
        "name": name,
        "func": func,
        **tool_texts(__package__)["tools"][name],
    }


MCP_TOOLS: Mapping[str, ToolEntry] = {
    "add_memory": tool_entry(
        __package__, "add_memory", add_memory, AddMemoryInput, AddMemoryOutput
    ),
    "search_memories": _of_recall("search_memories", "search_memories", search_memories),
    "get_memory": _of_recall("get_memory", "get_memory_detail", get_memory),
    "recall_memories": tool_entry(
        __package__, "recall_memories", recall_memories, RecallMemoriesInput, RecallMemoriesOutput
    ),
    "list_memories": tool_entry(
        __package__, "list_memories", list_memories, ListMemoriesInput, ListMemoriesOutput
    ),
    "forget_memory": tool_entry(
        __package__, "forget_memory", forget_memory, ForgetMemoryInput, ForgetMemoryOutput
    ),
    "add_knowledge": tool_entry(
        __package__, "add_knowledge", add_knowledge, AddKnowledgeInput, AddKnowledgeOutput
    ),
    "search_knowledge": tool_entry(
        __package__,
        "search_knowledge",
        search_knowledge,
        SearchKnowledgeInput,
        SearchKnowledgeOutput,
    ),
}
