"""What is deleted is gone: nothing serves again what a deleted note said."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings as bounds
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kemem import AsyncMemory, InvalidArgument, Memory, NotFound
from kemem.chat import MemorySession
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM
from tests.chats import staged
from tests.fixtures import EXAMPLES
from tests.server import add, note_of, read, said

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


@dataclass(frozen=True, slots=True)
class Talk:
    """A message with two facts, a message with another, and what a question has in common."""

    both: str
    word: str  # of the fact that is deleted
    other: str  # of the fact that stays
    query: str
    aside: str
    again: str


TALKS = {
    "zh": Talk("我住在北京。我不吃辣。", "辣", "北京", "辣 口味", "明天见", "我不吃辣"),
    "en": Talk(
        "I live in Berlin. I can't eat spicy food.",
        *("spicy", "Berlin", "spicy food", "see you tomorrow", "I can't eat spicy food"),
    ),
}
EACH = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)


def opened(directory: Path, **more: Any) -> Memory:
    settings = load(data_dir=directory, embedder="none", llm="none")
    return Memory(settings=settings, clock=FakeClock(NOW), embedder=HashingEmbedder(), **more)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as memory:
        yield memory


@pytest.fixture
def either(either_settings: Settings) -> Iterator[Memory]:
    """The same on both databases."""
    with Memory(
        settings=either_settings, clock=FakeClock(NOW), embedder=HashingEmbedder()
    ) as memory:
        yield memory


def tell(memory: Memory, talk: Talk) -> str:
    """Tell both facts in a message "m"; returns the note of the one that is to be deleted."""
    memory.add([said(talk.both, "m"), said(talk.aside, "aside")], "u", session_id="s")
    return note_with(memory, talk.word)


def note_with(memory: Memory, word: str) -> str:
    (note,) = [item.id for item in memory.get_all("u") if word in item.memory]
    return note


def served(memory: Memory, query: str) -> str:
    """All that a memory serves of a user, as one text."""
    recalled = memory.recall(query, "u", session_id="s")
    parts: list[Any] = [
        *memory.search(query, "u"),
        *memory.search(query, "u", mode="lexical"),
        *memory.search(query, "u", mode="semantic"),
        *memory.hybrid_search(query, "u", 50),
        *memory.lexical_search(query, "u").items,
        *memory.semantic_search(query, "u"),
        *(evidence.content for evidence in recalled.evidence),
        memory.context("s", "u"),
        *memory.get_all("u"),
        *memory.graph("u"),
        *(source.content for item in memory.get_all("u") for source in memory.sources(item.id)),
        *(near.content for near in memory.neighbors("aside", "u", 10, 10)),
    ]
    return "\n".join(map(str, parts))


@EACH
def test_nothing_serves_what_a_deleted_note_said(either: Memory, talk: Talk) -> None:
    """Not even after it is extracted again; the other fact of the same message stays."""
    note = tell(either, talk)
    assert talk.word in served(either, talk.query)
    deletion = either.delete(note)
    assert (deletion.deleted, deletion.withdrawn, deletion.erased) == (1, ("m",), ())
    assert talk.word not in served(either, talk.query)
    assert talk.other in "".join(item.memory for item in either.search(talk.other, "u"))
    assert either.extract("u").results == ()
    either.run_jobs()
    either.reindex()
    assert talk.word not in served(either, talk.query)
    (kept,) = either.get_all("u")
    assert talk.other in kept.memory and kept.sources == ("m",)


@EACH
def test_the_transcript_keeps_and_marks_it(memory: Memory, talk: Talk) -> None:
    memory.delete(tell(memory, talk))
    page = memory.messages("u")
    assert [(it.message_id, it.withdrawn) for it in page.items] == [("aside", False), ("m", True)]
    assert [it.to_dict().get("withdrawn") for it in page.items] == [None, True]
    listed = memory.get_all("u", kinds=["message"])
    assert [it.to_dict().get("withdrawn") for it in listed] == [None, True]
    assert memory.get("m", user_id="u").withdrawn
    with pytest.raises(NotFound):
        memory.neighbors("m", "u")


@EACH
def test_what_is_said_again_is_a_new_fact(memory: Memory, talk: Talk) -> None:
    """The same message again is not."""
    memory.delete(tell(memory, talk))
    memory.add(said(talk.both, "m"), "u", session_id="s")
    assert talk.word not in served(memory, talk.query)
    memory.add(said(talk.again, "new"), "u", session_id="s")
    assert memory.get(note_with(memory, talk.word)).sources == ("new",)
    (hit, *_) = memory.search(talk.query, "u", kinds=["message"])
    assert hit.id == "new"


@EACH
def test_sources_can_be_erased_from_the_disk(tmp_path: Path, talk: Talk) -> None:
    with opened(tmp_path) as memory:
        note = tell(memory, talk)
        deletion = memory.delete(note, sources=True)
        assert (deletion.withdrawn, deletion.erased) == ((), ("m",))
        assert deletion.deleted == 3  # the other note cited this message alone
        assert [it.message_id for it in memory.messages("u").items] == ["aside"]
        assert talk.word not in served(memory, talk.query)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("kemem.db*"))
    assert talk.both.encode() not in stored and talk.again.encode() not in stored


@EACH
def test_summaries_do_not_retell_what_was_withdrawn(memory: Memory, talk: Talk) -> None:
    note = tell(memory, talk)
    for number in range(40):
        memory.add(f"{number} {talk.aside} " * 30, "u", session_id="s", infer=False)
    memory.checkpoint("s", "u")
    memory.delete(note)
    assert memory.session("s", "u")[1] == []
    memory.summarize("s", "u")
    assert talk.word not in str(memory.context("s", "u", max_tokens=100_000))
    assert talk.word not in memory.recall(talk.query, "u", session_id="s").message


def test_another_user_s_note_is_not_found(memory: Memory) -> None:
    note = tell(memory, TALKS["zh"])
    for erases in (False, True):
        whose: list[dict[str, Any]] = [{"user_id": "v"}, {"agent_id": "other"}]
        for ids in whose:
            with pytest.raises(NotFound, match="no memory"):
                memory.delete(note, sources=erases, **ids)
    with pytest.raises(InvalidArgument, match="sources"):
        memory.delete(note, sources="yes")  # type: ignore[arg-type]
    assert not any(it.withdrawn for it in memory.messages("u").items)


def test_a_backup_carries_it(tmp_path: Path) -> None:
    talk = TALKS["en"]
    with opened(tmp_path / "a") as memory:
        memory.delete(tell(memory, talk))
        backup = memory.backup()
    with opened(tmp_path / "b") as restored:
        restored.restore(backup.path)
        assert [it.withdrawn for it in restored.messages("u").items] == [False, True]
        assert talk.word not in served(restored, talk.query)


def test_to_erase_all_erases_withdrawn_messages(memory: Memory) -> None:
    memory.delete(tell(memory, TALKS["zh"]))
    assert memory.delete_all("u") == 3
    assert memory.messages("u").items == ()


def test_a_withdrawn_message_can_be_erased(memory: Memory) -> None:
    memory.delete(tell(memory, TALKS["zh"]))
    assert memory.delete("m", user_id="u").erased == ("m",)
    assert [it.message_id for it in memory.messages("u").items] == ["aside"]


@pytest.mark.parametrize(
    "told, asked",
    [
        (("I have two dogs, Rex and Lulu", "Rex died", "Lulu died"), "Which dogs do I have?"),
        (("我养了两只仓鼠，叫毛毛和豆豆", "毛毛死了"), "我养了哪些仓鼠？"),
    ],
)
def test_what_a_deleted_note_retold_does_not_come_back(
    memory: Memory, told: Sequence[str], asked: str
) -> None:
    """It was told again with what had changed."""
    user = f"retold {asked}"
    for day, text in enumerate(told, 1):
        memory.add(text, user, timestamp=f"2025-12-0{day}T00:00:00Z")
    (note,) = memory.get_all(user)
    memory.delete(note.id)
    assert not memory.get_all(user)
    assert not memory.search(asked, user) and not memory.search(asked, user, past=True)


def test_a_note_with_the_same_text_goes_along(memory: Memory) -> None:
    """As a short-term note and a lasting one of one message; one of another message stays."""
    memory.add(said("我不吃辣", "m"), "u", session_id="s", memory_type="short")
    memory.extract("u")
    lasting = [item for item in memory.get_all("u") if item.kind == "user_info"]
    assert len(memory.get_all("u")) == 2
    memory.delete(lasting[0].id)
    assert len(memory.get_all("u")) == 0


# Corrections


CORRECTED = {
    "zh": ("我住在北京", "北京", "用户住在上海", "上海"),
    "en": ("I live in Berlin", "Berlin", "User lives in Hamburg", "Hamburg"),
}
LIKED = {
    "zh": ("我喜欢喝咖啡", "咖啡", "用户喜欢喝茶", "茶"),
    "en": ("I like coffee", "coffee", "User likes tea", "tea"),
}


@pytest.mark.parametrize(
    ("text", "before", "correction", "after"), [*CORRECTED.values(), *LIKED.values()]
)
def test_extraction_does_not_undo_a_correction(
    either: Memory, text: str, before: str, correction: str, after: str
) -> None:
    """Nor a second one; the graph does not say it either."""
    either.add(said(text, "m"), "u")
    (note,) = either.get_all("u")
    for words in ("something else 别的", correction):
        either.update(note.id, words)
    for _ in range(2):
        either.extract("u")
        either.run_jobs()
        assert [item.memory for item in either.get_all("u")] == [correction]
        assert before not in str(either.graph("u"))


@pytest.mark.parametrize(
    ("text", "first", "reworded", "correction", "unrelated"),
    [
        ("北京，还有猫", "用户住在北京", "用户目前住在北京", "用户住在上海", "用户养猫"),
        (
            "Berlin, with a cat",
            *("User lives in Berlin", "The user currently lives in Berlin"),
            *("User lives in Hamburg", "User has a cat"),
        ),
    ],
)
async def test_a_model_does_not_undo_a_correction(
    tmp_path: Path, text: str, first: str, reworded: str, correction: str, unrelated: str
) -> None:
    """In whatever words it says it again; what it had not said before is new."""

    def fact(content: str) -> dict[str, Any]:
        return {"text": content, "sources": [1], "replaces": [], "relations": []}

    llm = ScriptedLLM([{"facts": [fact(first)]}, {"facts": [fact(reworded), fact(unrelated)]}])
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=FakeClock(NOW)) as memory:
        await memory.add(text, "u")
        (note,) = await memory.get_all("u")
        await memory.update(note.id, correction)
        added = await memory.extract("u")
        assert [it.event for it in added.results] == ["NONE", "ADD"]
        assert {it.memory for it in await memory.get_all("u")} == {correction, unrelated}


# Deleted while others work


async def test_what_a_model_draws_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    """The message is withdrawn while the model reads it."""
    talk, note = TALKS["en"], ""

    def fact(content: str) -> dict[str, Any]:
        return {"facts": [{"text": content, "sources": [1], "replaces": [], "relations": []}]}

    llm = ScriptedLLM([fact("User avoids spicy food"), fact("User cannot eat spicy dishes at all")])
    settings = load(data_dir=tmp_path, embedder="none")

    class Deleting(HashingEmbedder):
        """Embeds the second note when the first has been deleted."""

        async def embed(self, texts: Any, **options: Any) -> Any:
            if note and any("dishes" in text for text in texts):
                assert (await told.delete(note)).withdrawn
            return await super().embed(texts, **options)

    made = AsyncMemory(settings=settings, llm=llm, embedder=Deleting(), clock=FakeClock(NOW))
    async with made as told:
        await told.add(talk.again, "u")
        note = (await told.get_all("u"))[0].id
        await told.extract("u")
        assert len(await told.get_all("u")) == 0
        assert len(await told.search("spicy", "u")) == 0


# Other faces


@EACH
async def test_a_chat_is_not_told_of_it(tmp_path: Path, talk: Talk) -> None:
    """Neither by a recall nor by the history; nor is an agent by its session."""
    async with staged(tmp_path) as stage:
        await stage.memory.add(said(talk.both, "m"), "u", session_id="s")
        session = MemorySession(stage.memory, "s", user_id="u")
        assert talk.word in str(await session.get_items())
        for item in await stage.memory.get_all("u"):
            if talk.word in item.memory:
                await stage.memory.delete(item.id)
        assert talk.word not in str(await session.get_items())
        stage.model.says("ok")
        await stage.turn(talk.query.replace(talk.word, "").strip(), "u")
        (asked,) = stage.model.asked
        assert talk.word not in str(asked)


@EACH
def test_a_server_withdraws_or_erases(client: httpx.Client, talk: Talk) -> None:
    """And says which."""
    whose = {"user_id": f"gone_{talk.other}"}

    def found() -> list[str]:
        asked = {"query": talk.query, **whose}
        hits = client.post("/v1/memories/search", json=asked).json()["results"]
        return [hit["memory"] for hit in hits if talk.word in hit["memory"]]

    (message,) = add(client, talk.again, **whose)["message_ids"]
    note = client.get("/v1/memories", params=whose).json()["results"][0]["id"]
    other = client.delete(f"/v1/memories/{note}", params={"user_id": "v", "sources": True})
    assert other.status_code == 404 and found()
    answer = client.delete(f"/v1/memories/{note}", params=whose).json()
    assert answer == {"deleted": 1, "withdrawn": [message], "erased": []}
    assert found() == []
    assert client.post("/v1/memories/extract", json=whose).json()["results"] == []
    page = read(client, whose["user_id"])["items"]
    assert [it.get("withdrawn") for it in page] == [True]
    again = note_of(client, whose["user_id"], talk.again)
    answer = client.delete(f"/v1/memories/{again}", params={**whose, "sources": "true"}).json()
    assert (answer["withdrawn"], len(answer["erased"])) == ([], 1)
    assert found() == []


# Whatever the order

FACTS = (
    "我不吃辣",
    "我喜欢喝咖啡",
    "我住在北京",
    "I like coffee",
    "I live in Berlin",
    "你好 hello",
)
PICKS = st.integers(0, 100)


class Withdrawals(RuleBasedStateMachine):
    """Adds, deletes, corrects, extracts, searches, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kemem-withdrawn-"))
        self.memory = opened(self.directory)
        self.withdrawn: set[str] = set()
        self.erased: set[str] = set()

    def teardown(self) -> None:
        self.memory.close()
        shutil.rmtree(self.directory)

    @rule(texts=st.lists(st.sampled_from(FACTS), min_size=1, max_size=3), infer=st.booleans())
    def add(self, texts: list[str], infer: bool) -> None:
        self.memory.add([{"role": "user", "content": it} for it in texts], "u", infer=infer)

    @precondition(lambda self: self.memory.get_all("u"))
    @rule(pick=PICKS, sources=st.booleans())
    def delete(self, pick: int, sources: bool) -> None:
        notes = sorted(self.memory.get_all("u"), key=lambda item: item.id)
        note = notes[pick % len(notes)]
        deletion = self.memory.delete(note.id, sources=sources)
        assert (deletion.erased if sources else deletion.withdrawn) == tuple(sorted(note.sources))
        self.withdrawn |= {*deletion.withdrawn}
        self.erased |= {*deletion.erased}
        self.withdrawn -= self.erased

    @precondition(lambda self: self.memory.get_all("u"))
    @rule(pick=PICKS, text=st.sampled_from(("另一件事", "something else")))
    def correct(self, pick: int, text: str) -> None:
        notes = sorted(self.memory.get_all("u"), key=lambda item: item.id)
        self.memory.update(notes[pick % len(notes)].id, text)

    @rule()
    def extract(self) -> None:
        """Nothing new is drawn from what is withdrawn."""
        before = {item.id for item in self.memory.get_all("u", limit=1000)}
        self.memory.extract("u")
        for item in self.memory.get_all("u", limit=1000):
            assert item.id in before or self.withdrawn.isdisjoint(item.sources)

    @rule()
    def work(self) -> None:
        self.memory.reindex()

    @invariant()
    def nothing_withdrawn_is_found(self) -> None:
        for query in ("辣 咖啡 北京", "coffee Berlin hello"):
            for find in self.searches():
                assert {hit.id for hit in find(query)}.isdisjoint(self.withdrawn | self.erased)

    def searches(self) -> tuple[Callable[[str], Any], ...]:
        memory = self.memory
        return (
            lambda query: memory.search(query, "u", limit=1000),
            lambda query: memory.search(query, "u", limit=1000, kinds=["message"]),
            lambda query: memory.lexical_search(query, "u").items,
            lambda query: memory.semantic_search(query, "u", top_k=1000),
        )

    @invariant()
    def the_transcript_marks_it(self) -> None:
        page = self.memory.messages("u", page_size=1000)
        assert {it.message_id for it in page.items if it.withdrawn} == self.withdrawn
        assert {it.message_id for it in page.items}.isdisjoint(self.erased)


Withdrawals.TestCase.settings = bounds(max_examples=EXAMPLES, stateful_step_count=20)
TestWithdrawals = Withdrawals.TestCase
