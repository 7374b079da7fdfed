"""Memories, models and stores for tests of recall."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kemem.memory import AsyncMemory
from kemem.ports import LLM, Deps, Prompt, Store, ToolCall, read_messages, read_notes
from kemem.records import MESSAGES, NOTES, Scope, Where
from kemem.runtime import Backends, Runtime
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder, calling
from kemem_conformance.ram import RamStore

NOW = 1_767_225_600_000_000  # 2026-01-01
TALK = 12  # messages of each user


@dataclass(frozen=True, slots=True)
class Tongue:
    """A user of one language: what is remembered, what is asked for, what answers it."""

    user: str
    facts: tuple[str, ...]
    question: str
    answer: str
    nothing: str  # a question that nothing answers


CHINESE = Tongue(
    "zh",
    ("数据库端口是 5432", "用户不吃辣，火锅要清汤", "周三下午三点开例会"),
    "数据库端口是多少？",
    "5432",
    "量子纠缠实验",
)
ENGLISH = Tongue(
    "en",
    ("The database port is 6543", "User orders the mild hotpot", "The meeting is on Wednesday"),
    "What is the database port?",
    "6543",
    "quantum entanglement",
)
TONGUES = (CHINESE, ENGLISH)
BOTH = pytest.mark.parametrize("tongue", TONGUES, ids=["zh", "en"])
ONE = pytest.mark.parametrize("tongue", [CHINESE], ids=["zh"])  # where the language does not matter


def quiet(directory: Path, **chosen: Any) -> Settings:
    """Settings without any model."""
    return load(data_dir=directory, embedder="none", llm="none", **chosen)


class Ready(Runtime):
    """Deps that are open already."""

    def __init__(self, deps: Deps) -> None:
        none = load(embedder="none", llm="none")
        super().__init__(none, Backends())
        self._deps = deps


def parts_with(llm: LLM | None = None, store: Store | None = None) -> Deps:
    """A store, an embedder without a model, and a clock that stands still."""
    return Deps(store or RamStore(), HashingEmbedder(), FakeClock(NOW), llm=llm)


def notebook(deps: Deps) -> AsyncMemory:
    """The application's own memory over some deps."""
    memory = AsyncMemory(settings=load(embedder="none", llm="none"))
    memory.runtime = Ready(deps)
    return memory


def handle(deps: Deps, user: str, llm: LLM | None = None, **granted: Any) -> AsyncMemory:
    """What is bound to a user, over the same deps with another model."""
    return notebook(replace(deps, llm=llm)).for_user(user, **granted)


async def furnished(store: Store | None = None) -> Deps:
    """A user of each language, with notes, and with messages that they were drawn from."""
    deps = parts_with(store=store)
    memory = notebook(deps)
    for tongue in TONGUES:
        for fact in tongue.facts:
            await memory.add(fact, tongue.user, infer=False)
        for at in range(TALK - len(tongue.facts)):
            said = {"role": "user", "content": f"{tongue.facts[at % 3]} {at}"}
            await memory.ingest(said, tongue.user)
    return deps


async def keys_of(deps: Deps, user: str) -> tuple[frozenset[str], frozenset[str]]:
    """The keys of a user's memories, and those of messages among them."""
    where = Where(Scope(user_id=user), kinds=MESSAGES | NOTES)
    messages = {row.id for row in await read_messages(deps.store, where, limit=1000)}
    notes = {row.id for row in await read_notes(deps.store, where, limit=1000)}
    return frozenset(messages | notes), frozenset(messages)


def handing(keys: Iterable[str | int] = (), **more: Any) -> ToolCall:
    """The hand-off of some keys."""
    said = {"reason": "找到了 found", "search_summary": "端口 the port", "confidence": 0.9}
    return calling("handoff", **{**said, "relevant_memory_keys": list(keys), **more})


def shown_keys(messages: Prompt) -> list[str]:
    """The keys that the answers of tools show, each once."""
    answers = "".join(it["content"] for it in messages if it["role"] == "tool")
    return list(dict.fromkeys(re.findall(r'"memory_key":"([^"]+)"', answers)))


def hand_over_what_is_shown(messages: Prompt) -> ToolCall:
    """A model that takes whatever it has seen."""
    return handing(shown_keys(messages))


def told(messages: Prompt) -> list[dict[str, Any]]:
    """The answers of tools in a prompt, out of their fences."""
    answers = [message["content"] for message in messages if message["role"] == "tool"]
    return [json.loads(answer.split("\n")[1]) for answer in answers]
