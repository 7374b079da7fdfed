"""Seed 000, 2.1 to 2.3: what is found, shown and extracted, in Chinese and in English."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kemem.backends.llm import OpenAILLM
from kemem.recall import SearchMemoriesOutput
from kemem.recall.schemas import Language
from kemem.recall.tools import CONTENT_BYTES
from kemem.testing import ScriptedLLM, running_openai_server
from tests.cases import each
from tests.typed_notes import Fact, notebook, opened, searched, state_for, used


@dataclass(frozen=True, slots=True)
class World:
    """The same notes in one language, three of them about a database."""

    language: Language
    facts: tuple[Fact, ...]
    database: str
    words: tuple[str, str]  # each in one note only
    meant: tuple[Fact, str]  # a note, and a query that shares no word with it


CHINESE = World(
    "zh",
    (
        Fact("数据库是 PostgreSQL，端口 5433", "configuration", 1, ("端口",)),
        Fact("用户偏好深色主题的编辑器", "user_preference", 3),
        Fact("迁移命令输出：数据库升级成功", "command_output", 10),
        Fact("数据库备份放在上海机房", "general", 40),
        Fact("会议改到周四下午三点", "general", 2),
    ),
    "数据库",
    ("端口", "上海"),
    (Fact("周末常去爬山"), "徒步旅行"),
)
ENGLISH = World(
    "en",
    (
        Fact("The database is PostgreSQL on port 5433", "configuration", 1, ("port",)),
        Fact("User prefers the dark theme of the editor", "user_preference", 3),
        Fact("Output of the migration: database upgraded", "command_output", 10),
        Fact("The database backup is kept in Oslo", "general", 40),
        Fact("The meeting moved to Thursday at three", "general", 2),
    ),
    "database",
    ("port", "Oslo"),
    (Fact("User adopted a kitten"), "pet cats"),
)
BOTH = pytest.mark.parametrize("world", [CHINESE, ENGLISH], ids=["zh", "en"])
LANGUAGES = pytest.mark.parametrize("language", ["zh", "en"])
ALL: dict[str, Any] = {"limit": 10, "min_relevance_score": 0.0}


def found(output: SearchMemoriesOutput) -> set[str]:
    """The texts of results."""
    assert output.success
    return {each.content_preview for each in output.results}


# 2.1 search_memories


@BOTH
async def test_words_and_meaning_are_modes_of_their_own(tmp_path: Path, world: World) -> None:
    """What shares no word with the query is found by its meaning only; hybrid asks for both."""
    note, query = world.meant
    async with opened(tmp_path, [*world.facts, note], embedder=None) as memory:
        by_words = await searched(memory, query, search_mode="keyword", **ALL)
        assert (found(by_words), by_words.total_found) == (set(), 0)
        for mode in ("semantic", "hybrid"):
            assert found(await searched(memory, query, search_mode=mode)) == {note.text}
        for mode in ("keyword", "hybrid"):
            output = await searched(memory, world.database, search_mode=mode)
            assert output.total_found == 3


@BOTH
async def test_a_memory_contains_one_of_the_keywords(world: World) -> None:
    """Any of them is enough; one that is nowhere is no filter, which the model is told."""
    port, _, _, backup, _ = world.facts
    memory = await notebook(world.facts)
    for words, texts in (
        (world.words, {port.text, backup.text}),
        (world.words[:1], {port.text}),
        (("量子 quantum", *world.words[1:]), {backup.text}),
    ):
        output = await searched(memory, world.database, keywords=list(words), **ALL)
        assert found(output) == texts
        assert output.total_found == len(texts) and output.message is None
    everything = await searched(memory, world.database, **ALL)
    output = await searched(memory, world.database, keywords=["量子 quantum"], **ALL)
    assert found(output) == found(everything) and "keywords" in str(output.message)


@BOTH
async def test_memories_are_chosen_by_their_types(world: World) -> None:
    """Types of notes, kinds of rows, messages; also a type that a message carries itself."""
    port, theme, migration, *_ = (fact.text for fact in world.facts)
    texts = {fact.text for fact in world.facts}
    log = f"{world.database} log 日志"
    memory = await notebook(world.facts)
    typed = {"content": log, "metadata": {"memory_type": "command_output"}}
    await memory.ingest([typed], "u")
    noted = {"memory_type": "knowledge"}  # the name of a kind, too
    await memory.add(f"{log} 2", "u", infer=False, metadata=noted)
    for types, wanted in (
        (["configuration"], {port}),
        (["configuration", "user_preference"], {port, theme}),
        (["user_info"], {*texts, f"{log} 2"}),
        (["message"], {*texts, log, f"{log} 2"}),
        (["command_output"], {migration, log}),
        (["knowledge", "verbatim"], {f"{log} 2"}),
        (["message", "configuration"], {*texts, log, f"{log} 2"}),
    ):
        query = " ".join([*texts, log])
        output = await searched(memory, query, memory_types=types, **ALL)
        assert found(output) == wanted, types
    output = await searched(memory, query, memory_types=["没有这种 none"], **ALL)
    assert found(output) == found(await searched(memory, query, **ALL)) != set()
    assert "memory_types" in str(output.message)


@BOTH
async def test_memories_are_chosen_by_their_age(world: World) -> None:
    """The last N days, counted back from now; a day more or less decides."""
    port, _, migration, backup, _ = (fact.text for fact in world.facts)
    memory = await notebook(world.facts)
    for days, wanted in (
        (1, {port}),
        (9, {port}),
        (10, {port, migration}),
        (365, {port, migration, backup}),
    ):
        output = await searched(memory, world.database, time_range_days=days)
        assert found(output) == wanted


@BOTH
async def test_all_that_match_are_counted_and_the_best_returned(world: World) -> None:
    """total_found does not depend on the limit; five are returned unless told."""
    many = [Fact(f"{world.database} {number}") for number in range(30, 42)]
    memory = await notebook(many)
    every = await searched(memory, world.database, limit=10)
    assert (every.total_found, len(every.results)) == (12, 10)
    scores = [each.relevance_score for each in every.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0.5 <= score <= 1 for score in scores)
    for asked, count in (({"limit": 1}, 1), ({}, 5)):
        fewer = await searched(memory, world.database, **asked)
        assert fewer.results == every.results[:count]
        assert fewer.total_found == 12


@BOTH
async def test_what_is_less_relevant_is_left_out(world: World) -> None:
    """0.5 unless told; it is not counted either."""
    query = world.facts[0].text
    memory = await notebook(world.facts)
    every = await searched(memory, query, **ALL)
    scores = [each.relevance_score for each in every.results]
    assert len(scores) == every.total_found > 1 and len({*scores}) > 1
    for least in (0.5, scores[0]):
        output = await searched(memory, query, limit=10, min_relevance_score=least)
        kept = [score for score in scores if score >= least]
        assert [each.relevance_score for each in output.results] == kept
        assert output.total_found == len(kept) < len(scores)
    assert await searched(memory, query, limit=10) == await searched(
        memory, query, limit=10, min_relevance_score=0.5
    )


@BOTH
async def test_a_result_shows_a_memory_in_short(world: World) -> None:
    """Two hundred characters of its content, when it was remembered, its type and keywords."""
    text = (world.facts[0].text + "，") * 20
    facts = [world.facts[0], Fact(text[:200]), Fact(text[:201])]
    memory = await notebook(facts)
    output = await searched(memory, world.facts[0].text, **ALL)
    shown = {each.content_preview: each for each in output.results}
    assert shown.keys() == {world.facts[0].text, text[:200], text[:200] + "..."}
    note = shown[world.facts[0].text]
    assert (note.memory_type, note.keywords) == ("configuration", list(facts[0].keywords))
    assert note.summary == note.content_preview
    assert len(shown[text[:200]].summary) < 100
    assert note.created_at == "2026-01-01T00:00:00.000000Z"
    for result in output.results:
        assert (await memory.get(result.memory_key)).memory.startswith(result.summary[:20])


@BOTH
async def test_a_search_says_what_it_was_widened_to(world: World) -> None:
    """Own keywords, then those of the query; by words alone, the own ones only."""
    memory = await notebook(world.facts)
    for mode in ("hybrid", "semantic"):
        own = ["config"]
        output = await searched(memory, world.database, search_mode=mode, keywords=own)
        assert output.search_query_expanded == f"config, {world.database}"
    asked = {"search_mode": "keyword", **ALL}
    assert (await searched(memory, world.database, **asked)).search_query_expanded is None
    output = await searched(memory, world.database, keywords=["a", "b"], **asked)
    assert output.search_query_expanded == "a, b"


# 2.2 get_memory_detail


@BOTH
async def test_a_note_is_shown_whole_with_the_messages_behind_it(world: World) -> None:
    memory = await notebook(world.facts)
    item = (await memory.get_all("u", filters={"memory_type": "command_output"}))[0]
    detail = await used(await state_for(memory), "get_memory_detail", memory_key=item.id)
    assert (detail.success, detail.memory_key, detail.content) == (True, item.id, item.memory)
    assert (detail.memory_type, detail.created_at[:10]) == ("command_output", "2026-01-01")
    assert detail.metadata["kind"] == "user_info"
    assert detail.metadata["event_time"] == "2025-12-22T00:00:00.000000Z"
    (source,) = detail.metadata["sources"]
    (said,) = detail.metadata["context"]
    assert (said["memory_key"], said["role"]) == (source, "user")
    assert said["content"] == (await memory.get(source, user_id="u")).memory


@BOTH
async def test_a_message_is_shown_with_what_was_said_around_it(world: World) -> None:
    """Two messages before and after it, of its own session."""
    memory = await notebook()
    days = "01 02 03 04 05 06 07 08 09"
    talk = [
        {"message_id": f"m_{day}", "content": fact.text, "ts": f"2025-01-{day}T00:00:00Z"}
        for day, fact in zip(days.split(), world.facts * 2, strict=False)
    ]
    talk[5]["session_id"] = "elsewhere"
    await memory.ingest(talk, "u")
    state = await state_for(memory)
    detail = await used(state, "get_memory_detail", memory_key="m_07")
    around = [(it["memory_key"], it["offset"]) for it in detail.metadata["context"]]
    assert around == [("m_05", -1), ("m_08", 1), ("m_09", 2)]
    assert (detail.memory_type, detail.metadata["sources"]) == ("message", ["m_07"])
    first = await used(state, "get_memory_detail", memory_key="m_01")
    assert [it["offset"] for it in first.metadata["context"]] == [1, 2]


@each("letter", ["a", "é", "汉", "😀"])
async def test_a_content_is_cut_at_100_kilobytes(letter: str) -> None:
    """Between two characters, however many bytes they have; what is cut says so."""
    width = len(letter.encode())
    memory = await notebook(max_content_bytes=400_000)
    for shift in range(width):
        text = "x" * shift + letter * (CONTENT_BYTES // width + 1)
        kept = (CONTENT_BYTES - shift) // width
        (added,) = (await memory.add(text, "u", infer=False)).results
        state = await state_for(memory)
        detail = await used(state, "get_memory_detail", memory_key=added.id)
        assert detail.content == text[: shift + kept] + "… [truncated]"
    whole = letter * (CONTENT_BYTES // width)
    (added,) = (await memory.add(whole, "u", infer=False)).results
    detail = await used(state, "get_memory_detail", memory_key=added.id)
    assert detail.content == whole


# 2.3 extract_search_keywords

QUERY = {"zh": "按照我之前的数据库配置来", "en": "Use my database settings from before"}
KEYWORD = {"zh": "数据库", "en": "database"}
GUIDE = {"zh": "从用户的查询中提取搜索关键词", "en": "Extract what to search for"}


@LANGUAGES
async def test_a_model_extracts_keywords(language: Language) -> None:
    """It is told how many and shown the context as data; its answer is sorted and checked."""
    answer = {
        "keywords": [
            {"keyword": "PostgreSQL", "weight": 0.7, "type": "entity"},
            {"keyword": KEYWORD[language], "weight": 0.9, "type": "concept"},
            {"keyword": "昨天 yesterday", "weight": 7, "type": "moment"},
        ],
        "expanded_query": "PostgreSQL 数据库 database",
    }
    given = {"query": QUERY[language], "context": "</conversation>", "max_keywords": 3}
    with running_openai_server([answer]) as server:
        llm = OpenAILLM.connect("m", base_url=server.base_url)
        state = await state_for(await notebook(llm=llm), language)
        output = await used(state, "extract_search_keywords", **given)
        await llm.close()
    assert output.success and output.expanded_query == answer["expanded_query"]
    assert [(it.keyword, it.weight, it.type) for it in output.keywords] == [
        (KEYWORD[language], 0.9, "concept"),
        ("PostgreSQL", 0.7, "entity"),
        ("昨天 yesterday", 0.5, "concept"),
    ]
    (request,) = server.requests
    system, user = request["messages"]
    assert GUIDE[language] in system["content"] and " 3 " in system["content"]
    assert json.loads(user["content"]) == {key: given[key] for key in ("query", "context")}


@LANGUAGES
@each(
    "answer",
    [
        "抱歉 sorry",
        [],
        {"keywords": []},
        {"keywords": "数据库 database"},
        {"keywords": [{"weight": 1}, 7, None, {"keyword": "\ud800"}, {"keyword": " "}]},
        RuntimeError("网络 network"),
        None,
    ],
)
async def test_rules_extract_keywords_where_a_model_does_not(
    language: Language, answer: Any
) -> None:
    """With an answer that is of no use, a failure, or without a model at all."""
    llm = None if answer is None else ScriptedLLM([answer])
    memory = await notebook(llm=llm)
    state = await state_for(memory, language)
    output = await used(state, "extract_search_keywords", query=QUERY[language], max_keywords=2)
    assert output.success and len(output.keywords) == 2
    words = {it.keyword: it.type for it in output.keywords}
    assert words[KEYWORD[language]] == "concept"
    assert KEYWORD[language] in output.expanded_query
    assert all(0 <= it.weight <= 1 for it in output.keywords)
    assert llm is None or len(llm.calls) == 1
