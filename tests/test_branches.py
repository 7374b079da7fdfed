"""Messages are a tree: one branch is followed, regenerated answers stay apart."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kemem import AsyncMemory, Memory
from kemem.errors import InvalidArgument, NotFound
from kemem.ports import Reply
from kemem.records import Message
from kemem.records.branches import current
from kemem.settings import Settings
from kemem.store import write
from kemem.store.branches import mark_branches
from kemem.testing import HashingEmbedder, ScriptedLLM
from tests.fixtures import EXAMPLES


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


def notes(memory: Memory, user: str = "u") -> list[str]:
    return sorted(it.memory for it in memory.get_all(user))


@pytest.mark.parametrize(
    "first, second, kept, other",
    [
        ("I drive a Fiat.", "I drive a Ferrari.", "User drives a Fiat", "User drives a Ferrari"),
        ("我住在北京。", "我住在上海。", "用户住在北京", "用户住在上海"),
    ],
)
def test_a_branch_that_is_taken_up_again_has_its_facts_again(
    memory: Memory, first: str, second: str, kept: str, other: str
) -> None:
    """What the other branch said is deleted: neither current nor of the past."""
    memory.add([said("u1", "Hello"), said("a1", "Hi", "u1")], "u", session_id="s")
    memory.add([said("u2", first, "a1")], "u", session_id="s")
    edited = memory.add([said("u2b", second, "a1")], "u", session_id="s")
    assert sorted(it.event for it in edited.results) == ["ADD", "DELETE"]
    assert notes(memory) == [other]
    resumed = memory.add([said("a4", "OK", "u2")], "u", session_id="s")
    assert sorted(it.event for it in resumed.results) == ["ADD", "DELETE"]
    assert notes(memory) == [kept]
    (note,) = memory.get_all("u")
    assert (note.memory, note.sources) == (kept, ("u2",))
    assert other not in [it.memory for it in memory.search(second, "u", past=True)]
    memory.add([said("u5", "Thanks", "a4")], "u", session_id="s")
    assert notes(memory) == [kept]


def test_what_another_branch_had_ended_holds_again(memory: Memory) -> None:
    """Through two levels of regeneration, and for a note that another session also tells."""
    memory.add([said("u1", "I live in Rome.")], "u", session_id="s")
    memory.add([said("u2", "I live in Oslo.", "u1")], "u", session_id="s")
    memory.add([said("u3", "I live in Paris.", "u2")], "u", session_id="s")
    memory.add([said("u3b", "I live in Vienna.", "u2")], "u", session_id="s")
    assert notes(memory) == ["User lives in Vienna"]
    memory.add([said("u2b", "My sister is called Mary.", "u1")], "u", session_id="s")
    assert notes(memory) == ["User lives in Rome", "User's sister is called Mary"]
    memory.add("My sister is called Mary.", "u", session_id="t")
    memory.add([said("a3", "Nice there.", "u3")], "u", session_id="s")
    assert notes(memory) == ["User lives in Paris", "User's sister is called Mary"]
    (sister,) = (it for it in memory.get_all("u") if "Mary" in it.memory)
    assert "u2b" not in sister.sources


def test_messages_kept_verbatim_follow_the_branch_and_give_facts_later(memory: Memory) -> None:
    tree = [
        said("u1", "Hello"),
        said("u2", "我住在北京。", "u1"),
        said("u2b", "我住在上海。", "u1"),
    ]
    for it in tree:
        memory.add([it], "u", session_id="s", infer=False)
    assert notes(memory) == ["Hello", "我住在上海。"]
    memory.add([said("a3", "OK", "u2")], "u", session_id="s", infer=False)
    assert notes(memory) == ["Hello", "OK", "我住在北京。"]
    memory.extract("u")
    assert "用户住在北京" in notes(memory) and not any("上海" in it for it in notes(memory))


def test_ingested_messages_leave_a_branch_too(memory: Memory) -> None:
    memory.add([said("u1", "Hello"), said("u2", "I live in Rome.", "u1")], "u", session_id="s")
    memory.ingest([said("u2b", "I live in Oslo.", "u1")], "u", session_id="s")
    assert notes(memory) == []
    memory.extract("u")
    assert notes(memory) == ["User lives in Oslo"]


def test_an_end_that_another_branch_told_is_undone(tmp_path: Path) -> None:
    told: list[Any] = [
        {"facts": [{"text": "User drives a Skoda"}]},
        {"facts": [{"text": "", "replaces": [1]}]},
    ]
    llm = ScriptedLLM([*told, {"facts": []}])
    with Memory(data_dir=tmp_path, llm=llm) as memory:
        memory.add([said("u1", "I drive a Skoda.")], "u", session_id="s")
        memory.add([said("u2", "By the way, sold the Skoda", "u1")], "u", session_id="s")
        assert "User drives a Skoda" not in notes(memory)
        memory.add([said("u2b", "Hm", "u1")], "u", session_id="s")
        assert notes(memory) == ["User drives a Skoda"]


class _Interrupted(ScriptedLLM):
    """A model that something else happens before it has answered, once."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def reply(self, *args: Any, **options: Any) -> Reply:
        answer, meanwhile = await super().reply(*args, **options), self.meanwhile
        self.meanwhile = None
        if meanwhile is not None:
            await meanwhile()
        return answer


async def test_a_branch_that_is_left_while_a_model_answers_leaves_no_notes(tmp_path: Path) -> None:
    """The model is asked about one version while another is added."""
    llm = _Interrupted([{"facts": []}, {"facts": [{"text": "User lives in Oslo"}]}, {"facts": []}])
    async with AsyncMemory(data_dir=tmp_path, llm=llm) as memory:
        await memory.add([said("u1", "Hello")], "u", session_id="s")
        llm.meanwhile = partial(memory.add, [said("u2b", "Hm", "u1")], "u", session_id="s")
        await memory.add([said("u2", "I live in Oslo.", "u1")], "u", session_id="s")
        assert len(llm.calls) == 3 and [*await memory.get_all("u")] == []


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


LEFT = "2026-03-05T00:00:00.000000Z"
SAID = [
    *("I drive a Fiat.", "I drive a Ferrari.", "I sold my car.", "My sister is called Mary."),
    *(
        "我住在北京。",
        "我住在上海。",
        "我搬到了广州。",
        "不对，是深圳。",
        "Sorry, I meant Volvo.",
    ),
]
_NUMBERS = count()


@st.composite
def talks(draw: st.DrawFn) -> list[tuple[int | None, str]]:
    """Messages that say things, each with the place of the one that it follows."""
    size = draw(st.integers(2, 8))
    parents = [None if at == 0 else draw(st.integers(0, at - 1)) for at in range(size)]
    return [(parent, draw(st.sampled_from(SAID))) for parent in parents]


@pytest.fixture
def either_memory(either_settings: Settings) -> Any:
    with Memory(settings=either_settings) as opened:
        yield opened


@given(talk=talks(), mode=st.sampled_from(["add", "later", "extract", "together"]))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_notes_are_those_of_the_current_branch_alone(
    either_memory: Memory, talk: list[tuple[int | None, str]], mode: str
) -> None:
    """Whatever was said on others, and in whatever order: as if it had never been said."""
    user = f"user {next(_NUMBERS)}"
    tree = [
        said(f"u{at}", text, None if parent is None else f"u{parent}")
        for at, (parent, text) in enumerate(talk)
    ]
    groups = [tree] if mode == "together" else [[it] for it in tree]
    for messages in groups:
        either_memory.add(
            messages, user, session_id="s", infer=mode != "extract", wait=mode != "later"
        )
    if mode == "later":
        either_memory.run_jobs()
    if mode == "extract":
        either_memory.extract(user)
    messages = [message(at, parent, "user") for at, (parent, _) in enumerate(talk)]
    for kept in current(messages):
        either_memory.add(tree[kept.ts], f"{user} alone", session_id="s", infer=mode != "extract")
    if mode == "extract":
        either_memory.extract(f"{user} alone")
    notes, alone = (
        sorted(it.memory for it in either_memory.get_all(it)) for it in (user, f"{user} alone")
    )
    assert notes == alone


@pytest.fixture
def embedding_memory(either_settings: Settings) -> Any:
    with Memory(settings=either_settings, embedder=HashingEmbedder(width=64)) as opened:
        yield opened


@given(talk=talks(), dropped=st.integers(0, 7), together=st.booleans())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_messages_served_are_those_of_the_current_branch_alone(
    embedding_memory: Memory, talk: list[tuple[int | None, str]], dropped: int, together: bool
) -> None:
    """As sets, by words and by meaning; also when one message has been deleted."""
    user = f"served {next(_NUMBERS)}"
    tree = [
        said(f"u{at}", text, None if parent is None else f"u{parent}")
        for at, (parent, text) in enumerate(talk)
    ]
    for messages in [tree] if together else [[it] for it in tree]:
        embedding_memory.ingest(messages, user, session_id="s")
    embedding_memory.delete(f"u{min(dropped, len(talk) - 1)}", user_id=user, sources=True)
    left = [it for it in embedding_memory.messages(user).items][::-1]
    kept = current(left)
    alone = [said(it.message_id, it.content) for it in kept]
    embedding_memory.ingest(alone, f"{user} alone", session_id="s")
    assert [it.message_id for it in left if it.valid_until is None] == ids(kept)
    for question in ("Which car do I drive?", "我住在哪里？", "Mary 北京 Fiat"):
        found, expected = (
            [
                {it.id for it in embedding_memory.search(question, it, kinds=["message"])},
                {it.id for it in embedding_memory.hybrid_search(question, it)},
                {it.id for it in embedding_memory.lexical_search(question, it).items},
                {it.id for it in embedding_memory.semantic_search(question, it)},
            ]
            for it in (user, f"{user} alone")
        )
        assert found == expected


@pytest.mark.parametrize(
    "first, second, question",
    [
        ("My dentist is Dr Huber.", "My dentist is Dr Weiss.", "Who is my dentist?"),
        ("我的牙医是胡医生。", "我的牙医是魏医生。", "我的牙医是谁？"),
    ],
)
def test_an_edited_message_is_served_only_where_the_past_is_asked_for(
    memory: Memory, first: str, second: str, question: str
) -> None:
    """It is marked there, and the transcript keeps it; taken up again, it is as any other."""
    memory.add([said("u1", "Hello")], "u", session_id="s", timestamp="2026-03-01T00:00:00Z")
    memory.add([said("u2", first, "u1")], "u", session_id="s", timestamp="2026-03-02T00:00:00Z")
    memory.add([said("u2b", second, "u1")], "u", session_id="s", timestamp=LEFT)
    rows: Any = {"kinds": ["message"]}
    assert "u2" not in [hit.id for hit in memory.search(question, "u", **rows)]
    assert first not in str(memory.recall(question, user_id="u"))
    assert "u2" not in ids(memory.neighbors("u2b", "u"))
    assert "u2" in ids(memory.neighbors("u2", "u"))
    (old,) = (hit for hit in memory.search(question, "u", past=True, **rows) if hit.id == "u2")
    assert old.ended is not None and old.to_dict()["valid_until"] == LEFT
    (then,) = (
        hit
        for hit in memory.search(question, "u", as_of="2026-03-03T00:00:00Z")
        if "u2" in hit.sources
    )
    assert then.ended is None
    shown = {it.message_id: it.to_dict().get("valid_until") for it in memory.messages("u").items}
    assert shown == {"u1": None, "u2": LEFT, "u2b": None}
    memory.add([said("a2", "OK", "u2")], "u", session_id="s", timestamp="2026-03-06T00:00:00Z")
    served = [hit.id for hit in memory.search(question, "u", **rows)]
    assert "u2" in served and "u2b" not in served


def test_a_parent_in_another_session_is_refused(memory: Memory) -> None:
    """Before anything is stored, by name; whether it is stored or comes in the same call."""
    memory.ingest([said("u1", "你好")], "u", session_id="s")
    here = said("a1", "hi", "u1")
    elsewhere = [{**said("u2", "再见"), "session_id": "t"}, said("a2", "bye", "u2")]
    for store in (memory.add, memory.ingest):
        with pytest.raises(
            InvalidArgument, match="'u1' is a message of another session, not of 't'"
        ):
            store([here], "u", session_id="t")
        with pytest.raises(InvalidArgument, match="'u2' is a message of another session"):
            store(elsewhere, "u", session_id="s")
    assert ids(memory.messages("u").items) == ["u1"]


def test_only_what_leaves_a_branch_reads_a_long_session_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = [said(f"u{at}", f"第 {at} 条", f"u{at - 1}" if at else None) for at in range(400)]
    memory.ingest(chain, "u", session_id="s")
    read = list[str]()

    def spy(connection: Any, space_no: int, session_id: str) -> dict[str, int]:
        read.append(session_id)
        return mark_branches(connection, space_no, session_id)

    monkeypatch.setattr(write, "mark_branches", spy)
    memory.ingest([said("u400", "more", "u399"), said("u401", "more", "u400")], "u", session_id="s")
    memory.ingest([said("t1", "result", "u401", "tool")], "u", session_id="s")
    memory.ingest([said("t2", "result", "u401", "tool")], "u", session_id="s")
    assert read == []
    memory.ingest([said("u9999", "again", "u300")], "u", session_id="s")
    assert read == ["s"]
    assert len(memory.lexical_search("more OR result", "u").items) == 0
    assert [hit.id for hit in memory.lexical_search("again", "u").items] == ["u9999"]
