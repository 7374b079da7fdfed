"""Notes of known types and ages, with the messages that tell them, to be recalled."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kemem import AsyncMemory
from kemem.add import rules
from kemem.add.edit import notes_batch
from kemem.add.extract import new_note
from kemem.add.parse import Task
from kemem.ports import LLM, Deps, Embedder
from kemem.recall import Budget, Caches
from kemem.recall.registry import run_tool
from kemem.recall.schemas import Language
from kemem.recall.state import RecallState
from kemem.records import Change, Scope
from kemem.records.times import to_rfc3339
from kemem.runtime import Backends, Runtime
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder, calling
from kemem_conformance.ram import RamStore

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
DAY = 86_400_000_000
HASHING = HashingEmbedder()


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was said some days ago, and its type."""

    text: str
    type: str = "general"
    days: float = 0
    keywords: tuple[str, ...] = ()


def said(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    """The messages that tell the facts."""
    return [{"content": it.text, "ts": to_rfc3339(NOW - round(it.days * DAY))} for it in facts]


async def tell(memory: AsyncMemory, facts: Sequence[Fact], session_id: str | None = None) -> None:
    """Let the user u have these facts as notes, with the messages that tell them."""
    ids = (await memory.ingest(said(facts), "u", session_id=session_id)).inserted
    deps, owner = await memory.runtime.prepared(), Scope("default", "u", session_id)
    notes, now = [], deps.clock()
    for fact, message_id in zip(facts, ids, strict=True):
        told = rules.Fact(fact.text, (message_id,), fact.type, fact.keywords)
        since = NOW - round(fact.days * DAY)
        notes.append(new_note(told, Task("user_info"), owner, since, now))
    lines = [Change("default", "u", it.id, "add", now, after=it.content) for it in notes]
    await deps.store.apply(await notes_batch(notes, lines, now, deps))


@asynccontextmanager
async def opened(
    directory: Path,
    facts: Sequence[Fact] = (),
    *,
    embedder: Embedder | None = HASHING,
    **settings: Any,
) -> AsyncIterator[AsyncMemory]:
    """A memory on disk with these facts and without a model; no embedder means the local one."""
    chosen, clock = load(data_dir=directory, llm="none", **settings), FakeClock(NOW)
    async with AsyncMemory(settings=chosen, embedder=embedder, clock=clock) as memory:
        await tell(memory, facts)
    async with AsyncMemory(settings=chosen, embedder=embedder, clock=clock) as memory:
        yield memory


class Opened(Runtime):
    """Deps that a test has opened itself."""

    def __init__(self, deps: Deps, **settings: Any) -> None:
        chosen = load(llm="none", **settings)
        super().__init__(chosen, Backends())
        self._deps = deps


async def notebook(
    facts: Sequence[Fact] = (),
    *,
    store: RamStore | None = None,
    llm: LLM | None = None,
    **settings: Any,
) -> AsyncMemory:
    """The same in the reference store, with or without a model."""
    deps = Deps(store or RamStore(), HASHING, FakeClock(NOW))
    memory = AsyncMemory(settings=load(llm="none", **settings))
    memory.runtime = Opened(deps, **settings)
    if facts:
        await tell(memory, facts)
    memory.runtime = Opened(replace(deps, llm=llm), **settings)
    return memory


async def state_for(
    memory: AsyncMemory, language: Language = "zh", *, budget: Budget | None = None
) -> RecallState:
    """The state of a recall for the user u that begins."""
    return RecallState(
        memory=memory.for_user("u"),
        deps=await memory.runtime.deps(),
        caches=Caches(),
        budget=budget or Budget(),
        question="?",
        language=language,
        driver="llm",
    )


async def used(state: RecallState, tool: str, **arguments: Any) -> Any:
    """What a tool answers."""
    return await run_tool(calling(tool, **arguments), state)


async def searched(memory: AsyncMemory, query: str, **asked: Any) -> Any:
    """What the first search of a recall answers."""
    return await used(await state_for(memory), "search_memories", query=query, **asked)
