"""What a search is told besides its question: signals, times, keywords, and to count."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from kemem import InvalidArgument, Memory
from kemem.records import Matrix
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder
from kemem.text.query import any_of
from kemem.text.segment import search_text
from kemem_conformance.ram_ranking import contains
from tests.cases import each
from tests.fixtures import EXAMPLES
from tests.server import INVALID, note_of, refusal

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
MODES = ("hybrid", "lexical", "semantic")
BOTH = pytest.mark.parametrize(
    "asked, said, other",
    [
        ("火锅", "周五吃火锅", "我住在北京"),
        ("hotpot", "We have hotpots on Friday", "I live in Beijing"),
    ],
)


class Failing(HashingEmbedder):
    """An embedder that works for writing, and for no question."""

    async def embed(self, texts: Any, *, purpose: Any) -> Matrix:
        if purpose == "query":
            raise ConnectionError("down")
        return await super().embed(texts, purpose=purpose)


def opened(directory: Path, **more: Any) -> Memory:
    settings = load(data_dir=directory, embedder="none", llm="none")
    return Memory(settings=settings, clock=FakeClock(NOW), **more)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path, embedder=HashingEmbedder()) as memory:
        yield memory


@pytest.fixture
def either(either_settings: Settings) -> Iterator[Memory]:
    """The same on both databases."""
    with Memory(
        settings=either_settings, embedder=HashingEmbedder(), clock=FakeClock(NOW)
    ) as memory:
        yield memory


def kept(memory: Memory, *texts: str, user: str = "u", **more: Any) -> None:
    for text in texts:
        memory.add(text, user, infer=False, **more)


def ask(memory: Memory, asked: str, user: str = "u", **more: Any) -> list[str]:
    """The texts of the notes that a search finds."""
    return [hit.memory for hit in memory.search(asked, user, kinds=["user_info"], **more)]


def signals(memory: Memory, asked: str, **more: Any) -> set[str]:
    """The signals that took part in a search."""
    hits = memory.search(asked, "u", explain=True, **more)
    named = {line.split("#")[0].split(":")[0] for hit in hits for line in hit.why}
    return named & {"lexical", "semantic", "graph"}


# Signals


@BOTH
def test_a_mode_asks_its_signals_only(memory: Memory, asked: str, said: str, other: str) -> None:
    kept(memory, said, other)
    assert ask(memory, asked, mode="lexical") == [said]
    assert signals(memory, asked, mode="lexical") == {"lexical"}
    assert signals(memory, asked, mode="semantic") == {"semantic"}
    assert (
        signals(memory, asked)
        == signals(memory, asked, mode="hybrid")
        == {
            "lexical",
            "semantic",
        }
    )
    for mode in MODES:
        found = memory.search(asked, "u", mode=mode)  # type: ignore[arg-type]  # it is one
        assert found[0].memory == said and found.missing == ()


@pytest.mark.parametrize(
    "said, asked", [("我的姐姐小红在西门子工作", "小红"), ("My sister Mia works at Siemens", "Mia")]
)
def test_only_a_hybrid_search_asks_the_graph(memory: Memory, said: str, asked: str) -> None:
    memory.add(said, "u")
    assert "graph" in signals(memory, asked)
    assert all("graph" not in signals(memory, asked, mode=mode) for mode in MODES[1:])


@each("wrong", ["", "words", "HYBRID", None, 3, ["hybrid"], "词" * 9_000])
def test_a_mode_that_is_none_is_refused(memory: Memory, wrong: Any) -> None:
    """The message names what was given and what there is."""
    with pytest.raises(InvalidArgument, match="hybrid, lexical, semantic") as refused:
        memory.search("火锅 hotpot", "u", mode=wrong)
    assert refused.value.details == {"field": "mode"}
    assert repr(wrong)[:9] in refused.value.message and len(refused.value.message) < 200


@BOTH
@pytest.mark.parametrize("embedder", [None, Failing()])
def test_words_answer_for_a_meaning_that_cannot_be_asked(
    tmp_path: Path, embedder: Failing | None, asked: str, said: str, other: str
) -> None:
    """And the answer says so; where meaning was not asked for, nothing is missing."""
    with opened(tmp_path, embedder=embedder) as memory:
        kept(memory, said, other)
        for mode in ("semantic", "hybrid"):
            found = memory.search(asked, "u", mode=mode, explain=True)
            assert {hit.memory for hit in found} == {said}
            assert found.missing == ("semantic",)
            assert all("semantic: unavailable" in hit.why for hit in found)
        assert memory.search(asked, "u", mode="lexical").missing == ()


# Times


@pytest.mark.parametrize("text", ["吃火锅", "have a hotpot"])
def test_a_span_of_time_includes_its_beginning_only(either: Memory, text: str) -> None:
    """Of notes and messages alike, by when they happened."""
    days = [f"2025-12-0{day}T00:00:00Z" for day in (1, 2, 3)]
    for day in days:
        kept(either, f"{text} {day[9]}", timestamp=day)

    def found(mode: str, **span: Any) -> set[str]:
        hits = either.search(text, "u", mode=mode, **span)  # type: ignore[arg-type]
        return {hit.memory[-1] for hit in hits}

    for mode in MODES:
        assert found(mode) == {"1", "2", "3"}, mode
        assert found(mode, since=days[1]) == {"2", "3"}, mode
        assert found(mode, until=days[1]) == {"1"}, mode
        assert found(mode, since=days[0], until=days[1]) == {"1"}, mode
        assert found(mode, since=days[1], until=days[1]) == set(), mode


def test_a_span_that_ends_before_it_begins_is_refused(memory: Memory) -> None:
    with pytest.raises(InvalidArgument, match="since must not be later than until"):
        memory.search("火锅", "u", since="2026-01-02T00:00:00Z", until="2026-01-01T00:00:00Z")
    with pytest.raises(InvalidArgument, match="until"):
        memory.search("hotpot", "u", until="yesterday")


# Types and other filters


@pytest.mark.parametrize("text", ["我喜欢绿茶", "I like green tea"])
@pytest.mark.parametrize("infer", [True, False])
def test_a_type_in_the_metadata_is_a_type(either: Memory, text: str, infer: bool) -> None:
    """Of notes and messages, in search, get_all and delete_all; a note keeps its own as well."""
    either.add(text, "u", infer=infer, metadata={"memory_type": "饮料 drinks"})
    either.add(f"{text} plain", "u", infer=infer)
    own = {"memory_type": "饮料 drinks"}
    either.update(either.get_all("u", filters=own)[0].id, metadata={**own, "seen": True})
    (note,) = either.get_all("u", filters=own)
    (message,) = either.get_all("u", filters=own, kinds=["message"])
    both = {"memory_type": [note.note.memory_type, "没有这种 none"]}
    assert len(either.get_all("u", filters=both)) == 2
    assert message.memory == text
    assert note.id in {hit.id for hit in either.search(text, "u", filters=own)}
    hits = either.search(text, "u", filters=own, kinds=["message"])
    assert [hit.id for hit in hits] == [message.id]
    assert len(either.get_all("u", filters={"memory_type": {"ne": "饮料 drinks"}})) == 1
    assert either.delete_all("u", filters=own) == 1
    assert len(either.get_all("u")) == 1


def test_a_filter_that_finds_nothing_ever_is_refused(memory: Memory) -> None:
    """Everywhere, and nothing is deleted by it."""
    kept(memory, "火锅 hotpot")
    calls: list[Callable[[], object]] = [
        lambda: memory.search("火锅", "u", filters={"kind": "fact"}),
        lambda: memory.search("火锅", "u", kinds=["user_info"], filters={"role": "user"}),
        lambda: memory.get_all("u", filters={"role": "user"}),
        lambda: memory.get_all("u", kinds=["message"], filters={"kind": "knowledge"}),
        lambda: memory.get_all("u", filters={"tag": []}),
        lambda: memory.delete_all("u", filters={"kind": "message"}),
        lambda: memory.delete_all("u", filters={"role": "user"}),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"^filters: .*(kind|role|tag)"):
            call()
    assert len(memory.get_all("u", kinds=["message", "user_info"])) == 2


# Keywords


@pytest.mark.parametrize(
    "texts, keywords, admitted",
    [
        (["我不吃辣", "周五吃火锅", "我住在北京"], ["吃辣"], ["我不吃辣"]),
        (["我不吃辣", "周五吃火锅", "我住在北京"], ["吃辣", "北京"], ["我不吃辣", "我住在北京"]),
        (["I love hotpots", "Hot soup, a pot", "I swim"], ["HOTPOT"], ["I love hotpots"]),
        (["no spicy broth", "spicy, no broth", "I swim"], ["spicy broth"], ["no spicy broth"]),
        (["I swim", "我不吃辣"], ["swimming", "吃"], ["I swim", "我不吃辣"]),
        (["I swim", "我不吃辣"], ["tennis", "网球", "？！"], []),
    ],
)
def test_every_answer_contains_a_keyword(
    either: Memory, texts: list[str], keywords: list[str], admitted: list[str]
) -> None:
    """Whatever the question is about."""
    kept(either, *texts)
    for mode in MODES:
        found = ask(either, f"{texts[0]} {texts[-1]}", mode=mode, keywords=keywords)
        assert sorted(found) == sorted(admitted), mode


@pytest.mark.parametrize("text, keyword", [("用户不吃辣", "火锅"), ("Eats no nuts", "allergy")])
def test_a_keyword_of_a_note_counts_as_its_word(tmp_path: Path, text: str, keyword: str) -> None:
    """Though its text lacks it."""
    with opened(tmp_path, embedder=HashingEmbedder()) as memory:
        memory.learn(text, tags=[keyword])
        for mode in MODES:
            options: dict[str, Any] = {"agent_id": "default", "mode": mode}
            found = partial(memory.search, text, **options)
            assert [it.memory for it in found(keywords=[keyword])] == [text]
            assert [*found(keywords=["网球", "tennis"])] == []


WORDS = ("火", "锅", "火锅", "tea", "Spicy", "broth", "吃辣", "spicy broth", "茶")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@bounds(max_examples=EXAMPLES)
@given(
    texts=st.lists(TEXTS, max_size=9),
    asked=TEXTS,
    keywords=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    mode=st.sampled_from(MODES),
)
def test_keywords_only_take_away(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    asked: str,
    keywords: list[str],
    mode: Any,
) -> None:
    """What is left is what a plain reading of the texts leaves."""
    wanted = any_of(keywords).units
    admitted = [it for it in texts if any(contains(search_text(it), each) for each in wanted)]
    with opened(tmp_path_factory.mktemp("words"), embedder=HashingEmbedder()) as memory:
        if texts:
            memory.ingest([{"content": text} for text in texts], "u")
        found = memory.search(asked, "u", mode=mode, keywords=keywords)
    if mode == "lexical":  # a keyword counts as a word of the question
        assert sorted(hit.memory for hit in found) == sorted(admitted)
    else:
        assert {hit.memory for hit in found} <= {*admitted}


@pytest.mark.parametrize("keyword, text", [("清汤", "清汤 一份"), ("broth", "clear broths")])
def test_a_keyword_counts_as_a_word_of_the_question(
    memory: Memory, keyword: str, text: str
) -> None:
    """A row that shares nothing else with the question is ranked by it."""
    kept(memory, text)
    hit, *_ = memory.search("火锅 hotpot", "u", keywords=[keyword], explain=True, mode="lexical")
    assert hit.memory == text and "<mark>" in hit.snippets[0]
    assert memory.search("火锅 hotpot", "u", mode="lexical").items == ()


@pytest.mark.parametrize(
    "texts, asked, keyword",
    [
        (["火锅 清汤", "火锅 麻酱 清汤", "清汤"], "火锅 NOT 麻酱", "清汤"),
        (["hotpot broth", "hotpot sesame broth", "broth"], "hotpot AND (NOT sesame)", "broth"),
    ],
)
def test_a_keyword_does_not_undo_what_a_question_demands(
    memory: Memory, texts: list[str], asked: str, keyword: str
) -> None:
    kept(memory, *texts)
    assert ask(memory, asked, keywords=[keyword], mode="lexical") == texts[:1]


@pytest.mark.parametrize(
    "texts", [["火锅 一", "火锅 二", "茶 三"], ["hotpot 1", "hotpot 2", "tea"]]
)
def test_keywords_come_on_top_of_filters_and_kinds(either: Memory, texts: list[str]) -> None:
    asked, keyword = " ".join(texts), texts[0].split()[0]
    for at, text in enumerate(texts):
        kept(either, text, metadata={"at": at})
    for mode in MODES:
        found = ask(either, asked, mode=mode, keywords=[keyword], filters={"at": {"gte": 1}})
        assert found == texts[1:2]


@pytest.mark.parametrize("mode", MODES)
def test_the_same_id_of_another_user_is_another_message(memory: Memory, mode: str) -> None:
    """Where a search reaches several users, as one for an agent does."""
    texts = {"ann": "周五吃火锅 hotpot", "ben": "周五打球 tennis"}
    for user, text in texts.items():
        said = {"message_id": "m_1", "content": text}
        memory.ingest(said, user, agent_id="cook")
    for word, user in (("火锅", "ann"), ("tennis", "ben")):
        asked: dict[str, Any] = {"agent_id": "cook", "mode": mode, "keywords": [word]}
        assert [hit.memory for hit in memory.search("周五 Friday", **asked)] == [texts[user]]


@each("wrong", [[], "火锅", [""], ["a", " "], [3], {"a"}, ["x"] * 21, ["x" * 257], [None], 5])
def test_keywords_that_are_none_are_refused(memory: Memory, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="keywords must be a list of 1-20 texts") as refused:
        memory.search("火锅", "u", keywords=wrong)
    assert refused.value.details == {"field": "keywords"} and len(refused.value.message) < 200


# Counting


@bounds(max_examples=EXAMPLES)
@given(
    texts=st.lists(TEXTS, max_size=12),
    asked=TEXTS,
    limit=st.integers(1, 4),
    threshold=st.sampled_from([None, 0.2, 0.5, 0.9]),
    mode=st.sampled_from(MODES),
)
def test_the_total_is_what_a_search_without_a_limit_finds(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    asked: str,
    limit: int,
    threshold: float | None,
    mode: Any,
) -> None:
    """Repeats do not count, nor what the threshold leaves out."""
    with opened(tmp_path_factory.mktemp("total"), embedder=HashingEmbedder()) as memory:
        for at, text in enumerate(texts):
            kept(memory, text) if at % 2 else memory.ingest(text, "u")
        told: dict[str, Any] = {"mode": mode, "threshold": threshold}
        everything = memory.search(asked, "u", limit=1000, **told)
        counted = memory.search(asked, "u", limit=limit, count=True, **told)
    assert counted.total == len(everything)
    assert list(counted) == list(everything)[:limit]


@pytest.mark.parametrize("text", ["火锅", "hotpot"])
def test_some_hundred_answers_are_counted_exactly(memory: Memory, text: str) -> None:
    memory.ingest([{"content": f"{text} {n}"} for n in range(400)], "u")
    for mode in MODES:
        found = memory.search(text, "u", limit=3, count=True, mode=mode)  # type: ignore[arg-type]
        assert (len(found), found.total, found.to_dict()["total"]) == (3, 400, 400)
    narrow = memory.search(text, "u", limit=1, count=True, keywords=["7"])
    assert (len(narrow), narrow.total) == (1, 1)


@pytest.mark.parametrize("text", ["火锅", "hotpot"])
def test_what_was_not_counted_has_no_total(memory: Memory, text: str) -> None:
    kept(memory, text)
    assert memory.search(text, "u").total == memory.get_all("u").total == 0
    assert memory.search(text, "u").to_dict().keys() == {"results"}
    assert memory.get_all("u").to_dict().keys() == {"results"}


# Over HTTP


@pytest.mark.parametrize("user, word, other", [("zh", "火锅", "清汤"), ("en", "hotpot", "broth")])
def test_http_takes_all_of_it(client: httpx.Client, user: str, word: str, other: str) -> None:
    days = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]
    for day, text in zip(days, (f"{word} {other}", f"{word} 2", f"{word} 3"), strict=True):
        note_of(client, user, text, timestamp=day)

    def answer(**more: Any) -> dict[str, Any]:
        asked = {"user_id": user, "query": word, "kinds": ["user_info"], **more}
        body: dict[str, Any] = client.post("/v1/memories/search", json=asked).json()
        return body

    counted = answer(limit=1, count=True, mode="lexical")
    assert (len(counted["results"]), counted["total"]) == (1, 3)
    assert "total" not in answer() and "missing" not in answer(mode="lexical")
    assert answer(mode="semantic")["missing"] == ["semantic"]
    (hit,) = answer(keywords=[other])["results"]
    assert hit["memory"] == f"{word} {other}"
    assert [it["memory"][-1] for it in answer(since=days[1], until=days[2])["results"]] == ["2"]


@each(
    "field, wrong",
    [
        ("mode", "words"),
        ("mode", None),
        ("mode", 1),
        ("keywords", []),
        ("keywords", "火锅"),
        ("keywords", ["火锅", " "]),
        ("keywords", [1]),
        ("keywords", ["x"] * 21),
        ("since", "yesterday"),
        ("until", 3),
        ("count", "yes"),
    ],
)
def test_http_refuses_what_cannot_be_meant(client: httpx.Client, field: str, wrong: Any) -> None:
    asked = {"user_id": "u", "query": "火锅 hotpot", field: wrong}
    answer = client.post("/v1/memories/search", json=asked)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"]["field"].split("[")[0] == field
