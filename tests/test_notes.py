"""Notes by their ids: read, changed, deleted for good; and nobody reaches another's."""

import asyncio
import inspect
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from kemem import (
    AsyncMemory,
    InvalidArgument,
    KeMemError,
    Memory,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from kemem.records import Matrix
from kemem.records.times import to_rfc3339
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def opened(directory: Path, **more: Any) -> Memory:
    settings = load(data_dir=directory, embedder="none", llm="none")
    return Memory(settings=settings, clock=more.pop("clock", FakeClock(NOW)), **more)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory by words and rules."""
    with opened(tmp_path) as memory:
        yield memory


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """One memory with a single note, for calls that are refused."""
    with opened(tmp_path_factory.mktemp("shared")) as memory:
        kept(memory, "火锅")
        yield memory


@pytest.fixture
def either(either_settings: Settings) -> Iterator[Memory]:
    """The same on both databases."""
    with Memory(settings=either_settings, clock=FakeClock(NOW)) as memory:
        yield memory


def said(content: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "message_id": name, **fields}


def kept(memory: Memory, text: str, user: str = "u", **more: Any) -> str:
    """The id of a note of these words."""
    (added,) = memory.add(text, user, infer=False, **more).results
    return added.id


# One note


@pytest.mark.parametrize("text, other", [("我不吃辣", "花生过敏"), ("I love tea", "I hate tea")])
def test_an_update_changes_the_words_everywhere(either: Memory, text: str, other: str) -> None:
    """Got, listed, found by the new words alone; the history keeps what it said."""
    note = kept(either, text, metadata={"k": 1})
    changed = either.update(note, other)
    assert (changed.id, changed.memory) == (note, other)
    assert either.get(note).memory == other and either.get(note).metadata["k"] == 1
    assert [it.memory for it in either.get_all("u")] == [other]
    words = {"我不吃辣": ("花生", "吃辣")}.get(text, ("hate", "love"))
    for asked, ids in zip(words, ([note], []), strict=True):
        assert [it.id for it in either.search(asked, "u", kinds=["user_info"])] == ids
    lines = either.history(note)
    assert [(it.event, it.before, it.after) for it in lines] == [
        ("update", text, other),
        ("add", None, text),
    ]


def test_metadata_can_be_changed_alone(memory: Memory) -> None:
    note = kept(memory, "我不吃辣", metadata={"k": 1})
    assert memory.update(note, metadata={"标签": ["a"]}).metadata == {"标签": ["a"]}
    assert memory.get(note).memory == "我不吃辣"
    assert [it.id for it in memory.get_all("u", filters={"标签": "a"})] == [note]


@pytest.mark.parametrize("wrong", ["", "  ", 3, b"x", "a\ud800"])
def test_a_note_is_never_made_empty(memory: Memory, wrong: Any) -> None:
    note = kept(memory, "我不吃辣")
    with pytest.raises(InvalidArgument, match="content"):
        memory.update(note, wrong)
    with pytest.raises(InvalidArgument, match="metadata"):
        memory.update(note, metadata={"x": {1}})
    assert memory.get(note).memory == "我不吃辣"


def test_a_message_never_changes(memory: Memory) -> None:
    memory.add(said("我不吃辣", "m"), "u")
    with pytest.raises(InvalidArgument, match="never change"):
        memory.update("m", "I eat spice", user_id="u")


def test_a_changed_fact_loses_the_relations_that_it_no_longer_supports(memory: Memory) -> None:
    (home,) = memory.add("我住在北京", "u").results
    memory.update(home.id, "用户住在上海")
    assert [it.destination for it in memory.graph("u")] == []


@each("wrong", ["n_none", "*", "%", "好"])
@each("name", ["get", "update", "delete", "history"])
def test_an_unknown_id_is_not_found(shared: Memory, name: str, wrong: str) -> None:
    with pytest.raises(NotFound):
        getattr(shared, name)(wrong)
    with pytest.raises(NotFound):
        getattr(shared, name)(wrong, user_id="u")
    assert len(shared.get_all("u")) == 1


@each("wrong", ["", None, 3, "a" * 256, " a", "\0", b"x", ["x"]])
@each("name", ["get", "update", "delete", "history"])
def test_what_is_no_id_is_refused(shared: Memory, name: str, wrong: Any) -> None:
    for more in ({}, {"user_id": "u"}):
        with pytest.raises(InvalidArgument, match="memory_id"):
            getattr(shared, name)(wrong, **more)


@pytest.mark.parametrize("text", ["我不吃辣", "I love tea"])
def test_what_is_deleted_is_gone_at_once(either: Memory, text: str) -> None:
    """Also for whoever searched for it before; to delete it twice is not found, stated."""
    note = kept(either, text)
    assert len(either.search(text, "u", kinds=["user_info"])) == 1
    either.delete(note)
    assert len(either.search(text, "u", kinds=["user_info"])) == len(either.get_all("u")) == 0
    for call in (either.get, either.delete, either.update):
        with pytest.raises(NotFound):
            call(note)
    (line,) = either.history(note, user_id="u")
    assert (line.event, line.before, line.after, line.reason) == ("delete", None, None, "deleted")
    assert [it.note_id for it in either.forgotten("u")] == [note]


def test_the_history_of_a_deleted_note_needs_its_owner(memory: Memory) -> None:
    """As long as it was there its id was enough; afterwards nobody knows whose it was."""
    note = kept(memory, "我不吃辣")
    assert [it.event for it in memory.history(note)] == ["add"]
    memory.delete(note)
    with pytest.raises(NotFound):
        memory.history(note)
    either: list[dict[str, Any]] = [{"user_id": "u"}, {"agent_id": "default"}]
    for ids in either:
        assert [it.event for it in memory.history(note, **ids)] == ["delete"]


def test_with_a_message_goes_what_was_drawn_from_it_alone(memory: Memory) -> None:
    """A fact that another message says too stays, with that one as its source; so does its edge."""
    memory.add([said("我不吃辣", "a"), said("我喜欢茶", "b")], "u")
    memory.add(said("我不吃辣", "c"), "u")
    memory.delete("b", user_id="u")
    memory.delete("a", user_id="u")
    (left,) = memory.get_all("u")
    assert (left.memory, left.sources) == ("用户不吃辣", ("c",))
    assert [it.destination for it in memory.graph("u")] == ["辣"]
    memory.delete("c", user_id="u")
    assert len(memory.get_all("u")) == 0 and memory.graph("u") == []


@pytest.mark.parametrize("other", [True, False])
def test_deleting_is_of_one_user_where_ids_are_equal(memory: Memory, other: bool) -> None:
    """Two users may call a message the same."""
    for user in ("u", "v"):
        memory.add(said("我不吃辣", "m"), user)
    memory.delete("m", user_id="v" if other else "u")
    left = "u" if other else "v"
    assert [it.memory for it in memory.get_all(left)] == ["用户不吃辣"]
    assert memory.get("m", user_id=left).memory == "我不吃辣"


class Gated(HashingEmbedder):
    """An embedder that waits before a certain text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Any, *, purpose: Any) -> Matrix:
        if self.text in texts:
            self.asked.set()
            await self.go.wait()
        return await super().embed(texts, purpose=purpose)


async def test_an_update_does_not_bring_back_what_is_deleted_meanwhile(tmp_path: Path) -> None:
    embedder = Gated("I hate tea")
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings, embedder=embedder) as memory:
        (note,) = (await memory.add("I love tea", "u", infer=False)).results
        late = asyncio.create_task(memory.update(note.id, "I hate tea"))
        await asyncio.wait_for(embedder.asked.wait(), 10)
        await memory.delete(note.id)
        embedder.go.set()
        with pytest.raises(NotFound):
            await asyncio.wait_for(late, 10)
        assert len(await memory.get_all("u")) == 0


# Many


def test_delete_all_takes_everything_of_a_user_and_nothing_of_others(memory: Memory) -> None:
    """More rows than any limit; the user can begin anew."""
    for start in (0, 5_000):
        memory.ingest([said(f"第{start + n}句") for n in range(5_000)], "u")
    memory.add([said(f"我不吃辣 {n}") for n in range(150)], "u", infer=False)
    for other in ("u2", "U", "u_", "%", "*"):
        memory.add("我不吃辣", other)
    assert memory.delete_all("u") == 10_300
    assert len(memory.get_all("u", kinds=["message", "user_info"])) == 0
    assert len(memory.search("句", "u")) == 0 and memory.jobs() == []
    with pytest.raises(NotFound):
        memory.context("default", "u")
    assert (memory.health().messages, memory.health().notes) == (5, 5)
    assert memory.delete_all("u") == 0
    memory.add("我不吃辣", "u")
    assert len(memory.get_all("u")) == 1


@pytest.mark.parametrize("wild", ["*", "%", "_", "?"])
def test_no_id_is_a_pattern(memory: Memory, wild: str) -> None:
    note = kept(memory, "我不吃辣", "user", agent_id="agent", session_id="session")
    for name in ("user_id", "agent_id", "session_id"):
        ids: dict[str, Any] = {name: wild}
        assert memory.delete_all(**ids) == 0
        assert len(memory.get_all(**ids)) == len(memory.search("辣", **ids)) == 0
    assert memory.get(note).memory == "我不吃辣"


def test_delete_all_of_some_kinds_leaves_the_others(memory: Memory) -> None:
    memory.add("我不吃辣", "u")
    assert memory.delete_all("u", kinds=["user_info"]) == 1
    assert len(memory.get_all("u", kinds=["message"])) == 1
    assert memory.delete_all("u", kinds=["message"]) == 1
    with pytest.raises(InvalidArgument, match="kinds"):
        memory.delete_all("u", kinds=["everything"])
    with pytest.raises(InvalidArgument, match="kinds"):
        memory.delete_all("u", kinds=[])


# Filters


FILTERS: dict[str, tuple[dict[str, Any], set[int]]] = {
    "equal": ({"n": 3}, {3}),
    "one of": ({"n": [1, 2]}, {1, 2}),
    "range": ({"n": {"gte": 2, "lt": 4}}, {2, 3}),
    "or": ({"OR": [{"n": 1}, {"标签": "茶"}]}, {1, 4}),
    "not": ({"NOT": {"n": {"gt": 0}}}, {0}),
    "metadata": ({"metadata.标签": "茶"}, {4}),
    "session": ({"session_id": "s1"}, {1, 3}),
    "run": ({"run_id": "s1"}, {1, 3}),
    "session among": ({"session_id": {"in": ["s1"]}}, {1, 3}),
    "contains": ({"content": {"contains": "2"}}, {2}),
    "nothing": ({"n": "3"}, set()),
    "a quote": ({"n'; DROP TABLE note; --": 1}, set()),
}


def filled(memory: Memory) -> Memory:
    for user in ("u", "v"):
        for n in range(5):
            metadata: dict[str, Any] = {"n": n, **({"标签": ["茶"]} if n == 4 else {})}
            kept(memory, f"火锅 hotpot {n}", user, metadata=metadata, session_id=f"s{n % 2}")
    return memory


def test_filters_mean_the_same_in_every_read(either: Memory) -> None:
    """Listing and searching, with the user beside them or among them."""
    filled(either)
    for name, (filters, wanted) in FILTERS.items():
        within = {"user_id": "u", **filters}
        for found in (
            either.get_all("u", filters=filters),
            either.get_all(filters=within),
            either.search("火锅", "u", filters=filters, kinds=["user_info"]),
            either.search("火锅", filters=within, kinds=["user_info"]),
        ):
            assert {it.metadata["n"] for it in found} == wanted, name


@pytest.mark.parametrize("name", FILTERS)
def test_filters_mean_the_same_when_deleting(memory: Memory, name: str) -> None:
    filters, wanted = FILTERS[name]
    filled(memory)
    rows = 2 if name in ("session", "run") else 1  # an id means messages too, wherever it stands
    assert memory.delete_all("u", filters=filters) == rows * len(wanted)
    assert {it.metadata["n"] for it in memory.get_all("u")} == set(range(5)) - wanted
    assert len(memory.get_all("v")) == 5


@each(
    "filters",
    [
        *("text", 3, ["n"], {"n": {}}, {"n": {"$gt": 1}}, {"n": {"regex": ".*"}}, {"": 1}),
        *({"OR": []}, {"OR": {"n": 1}}, {"n": {1, 2}}, {"n": float("nan")}, {3: 1}),
        *({"user_id": 5}, {"user_id": ""}, {"created_at": {"gt": "昨天"}}),
        json.loads('{"NOT":' * 40 + '{"n": 1}' + "}" * 40),
    ],
)
@each("name", ["get_all", "search", "delete_all"])
def test_filters_that_are_none_are_refused(shared: Memory, name: str, filters: Any) -> None:
    asked = ("火锅",) if name == "search" else ()
    with pytest.raises(InvalidArgument):
        getattr(shared, name)(*asked, user_id="u", filters=filters)
    assert len(shared.get_all("u")) == 1


@each(
    "filters",
    [
        {},
        {"n": 1},
        {"OR": [{"user_id": "u"}, {"user_id": "v"}]},
        {"NOT": {"user_id": "x"}},
        {"user_id": {"ne": "x"}},
        {"user_id": ["u", "v"]},
        {"user_id": {"contains": ""}},
    ],
)
def test_no_filter_replaces_an_id(shared: Memory, filters: dict[str, Any]) -> None:
    """Without user, agent or session only the default user is read, and nothing is deleted."""
    assert list(shared.get_all(filters=filters)) == []
    assert list(shared.search("火锅", filters=filters)) == []
    with pytest.raises(InvalidArgument, match="user_id"):
        shared.delete_all(filters=filters)
    assert len(shared.get_all("u")) == 1


# Numbers and questions


@each("wrong", [0, -1, 1_001, 10**9, "x", True, 1.5, None, float("nan")])
def test_a_limit_that_is_none_is_refused(shared: Memory, wrong: Any) -> None:
    calls: tuple[Callable[[], Any], ...] = (
        lambda: shared.search("火锅", "u", limit=wrong),
        lambda: shared.get_all("u", limit=wrong),
        lambda: shared.forgotten("u", limit=wrong),
        lambda: shared.jobs(wrong),
        lambda: shared.users(limit=wrong),
        lambda: shared.history("n_x", limit=wrong),
        lambda: shared.hybrid_search("火锅", "u", limit=wrong),
        lambda: shared.graph("u", limit=wrong),
        lambda: shared.sessions("u", limit=wrong),
        lambda: shared.notes("u", limit=wrong),
    )
    if wrong is not None:
        calls += (lambda: shared.search("火锅", "u", top_k=wrong),)
        calls += (lambda: shared.get_all("u", top_k=wrong),)
    for call in calls:
        with pytest.raises(InvalidArgument, match=f"limit must be 1-1000, not {wrong!r}"):
            call()


def test_a_limit_is_at_most_a_thousand(memory: Memory) -> None:
    """More is refused with the number and the bounds, not cut in silence."""
    memory.add([said(f"火锅 {n}") for n in range(1_100)], "u", infer=False)
    assert len(memory.get_all("u", limit=1_000)) == 1_000
    assert len(memory.search("火锅", "u", limit=1_000, kinds=["user_info"])) == 1_000
    assert len(memory.search("火锅", "u", top_k=7)) == len(memory.get_all("u", top_k=7)) == 7
    seen: list[str] = []
    cursor = None
    while True:
        page = memory.get_all("u", limit=300, cursor=cursor)
        seen += [it.id for it in page]
        if (cursor := page.next_cursor) is None:
            break
    assert len(seen) == len(set(seen)) == 1_100


@each("wrong", [float("nan"), 2, -1, "0.5", True, float("inf")])
def test_a_threshold_that_is_none_is_refused(shared: Memory, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="threshold"):
        shared.search("火锅", "u", threshold=wrong)


QUESTIONS = {
    "marks": "？！…，。",
    "fts": '"unclosed AND OR NOT NEAR( * ^ : - col:x {a} "',
    "parentheses": "(" * 5_000 + "火锅" + ")" * 5_000,
    "a megabyte": "火锅 hotpot " * 70_000,
    "one long word": "a" * 1_000_000,
    "nul": "火锅\0hotpot",
    "emoji": "👨‍👩‍👧",
    "sql": "'; DROP TABLE note; --",
}


@each("name", QUESTIONS)
def test_any_question_is_answered_soon(shared: Memory, name: str) -> None:
    began = time.monotonic()
    try:
        found = shared.search(QUESTIONS[name], "u")
        assert all(0 <= hit.score <= 1 for hit in found)
    except InvalidArgument as refused:
        assert "10000 characters" in refused.message and len(refused.message) < 200
    assert time.monotonic() - began < 4, "2 s on a machine that is not busy"
    assert len(shared.get_all("u")) == 1


@each("wrong", ["", "  ", None, 3, b"x", ["x"]])
def test_a_question_that_is_none_is_refused(shared: Memory, wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        shared.search(wrong, "u")


# Handles

METHODS = {
    name
    for name, it in inspect.getmembers(AsyncMemory, callable)
    if not name.startswith("_") and name not in ("process", "close", "for_agent", "for_user")
}
IDS = st.sampled_from([None, None, "mine", "other", "shared", "*", "%", "default"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "user_id": IDS,
    "agent_id": IDS,
    "session_id": IDS,
    "run_id": IDS,
    "filters": st.sampled_from(
        [
            None,
            {"user_id": "other"},
            {"run_id": "other"},
            {"OR": [{"user_id": "other"}, {"user_id": "mine"}]},
            {"NOT": {"user_id": "mine"}},
            {"user_id": {"ne": "mine"}},
            {"user_id": ["mine", "other"]},
            {"agent_id": "other"},
            {"AND": [{"user_id": "other"}]},
        ]
    ),
    "level": st.sampled_from(["agent", "user", "session"]),
    "id": st.sampled_from(["mine", "other", "default"]),
    "name": st.just("改了 changed"),
    "disabled": st.sampled_from([None, True]),
    "query": st.just("秘密 secret"),
    "vote": st.sampled_from(["up", "down"]),
    "query_text": st.just("秘密 secret"),
    "question": st.just("秘密 secret"),
    "path": st.just("秘密.json"),
    "query_embedding": st.just(None),
    "messages": st.sampled_from(
        ["新的 new", [{"content": "新的 new", "agent_id": "other", "session_id": "other"}]]
    ),
    "content": st.just("秘密被改了 changed secret"),
    "around": st.sampled_from([None, "陈秘密", "北京"]),
    "kinds": st.sampled_from([None, ["message"], ["user_info", "message"]]),
    "keywords": st.sampled_from([None, ["秘密"], ["secret", "other"]]),
    "mode": st.sampled_from(["hybrid", "lexical", "semantic"]),
    "infer": st.booleans(),
}


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Memory, list[str]]]:
    """Two users with something of each kind, and the ids of all that the other one has."""
    with opened(tmp_path_factory.mktemp("rooms"), embedder=HashingEmbedder()) as memory:
        for name in ("mine", "other"):
            ids: dict[str, Any] = {"user_id": name, "agent_id": name, "session_id": name}
            memory.add(said(f"我叫陈秘密，我住在北京 {name} secret", f"m_{name}"), **ids)
            memory.add("秘密 secret short", **ids, infer=False, memory_type="short")
            memory.checkpoint(**ids)
        theirs = memory.get_all("other", kinds=["user_info", "short_term", "message"])
        yield memory, [it.id for it in theirs]


def belongings(memory: Memory) -> Any:
    rows = memory.get_all("other", kinds=["user_info", "short_term", "message"], limit=1000)
    graph = [(it.source, it.destination) for it in memory.graph("other")]
    return [it.row for it in rows], graph, memory.sessions("other").items


def test_a_handle_is_tried_with_every_method() -> None:
    """A new method has to be thought about, and its arguments named above."""
    assert len(METHODS) >= 28
    for name in METHODS:
        for parameter in list(inspect.signature(getattr(Memory, name)).parameters.values())[1:]:
            known = parameter.name in VALUES or parameter.name in ("memory_id", "message_id")
            assert known or parameter.default is not inspect.Parameter.empty or name == "retry_job"


@bounds(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pick=st.data())
def test_a_handle_reaches_nobody_elses_data_by_any_argument(
    rooms: tuple[Memory, list[str]], pick: st.DataObject
) -> None:
    """Whatever is called with whatever ids: the other one's rows are neither seen nor changed."""
    memory, theirs = rooms
    before = belongings(memory)
    bound: dict[str, Any] = pick.draw(
        st.sampled_from([{}, {"agent_id": "mine"}, {"session_id": "mine"}])
    )
    handle = memory.for_user("mine", **bound)
    name = pick.draw(st.sampled_from(sorted(METHODS)))
    arguments: dict[str, Any] = {}
    for parameter in list(inspect.signature(getattr(Memory, name)).parameters.values())[1:]:
        if parameter.name in ("memory_id", "message_id", "checkpoint_id", "job_id"):
            arguments[parameter.name] = pick.draw(st.sampled_from(theirs))
        elif parameter.name in VALUES and (
            parameter.default is inspect.Parameter.empty or pick.draw(st.booleans())
        ):
            arguments[parameter.name] = pick.draw(VALUES[parameter.name])
    try:
        answer = getattr(handle, name)(**arguments)
    except (NotFound, InvalidArgument, PermissionDenied) as refused:
        answer = refused
    shown = f"{answer!r} {answer}"
    assert not any(it in shown for it in theirs if it not in arguments.values())
    assert "other secret" not in shown
    assert belongings(memory) == before


def test_a_handle_of_a_handle_is_never_wider(memory: Memory) -> None:
    handle = memory.for_user("u", agent_id="a")
    widers: list[dict[str, Any]] = [{"user_id": "v"}, {"user_id": "u", "agent_id": "b"}]
    for wider in widers:
        with pytest.raises(NotFound):
            handle.for_user(**wider)
    narrower = handle.for_user("u", session_id="s")
    narrower.add("我不吃辣", infer=False)
    (note,) = memory.get_all("u")
    assert (note.row.agent_id, note.row.session_id) == ("a", "s")


@pytest.mark.parametrize("name", ["agent_id", "session_id"])
def test_a_handle_cannot_write_beside_what_it_is_bound_to(memory: Memory, name: str) -> None:
    """Messages may name an agent or session; one that is not the handle's is refused."""
    bound: dict[str, Any] = {name: "mine"}
    handle = memory.for_user("u", **bound)
    for call in (handle.add, handle.ingest):
        with pytest.raises(KeMemError):
            call([said("我不吃辣", **{name: "other"})])
        call([said("我不吃辣", **{name: "mine"})])
    rows = memory.get_all("u", kinds=["message"])
    assert len(rows) == 2 and {getattr(it.row, name) for it in rows} == {"mine"}


def test_a_hook_cannot_lead_a_handle_out(memory: Memory) -> None:
    """What a registered function returns is bound in the same way; the message is kept."""

    def elsewhere(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**it, "agent_id": "other"} for it in messages]

    memory.process(elsewhere)
    memory.for_user("u", agent_id="mine").add("我不吃辣", infer=False)
    assert {it.row.agent_id for it in memory.get_all("u", kinds=["message"])} == {"mine"}


def test_a_handle_of_a_session_sees_no_history_of_others(memory: Memory) -> None:
    note = kept(memory, "我不吃辣", session_id="s")
    handle = memory.for_user("u", session_id="t")
    for call in (handle.get, handle.delete, handle.history):
        with pytest.raises(NotFound):
            call(note)


OPERATING = ("agents", "users", "jobs", "run_jobs", "reindex")


@each("name", OPERATING)
def test_a_handle_does_no_operators_work(shared: Memory, name: str) -> None:
    with pytest.raises(PermissionDenied):
        getattr(shared.for_user("u"), name)()
    with pytest.raises(PermissionDenied):
        shared.for_user("u").process(lambda it: it, name="x")
    with pytest.raises(PermissionDenied):
        shared.for_user("u").retry_job("j_x")


# Erased for good

SECRET = "swordfish海德拉巴"
TRACES = [SECRET, "swordfish", "海德拉巴", "德拉"]


def traces(directory: Path) -> list[str]:
    """Where a secret is still written in a data directory, in any spelling that we use."""
    everything = b"".join(path.read_bytes() for path in directory.iterdir())
    spellings = {
        f"{text} in {name}": written
        for text in TRACES
        for name, written in {
            "UTF-8": text.encode(),
            "UTF-16": text.encode("utf-16-le"),
            "JSON": json.dumps(text).strip('"').encode(),
        }.items()
    }
    return [name for name, written in spellings.items() if written in everything]


def by_note(memory: Memory) -> None:
    for it in memory.get_all("u", kinds=["user_info", "short_term", "experience"]):
        memory.delete(it.id)
    memory.delete_all("u", kinds=["message"])


def by_message(memory: Memory) -> None:
    for it in memory.get_all("u", kinds=["message"]):
        memory.delete(it.id, user_id="u")


def by_filter(memory: Memory) -> None:
    memory.delete_all("u", filters={"agent_id": "default"}, kinds=["message", "user_info"])
    memory.delete_all("u", kinds=["short_term", "user_info", "message"])


ERASURES: dict[str, Callable[[Memory], object]] = {
    "each note": by_note,
    "each message": by_message,
    "filters": by_filter,
    "user": lambda memory: memory.delete_all("u"),
    "session": lambda memory: memory.delete_all("u", session_id="s"),
    "agent": lambda memory: memory.delete_all(agent_id="default"),
    "handle": lambda memory: memory.for_user("u").delete_all(),
}


@pytest.mark.parametrize("how", ERASURES)
def test_erased_words_leave_the_files(tmp_path: Path, how: str) -> None:
    """Of messages, notes, their histories, entities, keywords, checkpoints, States and jobs."""
    relation = {"source": SECRET, "relationship": "is", "destination": f"{SECRET}市"}
    facts = [{"text": f"{SECRET} fact", "keywords": [SECRET], "relations": [relation]}]
    entities = [{"name": SECRET, "type": "place"}, {"name": f"{SECRET}市", "type": "place"}]
    llm = ScriptedLLM([{"facts": facts, "entities": entities}, OSError(), OSError(), OSError()])
    with opened(tmp_path, llm=llm, embedder=HashingEmbedder()) as memory:
        ids: dict[str, Any] = {"user_id": "u", "session_id": "s"}
        (fact,) = memory.add(f"我在{SECRET}", **ids, metadata={"k": SECRET}).results
        memory.update(fact.id, f"{SECRET} again")
        memory.add(f"{SECRET} now", **ids, infer=False, memory_type="short")
        memory.checkpoint(**ids)
        for n in range(8):
            memory.add(f"{SECRET} {n} " + "talk " * 300, **ids, infer=False)
        if "each" not in how and how != "filters":
            memory.add("later", **ids, metadata={"k": SECRET}, prompt=SECRET)
            assert len(memory.jobs()) == 1
        memory.summarize(**ids)
        memory.search(SECRET, "u")
        memory.add("保留 keep", "v", "another", infer=False)
        assert traces(tmp_path), "the test itself must be able to see it"
        ERASURES[how](memory)
    assert traces(tmp_path) == []
    assert "保留".encode() in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_the_job_of_an_erased_message_goes_with_it(tmp_path: Path) -> None:
    """It keeps the metadata and the prompt of its call; there is nothing left to draw from."""
    with opened(tmp_path, llm=ScriptedLLM([OSError()])) as memory:
        memory.add(said("later", "m"), "u", metadata={"k": SECRET}, prompt=SECRET)
        assert len(memory.jobs()) == 1
        memory.delete("m", user_id="u")
        assert memory.jobs() == []
    assert traces(tmp_path) == []


@pytest.mark.parametrize("what", ["note", "message"])
def test_a_note_that_stays_does_not_quote_the_one_that_was_erased(
    tmp_path: Path, what: str
) -> None:
    """The address that was replaced is kept; the one that replaced it is erased."""
    clock = FakeClock(NOW)
    with opened(tmp_path, clock=clock) as memory:
        (old,) = memory.add("我住在北京", "u").results
        clock.advance(seconds=60)
        added = memory.add(said("我搬到海德拉巴了", "m"), "u")
        if what == "note":
            memory.delete(added.results[0].id)
        memory.delete("m", user_id="u")
        assert "海德拉巴" not in str(memory.history(old.id))
    assert traces(tmp_path) == []


def test_an_experience_does_not_quote_a_message_that_was_erased(tmp_path: Path) -> None:
    """What was drawn from several messages is erased, or told without the one that is gone."""
    texts = (
        *("请帮我安装 torch，仓库在 swordfish 海德拉巴", "可以试试换一个镜像"),
        *("我试了阿里云镜像，还是失败", "那改用清华镜像", "改用清华镜像之后成功了"),
    )
    told = [
        {"role": "assistant" if n % 2 else "user", "content": it, "message_id": f"m{n}"}
        for n, it in enumerate(texts)
    ]
    with opened(tmp_path) as memory:
        memory.add(told, "u", session_id="s")
        memory.end_session("s", "u")
        assert "swordfish" in memory.get_all("u", kinds=["experience"])[0].memory
        memory.delete("m0", user_id="u")
        assert len(memory.search("swordfish", "u")) == 0
    assert traces(tmp_path) == []


# Closed, and without an embedder


def test_a_memory_that_is_closed_says_so(tmp_path: Path) -> None:
    """Every call, on a handle too; to close it again is no error."""
    memory = opened(tmp_path)
    note = kept(memory, "我不吃辣")
    handle = memory.for_user("u")
    handle.close()
    assert memory.get(note).memory == "我不吃辣", "a handle closes nothing"
    memory.close()
    memory.close()
    for call in (
        *(lambda: memory.get(note), lambda: memory.add("I love tea", "u")),
        *(lambda: handle.search("辣"), lambda: memory.delete_all("u"), memory.health),
    ):
        with pytest.raises(Unavailable, match="closed"):
            call()
    with opened(tmp_path) as again:
        assert again.get(note).memory == "我不吃辣"


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add("我不吃辣", "u")
    yield memory


async def test_an_async_memory_that_is_closed_says_so(closed: AsyncMemory) -> None:
    await closed.close()
    for call in (
        closed.add("我不吃辣", "u"),
        closed.get_all("u"),
        closed.for_user("u").search("辣"),
    ):
        with pytest.raises(Unavailable, match="closed"):
            await call


class Broken(HashingEmbedder):
    """An embedder that works for writing, and then no more."""

    broken = False

    async def embed(self, texts: Any, *, purpose: Any) -> Matrix:
        if self.broken:
            raise ConnectionError("down")
        return await super().embed(texts, purpose=purpose)


@pytest.mark.parametrize("text, asked", [("我不吃辣", "不吃辣"), ("I love tea", "tea")])
def test_without_the_embedder_words_answer_and_say_so(
    tmp_path: Path, text: str, asked: str
) -> None:
    """Nothing is lost: what is added meanwhile gets its vectors later."""
    embedder, clock = Broken(), FakeClock(NOW)
    with opened(tmp_path, embedder=embedder, clock=clock) as memory:
        memory.add(text, "u")
        assert memory.search(asked, "u").missing == ()
        embedder.broken = True
        found = memory.search(asked, "u", explain=True)
        assert found.missing == ("semantic",) and len(found) > 0
        assert found.to_dict()["missing"] == ["semantic"]
        assert "semantic: unavailable" in found[0].why
        added = memory.add(f"{text} 2", "u", infer=False)
        assert added.pending and len(added.results) == 1
        changed = memory.update(added.results[0].id, f"{text} 3")
        assert memory.search("3", "u", kinds=["user_info"])[0].id == changed.id
        embedder.broken = False
        clock.advance(seconds=7200)
        memory.run_jobs()
        health = memory.health()
        assert health.vectors == health.messages + health.notes and memory.jobs() == []


@pytest.mark.parametrize("text", ["会议室暂借到五点", "the room is ours until five"])
def test_a_note_that_expired_is_not_found_by_its_key(tmp_path: Path, text: str) -> None:
    """Also before a job has erased it."""
    clock = FakeClock(NOW)
    with opened(tmp_path, clock=clock) as memory:
        soon = to_rfc3339(NOW + 60_000_000)
        (note,) = memory.add(text, user_id="u", infer=False, expires_at=soon).results
        assert memory.get(note.id).memory == text
        clock.advance(seconds=60)
        with pytest.raises(NotFound):
            memory.get(note.id)


@pytest.mark.parametrize(
    ("text", "word", "question", "note"),
    [
        (
            "I drink oolong tea every morning. The kettle hums.",
            *("hums", "drink oolong tea", "User drinks oolong tea every morning"),
        ),
        ("我喜欢爬山。真不错。", "不错", "喜欢爬山", "用户喜欢爬山"),
    ],
)
def test_a_note_stands_for_its_message_only_where_it_answers(
    memory: Memory, text: str, word: str, question: str, note: str
) -> None:
    """What it leaves out is found in the message."""
    memory.add(text, "u")
    assert memory.search(word, "u")[0].memory == text
    assert note in [hit.memory for hit in memory.search(question, "u")]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (
            "Gave up the desk on Gerber Street; I work from my kitchen table.",
            "Where is my desk, Gerber Street?",
        ),
        ("退掉了格伯街的工位，现在在厨房的桌子上办公。", "格伯街的工位还在吗？"),
    ],
)
def test_no_clause_of_a_message_is_hidden_by_a_note_without_it(
    memory: Memory, text: str, question: str
) -> None:
    memory.add(text, "u")
    shown = " ".join(hit.memory for hit in memory.search(question, "u"))
    assert ("kitchen" in shown or "厨房" in shown) and ("Gerber" in shown or "格伯" in shown)


@pytest.mark.parametrize(
    ("text", "question", "told"),
    [
        (
            "We have a daughter named Anika. Anika is 8 years old.",
            "How old is Anika?",
            ("daughter", "8 years"),
        ),
        ("我的女儿叫小满。小满今年8岁，喜欢画画。", "小满几岁？", ("女儿", "8岁")),
    ],
)
def test_notes_that_say_a_message_together_and_answer_better_stand_for_it(
    memory: Memory, text: str, question: str, told: tuple[str, ...]
) -> None:
    memory.add(text, "u")
    hits = memory.search(question, "u")
    assert [hit.memory for hit in hits if hit.kind == "message"] == []
    assert all(any(part in hit.memory for hit in hits) for part in told)
