"""Messages are a tree: one branch is followed, regenerated answers stay apart."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import Memory
from kemem.errors import InvalidArgument, NotFound
from kemem.records import Message
from kemem.records.branches import current
from kemem.testing import ScriptedLLM


def said(message_id: str, content: str, parent: str | None = None, role: str = "") -> Any:
    role = role or ("user" if message_id[0] == "u" else "assistant")
    own = {"message_id": message_id, "parent_message_id": parent}
    return {"role": role, "content": content, **own}


TREE = [
    said("u1", "我在找工作"),
    said("a1", "去北京吧", "u1"),
    said("u2", "太远了", "a1"),
    said("a1b", "Try Shanghai.", "u1"),
    said("u3", "上海不错", "a1b"),
    said("a3", "那就上海", "u3"),
]


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(data_dir=tmp_path) as opened:
        yield opened


def ids(messages: Any) -> list[str]:
    return [message.message_id for message in messages]


def test_a_branch_is_followed_from_its_last_message(memory: Memory) -> None:
    memory.ingest(TREE, "u", session_id="s")
    assert ids(memory.messages("u", branch="u2").items) == ["u2", "a1", "u1"]
    assert ids(memory.messages("u", branch="a3", role="user").items) == ["u3", "u1"]
    page = memory.messages("u", branch="a3", page_size=3)
    rest = memory.messages("u", branch="a3", page_size=3, cursor=page.next_cursor)
    assert ids((*page.items, *rest.items)) == ["a3", "u3", "a1b", "u1"]
    for call in (memory.messages, lambda user, branch: memory.context("s", user, leaf=branch)):
        with pytest.raises(NotFound):
            call("u", branch="nobody")
    with pytest.raises(NotFound):
        memory.messages("v", branch="a3")


def test_a_context_follows_the_newest_branch_or_the_one_named(memory: Memory) -> None:
    """Regenerated answers and what followed them are not in it."""
    memory.ingest(TREE, "u", session_id="s")
    assert ids(memory.context("s", "u").messages) == ["u1", "a1b", "u3", "a3"]
    assert ids(memory.context("s", "u", leaf="u2").messages) == ["u1", "a1", "u2"]
    assert "北京" not in memory.context("s", "u").text
    memory.ingest([said("u4", "其实北京也行", "u2")], "u", session_id="s")
    assert ids(memory.context("s", "u").messages) == ["u1", "a1", "u2", "u4"]


def test_a_long_branch_is_read_to_its_root(memory: Memory) -> None:
    chain = [said(f"u{at}", f"第 {at} 条", f"u{at - 1}" if at else None) for at in range(450)]
    memory.ingest(chain, "u", session_id="s")
    context = memory.context("s", "u", leaf="u449", max_tokens=300)
    assert context.messages[-1].message_id == "u449"
    page = memory.messages("u", branch="u449", page_size=1000)
    assert ids(page.items) == [f"u{at}" for at in reversed(range(450))]


def test_an_unknown_parent_is_refused(memory: Memory) -> None:
    """Before anything is stored; a parent may be stored, or come earlier in the same call."""
    for store in (memory.add, memory.ingest):
        with pytest.raises(InvalidArgument, match="'nobody'"):
            store([said("u1", "你好"), said("a1", "hi", "nobody")], "u")
        with pytest.raises(InvalidArgument, match="'u2'"):
            store([said("a1", "hi", "u2"), said("u2", "你好")], "u")
    assert memory.messages("u").items == ()
    memory.ingest([said("u1", "你好")], "u")
    with pytest.raises(InvalidArgument):
        memory.ingest([said("a1", "hi", "u1")], "somebody else")
    memory.add([said("a1", "hi", "u1"), said("u2", "再见", "a1")], "u")


def test_facts_are_not_drawn_from_what_was_replaced(tmp_path: Path) -> None:
    """Neither within a call nor by a job that comes to it later."""
    llm = ScriptedLLM([{"facts": [], "entities": []}], repeat=True)
    with Memory(data_dir=tmp_path, llm=llm) as memory:
        memory.add(TREE, "u", session_id="s")
        asked = str(llm.calls[-1].messages)
        assert "Shanghai" in asked and "北京" not in asked
        memory.add([said("u9", "换个话题")], "u", session_id="t", wait=False)
        memory.add([said("a9", "Paris 巴黎", "u9")], "u", session_id="t", wait=False)
        memory.add([said("a9b", "Rome 罗马", "u9")], "u", session_id="t", wait=False)
        count = len(llm.calls)
        memory.run_jobs()
        prompts = [str(call.messages[-1]) for call in llm.calls[count:]]
        read = [it.split("<conversation>")[-1].split("</conversation>")[0] for it in prompts]
        assert any("罗马" in text for text in read)
        assert not any("巴黎" in text for text in read)


def test_what_only_a_replaced_message_said_is_over(memory: Memory) -> None:
    """A question that was edited, an answer that was regenerated; other notes stay."""
    memory.add(
        [said("u1", "我住在北京。"), said("u2", "我养了一只猫。", "u1")], "u", session_id="s"
    )
    edited = memory.add([said("u2b", "My sister is called Mary.", "u1")], "u", session_id="s")
    assert "DELETE" in [it.event for it in edited.results]
    notes = [it.memory for it in memory.get_all("u")]
    assert any("北京" in note for note in notes) and any("Mary" in note for note in notes)
    assert not any("猫" in note for note in notes)


def message(at: int, parent: int | None, role: str) -> Message:
    ids = ("a", "u", "s")
    name = None if parent is None else f"m{parent}"
    return Message(f"m{at}", *ids, role, "x", at, at, parent_message_id=name)


@st.composite
def trees(draw: st.DrawFn) -> list[Message]:
    size = draw(st.integers(1, 12))
    roles = st.sampled_from(["user", "assistant", "tool"])
    parents = [None if at == 0 else draw(st.none() | st.integers(0, at - 1)) for at in range(size)]
    return [message(at, parent, draw(roles)) for at, parent in enumerate(parents)]


@given(messages=trees())
def test_what_stays_is_one_version_of_the_talk(messages: list[Message]) -> None:
    """The newest stays, parents of what stays do, and no two alternatives."""
    kept = current(messages)
    names = {it.id for it in kept}
    assert messages[-1].id in names
    assert [it for it in messages if it.id in names] == kept
    assert current(kept) == kept
    for it in kept:
        assert it.parent_message_id is None or it.parent_message_id in names
    speakers = [(it.parent_message_id, it.role) for it in kept if it.parent_message_id]
    spoken = [pair for pair in speakers if pair[1] != "tool"]
    assert len(spoken) == len(set(spoken))
