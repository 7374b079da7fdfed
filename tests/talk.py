"""Small conversations and the deps to keep them in, for tests of the short-term memory."""

from collections.abc import Sequence
from typing import Any

from kemem.ports import LLM, Deps
from kemem.records import Message, Note, Scope
from kemem.records.batch import Batch
from kemem.testing import FakeClock
from kemem.text.segment import fingerprint
from kemem_conformance.ram import RamStore

NOW = 1_769_424_420_000_000
MINUTE = 60_000_000
DAY = 86_400_000_000
SCOPE = Scope("a", "u", "s")
OTHER = Scope("a", "u", "other")

CHINESE = (
    "我叫周文博，住在杭州。",
    "好的，记下了，还有什么需要帮忙的吗？",
    "我对花生过敏。",
    "明白了！",
)
ENGLISH = (
    "I'm Emma and I live in Tacoma.",
    "Got it! Anything else?",
    "I'm allergic to nuts.",
    "Ok!",
)


def parts_with(llm: LLM | None = None) -> Deps:
    """An empty store and a clock that stands still."""
    return Deps(RamStore(), None, FakeClock(NOW), llm=llm)


def talk(texts: Sequence[str], *, start: int = 0) -> tuple[Message, ...]:
    """User and assistant in turn, a minute apart."""
    return tuple(
        Message(
            f"m{at:05}",
            "a",
            "u",
            "s",
            "assistant" if at % 2 else "user",
            text,
            NOW + at * MINUTE,
            NOW,
        )
        for at, text in enumerate(texts, start)
    )


def note(note_id: str, content: str = "正在准备六月的发布", **changed: Any) -> Note:
    """A short-term note of the session, unless told otherwise."""
    values: dict[str, Any] = {
        **{"agent_id": "a", "user_id": "u", "session_id": "s", "kind": "short_term"},
        **{"ts": NOW, "created": NOW, "updated": NOW, "valid_from": NOW},
        **{"content": content, "digest": fingerprint(content)},
    }
    return Note(note_id=note_id, **(values | changed))


async def told(deps: Deps, texts: Sequence[str], *, start: int = 0) -> tuple[Message, ...]:
    """Messages as the store keeps them."""
    return (await deps.store.apply(Batch(put=talk(texts, start=start)))).inserted


def varied(language: str, count: int) -> list[str]:
    """A conversation in which every message says something of its own."""
    said = (
        "我在第{}号柜台买了{}张票，花了{}元。"
        if language == "zh"
        else "I bought {1} tickets at counter {0} and paid {2} dollars."
    )
    answer = "好的，还有什么可以帮你的吗？" if language == "zh" else "Sure, anything else I can do?"
    return [
        answer if at % 2 else said.format(at, at * 7 % 23, at * 31 % 997) for at in range(count)
    ]
