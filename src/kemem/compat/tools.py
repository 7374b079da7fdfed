"""The memory tools, of MCP and of frameworks; `tools.toml` describes them and their fields.

Two of them are the recall agent's own. A tool is a function of a context, which says whose
memories it reaches, and of its input.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from kemem.errors import InvalidArgument, KeMemError, PermissionDenied
from kemem.memory import AsyncMemory
from kemem.ports import Tool
from kemem.recall import MEMRECALL_TOOLS, Budget
from kemem.recall.registry import ToolEntry, as_tools, check_arguments, tool_entry
from kemem.recall.schemas import Language, Model, tool_texts
from kemem.recall.state import RecallState
from kemem.recall.tools import summary
from kemem.records.times import to_rfc3339
from kemem.results import Hit, Memories, is_over
from kemem.text.fence import fenced, neutralise
from kemem.text.ids import MAX_ID
from kemem.text.language import is_chinese

DEFAULT_TOOLS = ("add_memory", "search_memories", "forget_memory")  # of an agent
_MAX_RESULT = 20_000  # characters; clients hide longer results from their model
_ALWAYS_FITS = 64  # characters: ids, times, words of a schema
_PREVIEW = 500  # characters
_EVIDENCE = 1_500


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Whose memories a call reaches: decided by a flag or a credential, never by an argument."""

    memory: AsyncMemory  # a handle, bound to the user
    session_id: str | None = None  # the current conversation
    shared: AsyncMemory | None = None  # for callers who may change what all users share
    read_only: bool = False

    @property
    def agent_id(self) -> str:
        return self.memory.scope.agent_id or "default"

    @property
    def knowledge(self) -> AsyncMemory:
        """The memory that can change knowledge, which all users of the agent share."""
        if self.shared is None:
            raise PermissionDenied("this token cannot change knowledge, which all users share")
        return self.shared

    def language(self, text: str) -> Language:
        """The language to answer a text in."""
        setting = self.memory.settings.recall_language
        if setting == "auto":
            return "zh" if is_chinese(text) else "en"
        return setting

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


class AddMemoryInput(Model):
    content: Annotated[str, Field(min_length=1, max_length=100_000)] | list[Any]
    infer: bool = False


class AddedMemory(Model):
    memory_key: str
    content: str
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]


class AddMemoryOutput(Model):
    memories: list[AddedMemory] = Field([])
    message_keys: list[str] = Field([])
    pending: bool = False
    problems: list[str] = Field([])
    skipped: list[str] = Field([])


async def add_memory(context: ToolContext, request: AddMemoryInput) -> AddMemoryOutput:
    """Remember something."""
    content, infer = request.content, request.infer
    added = await context.memory.add(content, session_id=context.session_id, infer=infer)
    return AddMemoryOutput(
        memories=[
            AddedMemory(memory_key=it.id, content=it.memory[:_PREVIEW], event=it.event)
            for it in added.results
        ],
        message_keys=[*added.message_ids, *added.ignored],
        pending=added.pending,
        problems=list(added.problems),
        skipped=list(added.skipped),
    )


class RecallMemoriesInput(Model):
    question: str = Field(min_length=1, max_length=10_000)
    past: bool = False


class RecalledEvidence(Model):
    memory_key: str
    memory_type: str
    content: str
    score: float
    event_time: str
    valid_until: str | None = None
    superseded_by: str | None = None
    in_reply_to: str = ""


class RecallMemoriesOutput(Model):
    evidence: list[RecalledEvidence] = Field([])
    search_summary: str
    confidence: float
    completed: bool
    follow_up_question: str | None = None
    problems: list[str] = Field([])


async def recall_memories(
    context: ToolContext, request: RecallMemoriesInput
) -> RecallMemoriesOutput:
    """The evidence that a question needs."""
    result = await context.memory.recall(**dict(request), session_id=context.session_id)
    shown = result.to_dict()
    for evidence in shown["evidence"]:
        evidence["content"] = evidence["content"][:_EVIDENCE]
    if not result.needs_more_info:
        del shown["follow_up_question"]
    return RecallMemoriesOutput.model_validate(shown)


class ListMemoriesInput(Model):
    limit: int = Field(20, ge=1, le=50)
    cursor: str | None = Field(None, max_length=2_000)


class ListedMemory(Model):
    memory_key: str
    memory_type: str
    content_preview: str
    created_at: str


class ListMemoriesOutput(Model):
    memories: list[ListedMemory] = Field([])
    next_cursor: str | None = None


async def list_memories(context: ToolContext, request: ListMemoriesInput) -> ListMemoriesOutput:
    """A page of all memories, newest first."""
    page = await context.memory.get_all(limit=request.limit, cursor=request.cursor)
    memories = [
        ListedMemory(
            memory_key=item.id,
            memory_type=item.memory_type,
            content_preview=item.memory[:_PREVIEW],
            created_at=to_rfc3339(item.note.created),
        )
        for item in page
    ]
    return ListMemoriesOutput(memories=memories, next_cursor=page.next_cursor)


class GetProfileInput(Model):
    max_tokens: int = Field(1_000, ge=50, le=4_000)


class KnownFact(Model):
    memory_key: str
    content: str
    since: str


class KnownFacts(Model):
    title: str
    facts: list[KnownFact]


class GetProfileOutput(Model):
    groups: list[KnownFacts] = Field([])
    omitted: int = 0


async def get_profile(context: ToolContext, request: GetProfileInput) -> GetProfileOutput:
    """What is known about the user now, by topic."""
    profile = await context.memory.profile(max_tokens=request.max_tokens)
    groups = [
        KnownFacts(
            title=group.title,
            facts=[
                KnownFact(memory_key=it.id, content=it.memory, since=to_rfc3339(it.since))
                for it in group.lines
            ],
        )
        for group in profile.groups
    ]
    return GetProfileOutput(groups=groups, omitted=profile.omitted)


class ForgetMemoryInput(Model):
    memory_key: str = Field(min_length=1, max_length=MAX_ID)
    sources: bool = False


class ForgetMemoryOutput(Model):
    forgotten: str
    withdrawn: list[str] = Field([])
    erased: list[str] = Field([])


async def forget_memory(context: ToolContext, request: ForgetMemoryInput) -> ForgetMemoryOutput:
    """Erase a memory; the messages that it cites are withdrawn, or erased with it."""
    memory, key = context.memory, request.memory_key
    if (await memory.get(key)).kind == "knowledge":
        knowledge, agent_id = context.knowledge, context.agent_id
        deletion = await knowledge.delete(key, agent_id=agent_id, sources=request.sources)
    else:
        deletion = await memory.delete(key, sources=request.sources)
    withdrawn, erased = list(deletion.withdrawn), list(deletion.erased)
    return ForgetMemoryOutput(forgotten=key, withdrawn=withdrawn, erased=erased)


class AddKnowledgeInput(Model):
    content: str = Field(min_length=1, max_length=100_000)
    summary: str | None = Field(None, min_length=1, max_length=1_000)
    tags: list[str] = Field([], max_length=20)


class AddKnowledgeOutput(Model):
    memory_key: str
    summary: str


async def add_knowledge(context: ToolContext, request: AddKnowledgeInput) -> AddKnowledgeOutput:
    """Add an entry to the knowledge base."""
    item = await context.knowledge.learn(**dict(request), agent_id=context.agent_id)
    return AddKnowledgeOutput(memory_key=item.id, summary=summary(item))


class SearchKnowledgeInput(Model):
    query: str = Field(min_length=1, max_length=2_000)
    limit: int = Field(3, ge=1, le=10)


class KnowledgeEntry(Model):
    memory_key: str
    summary: str
    content: str
    score: float


class SearchKnowledgeOutput(Model):
    results: list[KnowledgeEntry] = Field([])


async def search_knowledge(
    context: ToolContext, request: SearchKnowledgeInput
) -> SearchKnowledgeOutput:
    """The entries of the knowledge base that answer a query best."""
    results: list[KnowledgeEntry] = []
    for hit in await context.memory.search(**dict(request), kinds=["knowledge"]):
        fields = {"summary": summary(hit), "content": hit.memory[:_EVIDENCE]}
        results.append(KnowledgeEntry(memory_key=hit.id, score=hit.score, **fields))
    return SearchKnowledgeOutput(results=results)


def _recall_tool(origin: str, name: str, subject: str) -> ToolEntry:
    """A tool of the recall agent under another name; `subject` is the field that it is about."""
    entry = MEMRECALL_TOOLS[origin]

    async def call(context: ToolContext, request: Model) -> Any:
        state = await context.recall_state(getattr(request, subject))
        return await entry["func"](state, request)

    return {**entry, "name": name, "func": call, **tool_texts(__package__)["tools"][name]}


_ENTRIES = (
    tool_entry(__package__, add_memory),
    _recall_tool("search_memories", "search_memories", "query"),
    _recall_tool("get_memory_detail", "get_memory", "memory_key"),
    *(tool_entry(__package__, tool) for tool in (recall_memories, get_profile, list_memories)),
    tool_entry(__package__, forget_memory),
    *(tool_entry(__package__, tool) for tool in (add_knowledge, search_knowledge)),
)
MEMORY_TOOLS: Mapping[str, ToolEntry] = {entry["name"]: entry for entry in _ENTRIES}


def described_tools(names: Collection[str], language: Language) -> list[Tool]:
    """Some of the tools as models are told of them."""
    if unknown := set(names) - MEMORY_TOOLS.keys():
        known = ", ".join(MEMORY_TOOLS)
        raise InvalidArgument(f"no tools {sorted(unknown)}; there are {known}", field="names")
    return as_tools(language, {name: MEMORY_TOOLS[name] for name in names})


async def call_tool(
    name: str, arguments: Mapping[str, Any], context: ToolContext, language: Language
) -> str:
    """The output of a tool for a model, as data; a failure tells how to mend the call."""
    try:
        request, _ = check_arguments(arguments, MEMORY_TOOLS[name], language)
        output = await MEMORY_TOOLS[name]["func"](context, request)
    except KeMemError as error:
        return neutralise(f"{error.code}: {error.message}")
    return shown(fitted(output.model_dump(mode="json")))


def memories_text(query: str, hits: Memories[Hit]) -> str:
    """Hits as data for the prompt of a query, in its language; nothing where none still holds."""
    if not any(hits.past or not is_over(hit) for hit in hits):
        return ""
    heading = tool_texts("kemem.compat")["memories"]["zh" if is_chinese(query) else "en"]
    return f"{heading}\n{fenced('memories', str(hits))}"


def shown(output: Mapping[str, Any]) -> str:
    """An output as a text that is marked as data."""
    return fenced("tool_data", json.dumps(output, ensure_ascii=False))


def fitted(output: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with neutralised texts, cut where the whole would be too long."""
    left = _MAX_RESULT

    def fit(value: Any) -> Any:
        nonlocal left
        match value:
            case str():
                size = max(left, _ALWAYS_FITS)
                left = max(0, left - len(value))
                shown = neutralise(value[:size])
                return shown if len(value) <= size else f"{shown}… [truncated]"
            case list():
                return [fit(each) for each in value if left]
            case dict():
                return {neutralise(name): fit(each) for name, each in value.items()}
        return value

    return {name: fit(each) for name, each in output.items()}
