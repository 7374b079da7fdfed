"""What is sensitive is seen by the application, and by handles that were granted a view of it."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, Conflict, InvalidArgument, Memory, NotFound, PermissionDenied
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM

NOW = 1_767_225_600_000_000  # 2026-01-01
ALL = ["message", "user_info", "short_term", "experience", "knowledge"]


@dataclass(frozen=True)
class Talk:
    """What a user says: something plain and something sensitive, with a word of each."""

    plain: str
    plain_word: str
    secret: str
    word: str
    newer: str  # replaces the secret, and is plain


CHINESE = Talk("我喜欢爬山", "爬山", "我住在铜锣湾", "铜锣湾", "我住在上海")
ENGLISH = Talk("I like hiking", "hiking", "I live in Wellington", "Wellington", "I live in Oslo")
TALKS = pytest.mark.parametrize("talk", [CHINESE, ENGLISH], ids=["zh", "en"])
IDS: dict[str, Any] = {"user_id": "u", "session_id": "s"}


def opened(directory: Path, **more: Any) -> Memory:
    settings = load(data_dir=directory, embedder="none", llm="none")
    return Memory(settings=settings, clock=FakeClock(NOW), **more)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path, embedder=HashingEmbedder()) as memory:
        yield memory


def said(content: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "message_id": name, **fields}


def furnish(memory: Memory, talk: Talk, user: str = "u") -> str:
    """Something of each kind; the id of the note that is sensitive."""
    ids = {**IDS, "user_id": user}
    memory.add(said(talk.plain, "m_plain"), **ids)
    (added,) = memory.add(said(talk.secret, "m_secret"), **ids, sensitive=True).results
    memory.add(f"{talk.word} short", **ids, infer=False, memory_type="short", sensitive=True)
    memory.add(f"{talk.plain_word} short", **ids, infer=False, memory_type="short")
    return added.id


# What a handle sees


@TALKS
def test_a_handle_sees_nothing_sensitive_unless_granted(memory: Memory, talk: Talk) -> None:
    """By any way of reading; what is plain it sees."""
    note = furnish(memory, talk)
    for sensitive in (False, True):
        handle = memory.for_user("u", sensitive=sensitive)
        for word, seen in ((talk.word, sensitive), (talk.plain_word, True)):
            found = [
                handle.search(word),
                handle.search(word, kinds=["message"]),
                handle.get_all(),
                handle.get_all(kinds=["message"]),
                handle.messages().items,
                handle.lexical_search(word).items,
                handle.semantic_search(word),
                handle.hybrid_search(word),
                handle.neighbors("m_plain", before=9, after=9),
                [handle.context("s")],
            ]
            assert [word in str(one) for one in found] == [seen] * len(found), word
        edges = [relation.destination for relation in handle.graph()]
        assert (talk.word in edges, talk.plain_word in edges) == (sensitive, True)
    for call in (handle.get, handle.history):
        assert talk.word in str(call(note))


@TALKS
def test_what_is_hidden_is_not_found(memory: Memory, talk: Talk) -> None:
    """As what does not exist: to get, change, delete, or to ask for its past or neighbours."""
    note = furnish(memory, talk)
    handle = memory.for_user("u")
    missing: list[Callable[[], object]] = [
        lambda: handle.get(note),
        lambda: handle.get("m_secret"),
        lambda: handle.history(note),
        lambda: handle.update(note, "changed 改了"),
        lambda: handle.delete(note),
        lambda: handle.delete("m_secret"),
        lambda: handle.neighbors("m_secret"),
    ]
    for hidden in missing:
        with pytest.raises(NotFound):
            hidden()
    assert talk.word in memory.get(note).memory
    assert len(memory.for_user("u", sensitive=True).neighbors("m_secret", before=1)) == 2


METHODS = {
    name
    for name, it in inspect.getmembers(AsyncMemory, inspect.iscoroutinefunction)
    if not name.startswith("_") and name != "close"
}
READING = sorted(METHODS)


@TALKS
def test_no_method_of_a_handle_tells_what_is_sensitive(memory: Memory, talk: Talk) -> None:
    """Every one that there is, asked for it in so many words; each by a user of its own."""
    for name in READING:
        note = furnish(memory, talk, name)
        memory.checkpoint("s", name)
        given: dict[str, Any] = {
            **dict.fromkeys(("query", "query_text"), talk.word[:2]),
            **{"memory_id": note, "message_id": "m_secret", "session_id": "s", "job_id": "j"},
            **{"messages": talk.newer, "content": "changed", "around": talk.word, "kinds": ALL},
            **{"path": "nowhere.json", "level": "user", "id": name, "name": "x", "vote": "up"},
        }
        taken = inspect.signature(getattr(Memory, name)).parameters
        arguments = {one: value for one, value in given.items() if one in taken}
        try:
            answer = getattr(memory.for_user(name), name)(**arguments)
        except (NotFound, PermissionDenied) as refused:
            answer = refused
        assert talk.word not in f"{answer!r} {answer}", name


@TALKS
def test_a_handle_of_a_handle_sees_no_more(memory: Memory, talk: Talk) -> None:
    """Sensitive rows are seen only where every step was granted it, by True and nothing else."""
    note = furnish(memory, talk)
    granted, plain = memory.for_user("u", sensitive=True), memory.for_user("u")
    assert granted.for_user("u", session_id="s", sensitive=True).get(note)
    as_good_as: Any = "yes"
    with pytest.raises(InvalidArgument, match="sensitive must be True or False, not 'yes'"):
        memory.for_user("u", sensitive=as_good_as)
    for handle in (granted.for_user("u"), plain.for_user("u", sensitive=True)):
        with pytest.raises(NotFound):
            handle.get(note)
        with pytest.raises(PermissionDenied):
            handle.run_jobs()
    nobody: Any = None
    with pytest.raises(InvalidArgument, match="user_id"):
        memory.for_user(nobody)


@TALKS
def test_erasing_leaves_nothing_whoever_erases(memory: Memory, talk: Talk) -> None:
    furnish(memory, talk)
    memory.for_user("u").delete_all()
    assert len(memory.get_all("u", kinds=ALL)) == 0
    health = memory.health()
    assert (health.messages, health.notes, health.vectors) == (0, 0, 0)


# What is marked


@TALKS
@pytest.mark.parametrize("infer", [True, False])
def test_messages_are_marked_with_their_notes(memory: Memory, talk: Talk, infer: bool) -> None:
    memory.add(talk.secret, "u", infer=infer, sensitive=True)
    memory.add(talk.plain, "u", infer=infer)
    flags = {item.memory: item.row.sensitive for item in memory.get_all("u", kinds=ALL)}
    assert len(flags) >= 2
    assert all(flag == (talk.word in text) for text, flag in flags.items())
    filtered = memory.get_all("u", filters={"sensitive": True}, kinds=ALL)
    assert {item.kind for item in filtered} == {"message", "user_info"}


@TALKS
@pytest.mark.parametrize("again", ["extract", "job"])
def test_notes_drawn_later_are_as_sensitive_as_their_messages(
    tmp_path: Path, talk: Talk, again: str
) -> None:
    """By a job that waited, and by drawing anew: the task itself says nothing of it."""

    def facts(prompt: Any) -> dict[str, Any]:
        before, _, shown = prompt[-1]["content"].partition("<conversation>")
        assert not (talk.word in shown and talk.plain_word in shown), "read apart"
        assert talk.word in shown or talk.word not in before, "only shown to what is sensitive"
        return {"facts": [{"text": talk.secret if talk.word in shown else talk.plain}]}

    llm = ScriptedLLM([TimeoutError(), TimeoutError(), facts, facts])
    with opened(tmp_path, llm=llm) as memory:
        asked = {**IDS, "prompt": "Where they live, how they are"}  # so that rules read nothing
        memory.add(said(talk.plain, "m_plain"), **asked)
        memory.add(said(talk.secret, "m_secret"), **asked, sensitive=True)
        assert len(memory.get_all("u")) == 0
        if again == "extract":
            memory.extract("u")
        else:
            for job in memory.jobs():
                memory.retry_job(job.job_id)
            memory.run_jobs()
        flags = {talk.word in item.memory: item.row.sensitive for item in memory.get_all("u")}
    assert flags == {False: False, True: True}


@TALKS
def test_a_handle_without_grant_draws_nothing_from_what_it_does_not_see(
    memory: Memory, talk: Talk
) -> None:
    memory.add(talk.secret, "u", sensitive=True)
    memory.delete_all("u", kinds=["user_info"])
    assert memory.for_user("u").extract().results == ()
    assert memory.for_user("u", sensitive=True).extract().results != ()
    assert [item.row.sensitive for item in memory.get_all("u")] == [True]


@TALKS
def test_a_message_told_again_with_another_mark_is_a_conflict(memory: Memory, talk: Talk) -> None:
    """The first one stays; the same once more is no error."""
    memory.add(said(talk.secret, "m"), "u", sensitive=True)
    assert memory.add(said(talk.secret, "m"), "u", sensitive=True).ignored == ("m",)
    with pytest.raises(Conflict):
        memory.add(said(talk.secret, "m"), "u")
    with pytest.raises(NotFound):
        memory.for_user("u").get("m")


# What is known already


@TALKS
@pytest.mark.parametrize("first", [True, False])
def test_what_was_told_as_sensitive_once_stays_so(memory: Memory, talk: Talk, first: bool) -> None:
    """Said again without the mark it is one note, and hidden; said again with it, from then on."""
    for flag in (first, not first):
        memory.add(talk.secret, "u", sensitive=flag)
    (note,) = memory.get_all("u")
    assert note.row.sensitive and len(note.sources) == 2
    handle = memory.for_user("u")
    assert len(handle.get_all()) == 0
    assert handle.graph() == []
    assert len(handle.messages().items) == 1, "what was said plainly"


@TALKS
def test_what_replaces_a_sensitive_note_does_not_quote_it(memory: Memory, talk: Talk) -> None:
    """The new one is seen, the old one and its words are not, in the answer neither."""
    memory.add(talk.secret, "u", sensitive=True)
    handle = memory.for_user("u")
    (outcome,) = handle.add(talk.newer).results
    assert (outcome.event, outcome.previous) == ("UPDATE", None)
    assert [item.id for item in handle.get_all()] == [outcome.id]
    old = memory.get(memory.get(outcome.id).note.supersedes or "").note
    assert (old.sensitive, old.valid_until is not None) == (True, True)
    assert talk.word not in str(handle.history(outcome.id))


@TALKS
def test_a_model_is_shown_sensitive_notes_only_beside_sensitive_messages(
    tmp_path: Path, talk: Talk
) -> None:
    """It might retell them in a note that everyone sees."""
    llm = ScriptedLLM([{"facts": [{"text": talk.secret}]}, {"facts": []}, {"facts": []}])
    with opened(tmp_path, llm=llm) as memory:
        memory.add(talk.secret, "u", sensitive=True)
        memory.add(talk.plain, "u")
        memory.add(talk.plain, "u", sensitive=True)
    asked = [str(call.messages) for call in llm.calls]
    assert [talk.word in text for text in asked] == [True, False, True]


# What is derived


def lines(talk: Talk, count: int) -> list[tuple[str, bool]]:
    """A long conversation in which every third message is sensitive."""
    return [
        (f"{talk.secret if at % 3 == 1 else talk.plain} {at}。" * 4, at % 3 == 1)
        for at in range(count)
    ]


@TALKS
@pytest.mark.parametrize("model", [True, False])
def test_no_state_retells_what_is_sensitive(tmp_path: Path, talk: Talk, model: bool) -> None:
    """By a model or by rules; who may see it sees it verbatim as long as there is room."""

    def summarised(prompt: Any) -> dict[str, str]:
        return {"summary": prompt[-1]["content"][:200]}

    llm = ScriptedLLM([summarised], repeat=True) if model else None
    settings = load(data_dir=tmp_path, embedder="none", llm="none", state_tokens=200)
    with Memory(settings=settings, clock=FakeClock(NOW), llm=llm) as memory:
        for text, sensitive in lines(talk, 48):
            memory.add(text, **IDS, infer=False, sensitive=sensitive)
        state = memory.summarize("s", "u")
        assert state and len(state.layers) > 1
        told = " ".join(layer.text for layer in state.layers)
        assert talk.plain_word in told and talk.word not in told
        hidden = memory.for_user("u").context("s", max_tokens=400)
        assert talk.plain_word in hidden.text and talk.word not in str(asdict(hidden))
        assert talk.word in memory.for_user("u", sensitive=True).context("s").text


@pytest.mark.parametrize("model", [True, False])
@pytest.mark.parametrize(
    ("texts", "rest", "secret"),
    [
        (
            ["请帮我查一下体检报告", "我的血糖偏高", "记住下次要少吃糖"],
            ["报告找到了，问题解决了", "谢谢你", "不客气"],
            ("血糖", "少吃糖"),
        ),
        (
            ["Please help me with my report", "My pay is 5000", "Remember to ask for a raise"],
            ["In the end it worked", "That is all for now", "Bye"],
            ("5000", "raise"),
        ),
    ],
)
def test_no_experience_retells_what_is_sensitive(
    tmp_path: Path, model: bool, texts: list[str], rest: list[str], secret: tuple[str, ...]
) -> None:
    """It is drawn from the rest, and everyone may see it."""

    def lesson(prompt: Any) -> dict[str, Any]:
        return {"experience": prompt[-1]["content"], "keywords": []}

    llm = ScriptedLLM([lesson]) if model else None
    with opened(tmp_path, llm=llm) as memory:
        for at, text in enumerate(texts + rest):
            memory.add(said(text, f"m{at}"), **IDS, infer=False, sensitive=at in (1, 2))
        memory.add(texts[1], **IDS, infer=False, memory_type="short", sensitive=True)
        (outcome,) = memory.end_session("s", "u").results
        seen = memory.for_user("u").get(outcome.id)
    assert not seen.note.sensitive
    assert texts[0][:4] in seen.memory and not any(word in seen.memory for word in secret)
    assert not {"m1", "m2"} & set(seen.sources)


@TALKS
def test_a_checkpoint_keeps_what_its_reader_does_not_see(memory: Memory, talk: Talk) -> None:
    """A handle without a grant saves and restores all of it, and is shown the plain notes."""
    furnish(memory, talk)
    handle = memory.for_user("u")
    for state in (handle.checkpoint("s"), handle.restore_checkpoint("s")):
        assert [note.content for note in state.notes] == [f"{talk.plain_word} short"]
    assert len(memory.restore_checkpoint("s", user_id="u").notes) == 2
    kept = memory.get_all("u", kinds=["short_term"])
    assert {(talk.word in item.memory, item.row.sensitive) for item in kept} == {
        (True, True),
        (False, False),
    }


# Generations


@TALKS
def test_a_generation_lasts_until_something_changes(memory: Memory, talk: Talk) -> None:
    """Each change of the user's memories, or of what all users of the agent share, ends it."""

    def first() -> str:
        return memory.get_all("u")[0].id

    marks = [memory.generation("u")]
    for change in (
        lambda: memory.ingest(talk.plain, "u"),
        lambda: memory.add(talk.secret, "u", sensitive=True),
        lambda: memory.add(talk.newer, "u"),
        lambda: memory.update(first(), metadata={"k": 1}, user_id="u"),
        lambda: memory.update(first(), "other words 改了", user_id="u"),
        lambda: memory.add(talk.plain, agent_id="default", infer=False),
        lambda: memory.delete(first(), user_id="u"),
        lambda: memory.delete_all("u"),
        lambda: memory.ingest(talk.plain, "u"),
    ):
        change()
        marks.append(memory.generation("u"))
        memory.search(talk.word, "u")
        memory.ingest(talk.plain, "v")
        assert memory.generation("u") == marks[-1], "neither reading nor others are changes"
    assert len(set(marks)) == len(marks)
    assert memory.for_user("u").generation() == marks[-1]
    with pytest.raises(NotFound):
        memory.for_user("u").generation("v")
    with pytest.raises(InvalidArgument):
        memory.generation()
