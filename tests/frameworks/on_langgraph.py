"""KeMemStore keeps what LangGraph's store would, for one user, where KeMem finds it, too."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, Item, PutOp
from langgraph.store.memory import InMemoryStore

from kemem import AsyncMemory, Memory
from kemem.errors import Conflict, KeMemError, NotFound
from kemem.integrations.langgraph import KeMemStore
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder

NOW = 1_767_225_600_000_000
PLACE = ("饮食", "tastes")
EACH = pytest.mark.parametrize(
    ("text", "query"),
    [("用户不吃辣", "火锅要不要辣？"), ("The user can't eat spicy food", "Is spicy hotpot fine?")],
)


def opened(place: Path, **options: Any) -> Memory:
    return Memory(settings=load(data_dir=place, embedder="none", llm="none"), **options)


@EACH
def test_an_item_outlives_the_process_and_is_found_by_both(
    tmp_path: Path, text: str, query: str
) -> None:
    """By LangGraph's search and by KeMem's own; when it is deleted, by neither."""
    with opened(tmp_path) as memory:
        KeMemStore(memory, user_id="u").put(PLACE, "k", {"text": text})
    with opened(tmp_path) as memory:
        store = KeMemStore(memory, user_id="u")
        item = store.get(PLACE, "k")
        assert item and (item.value, item.namespace, item.key) == ({"text": text}, PLACE, "k")
        (hit,) = store.search(PLACE, query=query)
        assert hit.value == {"text": text} and hit.score and hit.score > 0
        assert [it.memory for it in memory.search(query, "u")] == [text]
        store.delete(PLACE, "k")
        assert store.get(PLACE, "k") is None
        assert store.search((), query=query) == [] == list(memory.search(query, "u"))
        assert memory.get_all("u").items == ()


def test_items_are_the_same_on_every_database(either_settings: Settings) -> None:
    """Put, replaced, found, listed and deleted."""
    with Memory(settings=either_settings) as memory:
        store = KeMemStore(memory, user_id="u")
        store.put(PLACE, "k", {"text": "用户不吃辣", "n": 1})
        store.put(PLACE[:1], "k", {"text": "likes hiking", "n": 2})
        store.put(PLACE[:1], "k", {"text": "likes skiing", "n": 3})
        found = store.search(PLACE[:1], query="不吃辣")
        assert [(it.namespace, bool(it.score)) for it in found] == [
            (PLACE, True),
            (PLACE[:1], False),
        ]
        assert [it.value["n"] for it in store.search((), filter={"n": {"$gt": 1}})] == [3]
        assert store.list_namespaces() == [PLACE[:1], PLACE]
        store.delete(PLACE, "k")
        assert store.list_namespaces() == [PLACE[:1]]


async def test_an_async_graph_takes_either_memory(tmp_path: Path) -> None:
    """The methods that block need a Memory, whose loop they do not share."""
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none", llm="none")) as memory:
        store = KeMemStore(memory, user_id="u")
        await store.aput(PLACE, "k", {"text": "不吃辣"})
        with pytest.raises(Conflict, match=r"pass a kemem\.Memory"):
            store.get(PLACE, "k")
    with opened(tmp_path) as blocking:
        item = await KeMemStore(blocking, user_id="u").aget(PLACE, "k")
    assert item and item.value == {"text": "不吃辣"}


def test_no_namespace_leads_to_another_user(tmp_path: Path) -> None:
    """Users, and agents of a user, have stores of their own; a handle gives only its own."""
    with opened(tmp_path) as memory:
        ann, bob = KeMemStore(memory, user_id="ann"), KeMemStore(memory, user_id="bob")
        ann.put(("users", "bob"), "k", {"text": "安喜欢爬山"})
        assert bob.get(("users", "bob"), "k") is None
        assert bob.search((), query="爬山") == bob.search(()) == bob.list_namespaces() == []
        bob.delete(("users", "bob"), "k")
        assert KeMemStore(memory, user_id="ann", agent_id="other").search(()) == []
        assert len(ann.search(())) == 1
        with pytest.raises(NotFound):
            KeMemStore(memory.for_user("ann"), user_id="bob")


def test_items_that_say_the_same_stay_two_and_a_put_replaces_one(tmp_path: Path) -> None:
    """The time when it was first put stays; its history has the text before."""
    clock = FakeClock(NOW)
    with opened(tmp_path, clock=clock) as memory:
        store = KeMemStore(memory, user_id="u")
        store.put(PLACE, "a", {"text": "same"})
        store.put(PLACE, "b", {"text": "same"})
        first = store.get(PLACE, "a")
        clock.advance(seconds=60)
        store.put(PLACE, "a", {"text": "other", "more": [1, {"x": None}]})
        assert [it.key for it in store.search(PLACE)] == ["a", "b"]
        again = store.get(PLACE, "a")
        assert first and again and again.created_at == first.created_at < again.updated_at
        assert again.value == {"text": "other", "more": [1, {"x": None}]}
        (note,) = [it for it in memory.get_all("u") if "other" in it.memory]
        assert [it.event for it in memory.history(note.id)] == ["update", "add"]


def test_only_the_fields_that_are_named_are_searched(tmp_path: Path) -> None:
    """Named by the store or by the put; an item that is not indexed comes last, without a score."""
    with opened(tmp_path, embedder=HashingEmbedder()) as memory:
        store = KeMemStore(memory, user_id="u", fields=["title"])
        store.put(PLACE, "title", {"title": "alpine hiking", "body": "glacier"})
        store.put(PLACE, "body", {"title": "cooking", "body": "sourdough"}, index=["body"])
        store.put(PLACE, "none", {"title": "alpine hiking"}, index=False)
        texts = {it.memory for it in memory.get_all("u")}
        assert texts == {"alpine hiking", "sourdough", "…"}
        best = store.search(PLACE, query="alpine hiking")
        assert [it.key for it in best if it.score] == ["title"] == [best[0].key] and len(best) == 3
        store.put(PLACE, "title", {"title": "alpine hiking"}, index=False)
        assert [it.score for it in store.search(PLACE, query="alpine hiking")] == [None] * 3


def test_an_item_with_a_ttl_is_gone_when_it_ends_and_reading_prolongs_it(tmp_path: Path) -> None:
    """Minutes, by KeMem's clock."""
    clock = FakeClock(NOW)
    with opened(tmp_path, clock=clock) as memory:
        store = KeMemStore(memory, user_id="u", ttl={"default_ttl": 10})
        store.put(PLACE, "k", {"text": "brief"})
        store.put(PLACE, "for ever", {"text": "long"}, ttl=None)
        for _ in range(3):
            clock.advance(seconds=9 * 60)
            assert store.get(PLACE, "k") is not None
        clock.advance(seconds=9 * 60)
        assert len(store.search(PLACE, refresh_ttl=False)) == 2
        clock.advance(seconds=2 * 60)
        assert store.get(PLACE, "k") is None
        assert [it.key for it in store.search(PLACE, query="brief")] == ["for ever"]


@pytest.mark.parametrize("value", [{"at": object()}, {"nan": float("nan")}, {"big": "x" * 70_000}])
def test_what_is_no_json_or_too_large_is_refused_whole(tmp_path: Path, value: Any) -> None:
    """Nothing of the batch is stored."""
    with opened(tmp_path) as memory:
        store = KeMemStore(memory, user_id="u")
        with pytest.raises(KeMemError, match="value"):
            store.put(PLACE, "k", value)
        assert store.search(()) == []


# The law: what the two stores answer is the same.

USERS = itertools.count()
LABELS = st.sampled_from(["a", "b", "中"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
VALUES = st.fixed_dictionaries({"n": st.integers(0, 3), "t": st.sampled_from(["x", "文"])})
PUTS = st.tuples(NAMESPACES, LABELS, st.none() | VALUES)
FILTERS = st.none() | st.fixed_dictionaries(
    {}, optional={"t": st.just("文"), "n": st.fixed_dictionaries({"$gte": st.integers(0, 3)})}
)
LISTS = st.fixed_dictionaries(
    {},
    optional={
        "prefix": st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple),
        "suffix": st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple),
        "max_depth": st.integers(1, 3),
    },
)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with opened(tmp_path_factory.mktemp("law")) as shared:
        yield shared


@settings(max_examples=25)
@given(st.lists(PUTS, max_size=8), NAMESPACES | st.just(()), FILTERS, LISTS)
def test_it_answers_as_langgraphs_own_store(
    memory: Memory, puts: Any, prefix: Any, wanted: Any, listed: Any
) -> None:
    """Whatever is put, deleted, listed, read and searched.

    Theirs gets what is left alone: it also lists namespaces that have lost all their items.
    """
    ours, theirs = KeMemStore(memory, user_id=f"u{next(USERS)}"), InMemoryStore()
    left = {}
    for namespace, key, value in puts:
        left[namespace, key] = value
        ours.batch([PutOp(namespace, key, value)])
    for (namespace, key), value in left.items():
        if value is not None:
            theirs.put(namespace, key, value)

    def answers(store: BaseStore) -> Any:
        namespaces = store.list_namespaces(**listed)
        found = store.search(prefix, filter=wanted, limit=100)
        read = [store.get(namespace, key) for namespace, key in left]
        return namespaces, sorted(map(shown, found)), list(map(shown, read))

    def shown(item: Item | None) -> Any:
        return item and (item.namespace, item.key, sorted(item.value.items()))

    assert answers(ours) == answers(theirs)
