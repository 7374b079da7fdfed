"""mem0's classes over KeMem: its arguments of both versions, its results, its errors."""

import inspect
import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kemem import AsyncMemory as KeMem
from kemem.compat.mem0_values import Config, to_filters
from kemem.errors import InvalidArgument, NotFound
from kemem.integrations.mem0 import AsyncMemory, Memory
from kemem.testing import HashingEmbedder
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
EACH = pytest.mark.parametrize("language", ["zh", "en"])
SAID = {"zh": "我对花生过敏", "en": "I am allergic to peanuts."}
FACT = {"zh": "用户对花生过敏", "en": "User is allergic to peanuts"}
ASKED = {"zh": "花生", "en": "peanuts allergy"}
MOVED = {"zh": ("我住在上海。", "我搬到北京了。"), "en": ("I live in Oslo.", "I moved to Bergen.")}
PLACE = {"zh": ("上海", "北京"), "en": ("Oslo", "Bergen")}
ANN: Any = {"user_id": "ann"}


def opened(path: Path) -> KeMem:
    ticks = count(NOW, 1000)  # each look at the clock is a millisecond later
    return KeMem(data_dir=path, embedder=HashingEmbedder(), clock=ticks.__next__)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.setenv("KEMEM_LLM", "none")
    behind = opened(tmp_path)
    with Memory(memory=behind) as mem0:
        yield mem0
        mem0._portal.call(behind.close())


def texts(answer: dict[str, Any]) -> list[str]:
    return [memory["memory"] for memory in answer["results"]]


@EACH
def test_a_fact_is_added_found_and_shown_as_mem0_does(memory: Memory, language: str) -> None:
    """With the arguments of 1.x and of 2.x alike."""
    added = memory.add([{"role": "user", "content": SAID[language]}], user_id="ann", agent_id="bot")
    (event,) = added["results"]
    assert event == {"id": event["id"], "memory": FACT[language], "event": "ADD"}
    of_2 = memory.search(ASKED[language], filters=ANN, top_k=5, explain=True)
    of_1 = memory.search(ASKED[language], user_id="ann", limit=5, explain=True)
    assert of_1 == of_2
    (hit,) = of_2["results"]
    assert 0 < hit.pop("score") <= 1
    assert hit.pop("score_details")["why"]
    assert hit == memory.get(event["id"])
    assert memory.get_all(filters=ANN) == memory.get_all(**ANN, limit=9) == {"results": [hit]}
    assert set(hit) == {
        *("id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id", "agent_id")
    }
    assert memory.search(ASKED[language], user_id="ann", threshold=1.0) == {"results": []}


@EACH
def test_what_changes_is_an_update_and_the_past_is_not_found(memory: Memory, language: str) -> None:
    (before, after), (old, new) = MOVED[language], PLACE[language]
    memory.add(before, user_id="ann")
    (event,) = memory.add(after, user_id="ann")["results"]
    assert event["event"] == "UPDATE"
    assert new in event["memory"] and old in event["previous_memory"]
    assert not [it for it in texts(memory.search(old, filters=ANN)) if old in it]
    assert memory.add(after, user_id="ann") == {"results": []}, "nothing new"


def test_verbatim_memories_keep_what_came_with_them(memory: Memory) -> None:
    """Each message is one; metadata, the run and the last day come back."""
    given: Any = {"infer": False, "metadata": {"tag": "旅行"}, "expiration_date": "2026-01-31"}
    said = [{"role": "user", "content": "去成都"}, {"role": "assistant", "content": "Bon voyage"}]
    added = memory.add(
        said, filters={"user_id": "ann", "run_id": "r"}, timestamp=1_767_000_000, **given
    )
    first, second = added["results"]
    assert first["memory"] == "去成都"
    shown = memory.get(second["id"])
    assert shown is not None
    assert (shown["run_id"], shown["role"], shown["metadata"]) == (
        "r",
        "assistant",
        {"tag": "旅行"},
    )
    assert shown["expiration_date"] == "2026-01-31"


def test_a_memory_is_changed_and_erased_by_its_id(memory: Memory) -> None:
    """`data` of 1.x is `text`; metadata grows; a deleted memory is None and a ValueError."""
    (event,) = memory.add("喜欢茶", infer=False, metadata={"a": 1}, **ANN)["results"]
    done = {"message": "Memory updated successfully!"}
    assert memory.update(event["id"], data="喜欢绿茶") == done
    assert memory.update(memory_id=event["id"], text="likes green tea", metadata={"b": 2}) == done
    shown = memory.get(event["id"])
    assert shown and (shown["memory"], shown["metadata"]) == ("likes green tea", {"a": 1, "b": 2})
    changes = memory.history(event["id"])
    assert [(it["event"], it["old_memory"], it["new_memory"]) for it in changes] == [
        ("ADD", None, "喜欢茶"),
        ("UPDATE", "喜欢茶", "喜欢绿茶"),
        ("UPDATE", "喜欢绿茶", "likes green tea"),
    ]
    assert memory.delete(event["id"]) == {"message": "Memory deleted successfully!"}
    assert memory.get(event["id"]) is None and memory.history("n_unknown") == []
    for call in (memory.delete, lambda it: memory.update(it, "x")):
        with pytest.raises(ValueError, match="no memory") as caught:
            call(event["id"])
        assert isinstance(caught.value, NotFound)


def test_delete_all_and_reset_erase(memory: Memory) -> None:
    for ids in ({"user_id": "ann"}, {"user_id": "bob", "run_id": "r"}, {"agent_id": "bot"}):
        memory.add("茶 tea", infer=False, **ids)  # type: ignore[arg-type]
    assert memory.delete_all(user_id="ann") == {"message": "Memories deleted successfully!"}
    assert texts(memory.get_all(filters=ANN)) == []
    assert texts(memory.get_all(filters={"run_id": "r"})) == []  # it is not that of anybody
    assert texts(memory.get_all(filters={"user_id": "bob", "run_id": "r"})) == ["茶 tea"]
    memory.reset()
    for ids in ({"user_id": "bob"}, {"agent_id": "bot"}):
        assert texts(memory.get_all(filters=ids)) == []


def test_a_list_has_as_many_as_are_asked_for(memory: Memory) -> None:
    said = [{"role": "user", "content": f"第 {n} 条 note"} for n in range(30)]
    memory.add(said, infer=False, **ANN)
    assert len(memory.get_all(filters=ANN)["results"]) == 20
    assert len(memory.get_all(filters=ANN, top_k=100_000)["results"]) == 30
    assert len(memory.search("note", filters=ANN, top_k=100_000)["results"]) == 30


def test_any_name_in_a_filter_is_a_key_of_the_metadata(memory: Memory) -> None:
    """KeMem's own names for fields among them; the role is that of a memory kept verbatim."""
    own = {"kind": "菜 dish", "importance": "high", "topic": 7, "memory_type": "命令 command"}
    memory.add(
        [{"role": "assistant", "content": "麻婆豆腐 tofu"}], infer=False, metadata=own, **ANN
    )
    memory.add("别的 another", infer=False, **ANN)
    for name, value in {**own, "role": "assistant"}.items():
        for found in (
            memory.get_all(filters={**ANN, name: value}),
            memory.search("tofu", filters={**ANN, name: value}),
        ):
            assert texts(found) == ["麻婆豆腐 tofu"], name


def test_a_number_is_an_id(memory: Memory) -> None:
    memory.add("tea", user_id=42, infer=False)
    assert texts(memory.get_all(filters={"user_id": " 42 "})) == ["tea"]
    assert texts(memory.get_all(user_id=42)) == ["tea"]


WITHOUT_AN_ID: list[Any] = [
    lambda it: it.search("x"),
    lambda it: it.search("x", filters={"tag": "a"}),
    lambda it: it.search("x", filters={"user_id": "*"}),
    lambda it: it.get_all(filters={"OR": [{"user_id": "ann"}, {"user_id": "bob"}]}),
    lambda it: it.get_all(),
    lambda it: it.delete_all(),
    lambda it: it.delete_all(filters={"AND": [{"user_id": "*"}]}),
    lambda it: it.add("x"),
]


def test_no_call_goes_without_an_id(memory: Memory) -> None:
    for at, call in enumerate(WITHOUT_AN_ID):
        with pytest.raises(InvalidArgument, match="user_id"):
            pytest.fail(f"call {at} returned {call(memory)}")


WITHOUT_A_COUNTERPART: list[tuple[Any, str]] = [
    (lambda it: it.add("x", memory_type="procedural_memory", **ANN), "memory_type"),
    (lambda it: it.add("x", filters={"user_id": "ann", "tag": "a"}), "filters"),
    (lambda it: it.add("x", expiration_date="tomorrow", **ANN), "expiration_date"),
    (lambda it: it.add("x", expiration_date=7, **ANN), "expiration_date"),
    (lambda it: it.add("x", expiration_date="9999-12-31", **ANN), "expiration_date"),
    (lambda it: it.search("x", filters=ANN, show_expired=True), "show_expired"),
    (lambda it: it.search("x", filters=ANN, reference_date="2026-01-01"), "reference_date"),
    (lambda it: it.search("x", filters=ANN, top_k=0), "top_k"),
    (lambda it: it.search("x", filters={**ANN, "app_id": "a"}), "filters"),
    (lambda it: it.search("x", filters={**ANN, "OR": [{"run_id": "*"}]}), "filters"),
    (lambda it: it.get_all(filters=ANN, limit="9"), "top_k"),
    (lambda it: it.update("n_1"), "text"),
    (lambda it: it.update("n_1", "x", expiration_date=None), "expiration_date"),
    (lambda it: Memory({}, memory=KeMem(data_dir="unused")), "memory"),
    (lambda it: Memory.from_config("qdrant"), "config"),  # type: ignore[arg-type]
]


def test_what_has_no_counterpart_is_refused_by_name(memory: Memory) -> None:
    for call, field in WITHOUT_A_COUNTERPART:
        with pytest.raises(InvalidArgument) as caught:
            pytest.fail(f"{field}: {call(memory)}")
        assert caught.value.details["field"] == field


@each(
    ("given", "meant"),
    [
        ({"user_id": 7, "run_id": "*"}, {"user_id": "7"}),
        ({"AND": [{"user_id": "ann"}, {"agent_id": "*"}]}, {"AND": [{"user_id": "ann"}, {}]}),
        ({"tag": "*", "NOT": [{"a": "*"}]}, {"tag": {"ne": None}, "NOT": [{"a": {"ne": None}}]}),
        ({"tag": {"icontains": "x"}}, {"tag": {"icontains": "x"}}),
        ("no filter", "no filter"),
        (None, None),
    ],
)
def test_filters_of_mem0_mean_the_same_here(given: Any, meant: Any) -> None:
    assert to_filters(given) == meant


LEAVES = st.dictionaries(
    st.sampled_from(["user_id", "run_id", "tag"]), st.sampled_from(["ann", "bob", "*"]), max_size=2
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(
        st.sampled_from(["AND", "OR", "NOT"]), st.lists(inner, min_size=1, max_size=2), min_size=1
    ).flatmap(lambda groups: LEAVES.map(lambda leaf: {**groups, **leaf})),
    max_leaves=4,
)


def demanded(filters: Any) -> Iterator[tuple[str, str]]:
    """The ids that a memory must carry, whatever else is in the filters."""
    for name, value in filters.items():
        if name == "AND":
            yield from (each for part in value for each in demanded(part))
        elif name in ("user_id", "run_id") and value != "*":
            yield name, value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters=FILTERS)
def test_no_filter_leads_to_memories_that_it_does_not_name(memory: Memory, filters: Any) -> None:
    """What is found carries every id that is demanded; without any, nothing is read."""
    for user in ("ann", "bob"):
        for run in ("ann", "bob"):
            if not memory.get_all(filters={"user_id": user, "run_id": run})["results"]:
                memory.add("茶 tea", user_id=user, run_id=run, infer=False, metadata={"tag": user})
    ids = set(demanded(filters))
    try:
        results = memory.get_all(filters=filters)["results"]
    except InvalidArgument:
        return
    assert ids, "no id is demanded, and yet it was read"
    assert all(ids <= it.items() for it in results)


def test_a_day_in_a_filter_is_the_whole_day(memory: Memory) -> None:
    memory.add("tea", infer=False, metadata={"tag": "a"}, **ANN)
    for name, day, hits in (
        *(("gte", "2026-01-01", 1), ("gt", "2026-01-01", 0), ("lte", "2026-01-01", 1)),
        *(("lt", "2026-01-01", 0), ("gte", "2026-01-02", 0), ("lt", NOW / 1e6 + 60, 1)),
    ):
        filters = {**ANN, "created_at": {name: day}, "tag": "*"}
        assert len(memory.get_all(filters=filters)["results"]) == hits, (name, day)


def test_a_config_gives_the_model_and_names_what_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KEMEM_DATA_DIR", str(tmp_path))
    config = {
        "version": "v1.1",
        "llm": {
            "provider": "openai",
            "config": {"model": "m", "api_key": "k", "temperature": 0.1},
        },
        "vector_store": {"provider": "qdrant", "config": {"host": "localhost"}},
        "history_db_path": "/tmp/history.db",
        "custom_instructions": "只记饮食",
        "reranker": None,
    }
    ignored = ("llm.temperature", "vector_store (qdrant)", "history_db_path")
    read = Config.read(config)
    assert read == Config({"llm_model": "m", "llm_api_key": "k"}, "只记饮食", ignored)
    assert Config.read(SimpleNamespace(model_dump=lambda: config)) == read
    with caplog.at_level(logging.WARNING, "kemem"), Memory.from_config(config) as memory:
        assert memory.ignored == ignored
    assert "vector_store (qdrant)" in caplog.text


@each(
    ("llm", "chosen"),
    [
        (None, {}),
        ({"provider": "anthropic", "config": {"model": "c"}}, {}),
        (
            {"provider": "openai", "config": {"openai_base_url": "http://x/v1"}},
            {"llm_base_url": "http://x/v1"},
        ),
        (
            {"provider": "ollama", "config": {"model": "q", "ollama_base_url": "http://o:11434"}},
            {"llm_model": "q", "llm_base_url": "http://o:11434/v1", "llm_api_key": "none"},
        ),
        (
            {"provider": "deepseek", "config": {}},
            {"llm_base_url": "https://api.deepseek.com", "llm_api_key": "secret"},
        ),
    ],
)
def test_a_provider_is_asked_with_its_own_key(llm: Any, chosen: Any) -> None:
    """Never with that of OpenAI, which the environment may hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSEEK_API_KEY", "secret")
        patch.setenv("OPENAI_API_KEY", "of OpenAI")
        assert Config.read({"llm": llm}).settings == chosen


async def test_the_awaiting_class_does_the_same(tmp_path: Path) -> None:
    async with opened(tmp_path) as behind, AsyncMemory(memory=behind) as memory:
        await memory.add("喜欢绿茶 likes tea", infer=False, **ANN)
        assert texts(await memory.search("绿茶 tea", filters=ANN)) == ["喜欢绿茶 likes tea"]
        bound = AsyncMemory(memory=behind.for_user("bob"))
        assert await bound.get_all() == {"results": []}, "a handle is a scope"
        with pytest.raises(NotFound):
            await bound.search("tea", filters=ANN)


def test_both_classes_have_the_same_methods() -> None:
    def methods(kind: type[object]) -> dict[str, str]:
        public = {name: it for name, it in vars(kind).items() if not name.startswith("_")}
        return {
            name: str(inspect.signature(it))
            for name, it in public.items()
            if inspect.isfunction(it)
        }

    assert methods(Memory) == methods(AsyncMemory)
